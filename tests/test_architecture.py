"""The house keeps its shape: imports go down only, the wheel is whole, heavy libraries stay out until they are used."""

import ast
import importlib
import os
import shutil
import subprocess
import sys
import zipfile
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import foretrace
import pytest
from foretrace.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
ROOMS = ("cli", "profiler", "predictor", "datasets")
# A room may import rooms of a lower floor only; profiler and predictor share one.
FLOORS = {"cli": 3, "profiler": 2, "predictor": 2, "datasets": 1, "": 0}
# Inside predictor parts of one floor may import each other one way: search -> api -> ... -> hardware.
PREDICTOR_FLOORS = {
    "search": 5, "api": 4, "prediction": 3, "plan": 3, "outcomes": 3, "workload": 2, "cost": 2, "engine": 2,
    "hardware": 1,
}  # fmt: skip
HEAVY = ("torch", "pandas", "pyarrow", "numba", "numpy", "rich", "psutil", "pynvml")

FILES = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]


def modules_imported(path):
    """Dotted names that a file of ours imports, relative ones resolved; `from a import b` gives `a.b`."""
    package = ("foretrace", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names = (*base, *(node.module or "").split("."))
            yield from (".".join((*filter(None, names), alias.name)) for alias in node.names)


def edges():
    """(file, its parts below foretrace, parts of what it imports of ours) over the whole house."""
    for path in FILES:
        source = path.relative_to(ROOT).with_suffix("").parts
        for name in modules_imported(path):
            parts = name.split(".")
            if parts[0] == "foretrace":
                yield path, source, (parts[1:] if parts[1] in ROOMS else [""])


def test_rooms_import_down_only():
    wrong = [
        f"{path.relative_to(ROOT)} imports {'.'.join(target)}"
        for path, source, target in edges()
        if target[0] != source[0] and FLOORS[target[0]] >= FLOORS[source[0]]
    ]
    assert wrong == []


def test_parts_of_the_predictor_import_down_only():
    below = {}
    for path, source, target in edges():
        if source[0] != "predictor" or target[0] != "predictor" or source[1] == "__init__" or len(target) < 2:
            continue
        if source[1] != target[1]:
            below.setdefault(source[1], set()).add(target[1])
            assert PREDICTOR_FLOORS[target[1]] <= PREDICTOR_FLOORS[source[1]], (
                f"{path.relative_to(ROOT)} imports {'.'.join(target)}"
            )
    try:
        TopologicalSorter(below).prepare()
    except CycleError as error:
        pytest.fail(f"parts of predictor import each other in a ring: {error.args[1]}")
    assert not below.get("engine"), "the engine knows nothing of models or hardware"


def test_inside_the_project_imports_are_relative():
    wrong = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            wrong += [
                f"{path.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] in ("foretrace", *ROOMS)
            ]
    assert wrong == []


@pytest.mark.parametrize(
    "package", [path.parent.relative_to(ROOT).as_posix() for path in FILES if path.name == "__init__.py"]
)
def test_every_name_in_all_exists(package):
    module = importlib.import_module("foretrace." + package.replace("/", "."))
    names = getattr(module, "__all__", [])
    assert [name for name in names if not hasattr(module, name)] == []
    assert len(set(names)) == len(names)


def test_every_folder_with_code_is_a_package():
    folders = {path.parent for path in FILES}
    assert [folder for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_command_of_the_table_has_its_module():
    assert [name for name, (module, _) in COMMANDS.items() if not (ROOT / "cli" / f"{module}.py").exists()] == []


def python(code, *, cwd=None, path=None):
    """Run code in a fresh interpreter; its stdout."""
    variables = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=cwd, env=variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import foretrace, foretrace.datasets, foretrace.profiler, foretrace.predictor",
        "from foretrace.datasets import Plan; from foretrace.datasets.workloads import load",
        "from foretrace.cli.main import main; main(['--help'])",
        "from foretrace.cli.main import main; main(['--version'])",
        "from foretrace.cli.main import main; main(['datasets', 'validate', '--help'])",
    ],
)
def test_no_heavy_library_before_it_is_needed(code):
    out = python(f"{code}\nimport sys\nprint('HEAVY', *({set(HEAVY)!r} & set(sys.modules)))")
    assert out.splitlines()[-1] == "HEAVY"


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_imports_torch_or_numba(command):
    code = f"from foretrace.cli.main import main; main([{command!r}, '--help'])"
    out = python(f"{code}\nimport sys\nprint('HEAVY', *({{'torch', 'numba'}} & set(sys.modules)))")
    assert out.splitlines()[-1] == "HEAVY"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of a copy of the tree (building leaves folders behind), unpacked; None of it comes from a network."""
    base = tmp_path_factory.mktemp("wheel")
    source = base / "source"
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*cache", "*.so")
    for name in ("foretrace", *ROOMS):
        shutil.copytree(ROOT / name, source / name, ignore=ignore)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source / name)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, str(base)], cwd=source, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    unpacked = base / "site"
    with zipfile.ZipFile(base / done.stdout.split()[-1]) as archive:
        archive.extractall(unpacked)
    return unpacked


def test_every_package_folder_and_data_file_is_in_the_wheel(wheel):
    wanted = {path.relative_to(ROOT).as_posix() for path in FILES}
    data = ("*.json", "*.csv", "*.parquet", "*.html")
    wanted |= {
        path.relative_to(ROOT).as_posix() for room in ROOMS for kind in data for path in (ROOT / room).rglob(kind)
    }
    assert sorted(name for name in wanted if not (wheel / "foretrace" / name).exists()) == []
    assert (wheel / "foretrace" / "py.typed").exists()


def test_the_wheel_takes_no_other_name(wheel):
    assert sorted(entry.name for entry in wheel.iterdir()) == [
        "foretrace", f"foretrace-{foretrace.__version__}.dist-info",
    ]  # fmt: skip


def test_a_foreign_datasets_package_stays_importable(wheel, tmp_path):
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("FOREIGN = True\n")
    code = (
        "import foretrace.datasets.plan, foretrace.cli.main, datasets, profiler, predictor, cli\n"
        "assert datasets.FOREIGN and profiler.FOREIGN and predictor.FOREIGN and cli.FOREIGN\n"
        "assert foretrace.datasets is not datasets and foretrace.datasets.Plan().world_size == 1\n"
        "print(foretrace.__file__)"
    )
    # As this environment has it installed. Not from our own root, where Python finds our folders by their bare names.
    python(code, cwd=tmp_path, path=tmp_path)
    out = python(code, cwd=tmp_path, path=f"{wheel}{os.pathsep}{tmp_path}")
    assert out.strip().startswith(str(wheel))


def test_the_license_and_notice_are_shipped(wheel):
    info = wheel / f"foretrace-{foretrace.__version__}.dist-info"
    assert {"LICENSE", "NOTICE"} <= {entry.name for entry in (info / "licenses").iterdir()}
