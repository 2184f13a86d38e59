"""load: a built-in name or `file.py:factory` -> Workload, with settings checked against the factory's signature."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
import types
import typing
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ForetraceError, InputError, MissingExtraError, UsageError
from .spec import TP_STYLES, Workload

BUILT_IN = ("dlrm", "gpt", "lstm", "mlp", "resnet", "vit")
"""Names that `load` knows; each is a module of this package with a factory of the same name."""

DEFAULT_BATCH = 32
"""Global batch of a factory that returns four parts and has no `batch` setting."""


def load(spec: str, **settings: Any) -> Workload:
    """The workload that `spec` names: one of `BUILT_IN`, or `path/file.py:factory`.

    `settings` are keyword arguments of the factory; text is turned into the type that the factory's annotation (or
    its default) asks for. The factory returns a `Workload`, or (module, batch maker, loss, optimizer) where the
    optimizer is an instance or a callable of parameters.

    Raises `UsageError` for an unknown name or setting, `InputError` for a file that cannot be imported, a factory
    that raises, or one that returns something else.
    """
    path_text, colon, factory_name = spec.rpartition(":")
    if colon and path_text.endswith(".py"):
        path = Path(path_text).expanduser().resolve()
        factory = _factory_in(path, factory_name, spec)
        reference = f"{path}:{factory_name}"
    elif spec in BUILT_IN:
        factory = _built_in(spec)
        reference = spec
    else:
        hint = " (a file needs its factory: file.py:factory)" if spec.endswith(".py") else ""
        raise UsageError(f"workload {spec!r}: not known{hint}; use one of {', '.join(BUILT_IN)}, or file.py:factory")
    arguments = _coerce(factory, settings, spec)
    made = _call(factory, arguments, spec)
    if isinstance(made, tuple) and len(made) == 4:
        made = _from_parts(made, factory, arguments, spec, factory_name)
    elif not isinstance(made, Workload):
        found = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
        raise InputError(
            f"workload {spec}: the factory returned {found}; it must return a Workload or the four parts "
            "(module, batch maker, loss, optimizer)"
        )
    for pattern, style in made.tp_styles.items():
        if style not in TP_STYLES:
            raise InputError(f"workload {spec}: tp_styles[{pattern!r}] is {style!r}; known are {', '.join(TP_STYLES)}")
    return replace(made, reference=reference, settings=arguments)


def _built_in(name: str) -> Callable[..., Any]:
    try:
        return getattr(importlib.import_module(f".{name}", __package__), name)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "torch":
            raise MissingExtraError("torch", extra="torch", purpose=f"workload {name}") from error
        raise


def _factory_in(path: Path, factory_name: str, spec: str) -> Callable[..., Any]:
    """Import the file under a private name and take the factory out of it."""
    if not path.is_file():
        raise InputError(f"workload {spec}: there is no file {path}; give the path of a Python file and its factory")
    # The same file is imported once per process, so that classes in it stay the same classes.
    module_name = f"_foretrace_workload_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    module = sys.modules.get(module_name)
    if module is None:
        module_spec = importlib.util.spec_from_file_location(module_name, path)
        assert module_spec is not None and module_spec.loader is not None
        module = importlib.util.module_from_spec(module_spec)
        sys.modules[module_name] = module
        # As `python file.py` would: its neighbours are importable.
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        try:
            module_spec.loader.exec_module(module)
        except BaseException as error:
            sys.modules.pop(module_name, None)
            if not isinstance(error, Exception) and not isinstance(error, SystemExit):
                raise
            raise InputError(f"workload {spec}: importing {path.name} raised {_told(error)}") from error
    factory = getattr(module, factory_name, None)
    if not callable(factory):
        names = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
        raise InputError(
            f"workload {spec}: {path.name} has no function {factory_name!r}; it has {', '.join(names) or 'none'}"
        )
    return factory


def _coerce(factory: Callable[..., Any], settings: dict[str, Any], spec: str) -> dict[str, Any]:
    """All arguments of the factory, given ones turned to their annotated types, defaults filled in."""
    parameters = inspect.signature(factory).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    named = {name: p for name, p in parameters.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    unknown = [name for name in settings if name not in named]
    if unknown and not takes_any:
        known = ", ".join(named) or "none"
        raise UsageError(f"workload {spec}: no setting {', '.join(sorted(unknown))}; it has: {known}")
    try:
        hints = typing.get_type_hints(factory)
    except Exception:
        # A user's annotation may name something that is not importable; the defaults still tell the types.
        hints = {}
    values: dict[str, Any] = {}
    for name, parameter in named.items():
        if name in settings:
            values[name] = _convert(settings[name], hints.get(name), parameter.default, f"workload {spec}: {name}")
        elif parameter.default is parameter.empty:
            raise UsageError(f"workload {spec}: setting {name} has no default; give {name}=VALUE")
        else:
            values[name] = parameter.default
    return values | {name: settings[name] for name in unknown}


def _convert(value: Any, hint: Any, default: Any, where: str) -> Any:
    if hint is None or hint is Any:
        hint = type(default) if default is not inspect.Parameter.empty and default is not None else None
    options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    if type(None) in options and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    kinds = [option for option in options if option is not type(None)]
    if not isinstance(value, str):
        if bool not in kinds and isinstance(value, bool) and kinds and kinds[0] in (int, float):
            raise UsageError(f"{where} needs {_kind_name(kinds)}, found {value!r}")
        return float(value) if kinds == [float] and isinstance(value, int) else value
    for kind in kinds:
        try:
            if kind is bool:
                return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
            if kind in (int, float):
                return kind(value)
            if typing.get_origin(kind) is tuple or kind is tuple:
                member = (typing.get_args(kind) or (int,))[0]
                return tuple(member(part) for part in value.replace("x", "+").split("+"))
        except (ValueError, KeyError):
            continue
        return value
    raise UsageError(f"{where} needs {_kind_name(kinds)}, found {value!r}")


def _kind_name(kinds: list[Any]) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false"}
    return " or ".join(names.get(kind, "numbers joined by +") for kind in kinds)


def _call(factory: Callable[..., Any], arguments: dict[str, Any], spec: str) -> Any:
    try:
        return factory(**arguments)
    except ForetraceError:
        raise
    except Exception as error:
        raise InputError(f"workload {spec}: the factory raised {_told(error)}") from error


def _told(error: BaseException) -> str:
    """`ValueError: text (file.py, line 12)`, the innermost line of the user's code that a reader can open."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "_foretrace" not in frame.filename and __file__ != frame.filename]
    own = [frame for frame in own if "importlib" not in frame.filename and "site-packages" not in frame.filename]
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text


def _from_parts(
    parts: tuple[Any, ...], factory: Callable[..., Any], arguments: dict[str, Any], spec: str, name: str
) -> Workload:
    """A Workload of the four parts; every `build` calls the factory again, so that each module is freshly drawn."""
    module, make_batch, loss, optimizer = parts
    for part, what in ((make_batch, "second part, the batch maker,"), (loss, "third part, the loss,")):
        if not callable(part):
            raise InputError(f"workload {spec}: the {what} is {type(part).__name__}; it must be callable")
    if not hasattr(module, "named_parameters"):
        raise InputError(f"workload {spec}: the first part is {type(module).__name__}; it must be a torch module")
    batch = arguments.get("batch", arguments.get("batch_size"))

    def batch_of(samples: int) -> tuple[tuple[Any, ...], Any]:
        made = make_batch(samples)
        if not isinstance(made, tuple) or len(made) != 2:
            raise InputError(f"workload {spec}: the batch maker returned {type(made).__name__}, not (inputs, target)")
        inputs, target = made
        return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), target

    return Workload(
        name=name,
        build=lambda: _call(factory, arguments, spec)[0],
        make_batch=batch_of,
        loss=loss,
        make_optimizer=_optimizer_maker(optimizer, spec),
        batch=batch if isinstance(batch, int) and batch > 0 else DEFAULT_BATCH,
    )


def _optimizer_maker(optimizer: Any, spec: str) -> Callable[..., Any]:
    """A callable of parameters; an instance is remade with its own settings, since a plan replaces the parameters."""
    if hasattr(optimizer, "param_groups") and hasattr(optimizer, "step"):
        kind, groups = type(optimizer), optimizer.param_groups
        if len(groups) > 1:
            raise InputError(
                f"workload {spec}: the optimizer has {len(groups)} parameter groups, which cannot be remade for the "
                "parameters of a plan; return a callable(parameters) instead of an instance"
            )
        accepted = inspect.signature(kind).parameters
        # `params` stays out: holding the instance would keep its module alive.
        values = {name: value for name, value in groups[0].items() if name != "params" and name in accepted}
        return lambda parameters: kind(parameters, **values)
    if callable(optimizer):
        return optimizer
    raise InputError(
        f"workload {spec}: the fourth part is {type(optimizer).__name__}; it must be an optimizer or a callable of "
        "parameters"
    )
