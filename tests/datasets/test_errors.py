import inspect
import re

import pytest
from foretrace.datasets import errors

TREE_LINE = re.compile(r"^ {4}(?P<bars>[|+\- ]*)(?P<name>[A-Z]\w+) +exit (?P<code>\d+)", re.MULTILINE)


def drawn():
    """(name, parent, exit code) of every line of the tree in the module's docstring."""
    parents = []
    for match in TREE_LINE.finditer(errors.__doc__):
        depth = len(match["bars"]) // 4
        parents[depth:] = [match["name"]]
        yield match["name"], parents[depth - 1] if depth else "Exception", int(match["code"])


def test_the_drawn_tree_is_the_real_one():
    classes = {
        name: (name, cls.__base__.__name__, cls.exit_code)
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.ForetraceError)
    }
    assert {entry[0]: entry for entry in drawn()} == classes


def test_every_class_says_when_it_happens():
    for name, _, _ in drawn():
        assert inspect.getdoc(getattr(errors, name)).endswith(".")


def test_missing_extra_names_the_command_that_helps():
    with pytest.raises(
        errors.MissingExtraError, match=r"tracing a module needs torch.*pip install 'foretrace\[torch\]'"
    ):
        raise errors.MissingExtraError("torch", extra="torch", purpose="tracing a module")
