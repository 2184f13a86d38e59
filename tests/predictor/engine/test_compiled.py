"""The compiled loops come from a cache wherever some folder can be written, and work where none can."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from foretrace.predictor.engine import compiled

LOOPS = """
from .compiled import njit

@njit("int64(int64)")
def twice(value):
    return 2 * value
"""

TWICE = """
import json
from foretrace.predictor.engine import loops
assert loops.twice(4) == 8
stats = loops.twice.stats
hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
print(json.dumps({"file": loops.__file__, "folder": stats.cache_path, "hits": hits, "misses": misses}))
"""

ALL_LOOPS = """
import json
from foretrace.predictor.engine import _kernels as kernels
loops = kernels.longest_path, kernels.advance_by_events, kernels.walk_back
print(json.dumps([[sum(loop.stats.cache_hits.values()), sum(loop.stats.cache_misses.values())] for loop in loops]))
"""


def test_loops_of_the_engine_are_compiled_once():
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", ALL_LOOPS], capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == [[1, 0], [1, 0], [1, 0]]


@pytest.fixture
def readonly_install(tmp_path):
    """The decorator and one small loop in a package tree that nobody may write, and the environment to run it in."""
    site = tmp_path / "site"
    package = site / "foretrace" / "predictor" / "engine"
    package.mkdir(parents=True)
    for folder in (package, package.parent, package.parent.parent):
        (folder / "__init__.py").touch()
    shutil.copy(compiled.__file__, package)
    (package / "loops.py").write_text(LOOPS)
    for path in [site, *site.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    for name in ("home", "temporary"):
        (tmp_path / name).mkdir()
    ours = ("FORETRACE_CACHE_DIR", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"PYTHONPATH": str(site), "HOME": str(tmp_path / "home"), "TMPDIR": str(tmp_path / "temporary")}
    yield environment
    for path in [site, *site.rglob("*")]:
        path.chmod(0o755)


def run_unprivileged(environment):
    """Run the program as a user whom file modes stop, which root is only without its capabilities."""
    command = [sys.executable, "-c", TWICE]
    if os.getuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("root ignores file modes, and there is no setpriv to give that up")
        dropped = "-dac_override,-dac_read_search,-fowner"
        command = [setpriv, f"--bounding-set={dropped}", f"--inh-caps={dropped}", *command]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=environment["HOME"])
    if os.getuid() == 0 and "setpriv:" in result.stderr:
        pytest.skip(f"root ignores file modes, and may not give that up here: {result.stderr.strip()}")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="file modes are POSIX")
@pytest.mark.parametrize(
    ("home_mode", "settings", "expected"),
    [
        pytest.param(0o755, {}, "home", id="user's cache folder"),
        pytest.param(0o555, {}, "temporary/foretrace-", id="temporary folder"),
        pytest.param(0o555, {"FORETRACE_CACHE_DIR": "chosen"}, "chosen", id="FORETRACE_CACHE_DIR"),
        pytest.param(
            0o755, {"FORETRACE_CACHE_DIR": "chosen", "NUMBA_CACHE_DIR": "numba"}, "numba", id="NUMBA_CACHE_DIR"
        ),
    ],
)
def test_a_second_process_does_not_compile(readonly_install, tmp_path, home_mode, settings, expected):
    (tmp_path / "home").chmod(home_mode)
    environment = readonly_install | {name: str(tmp_path / value) for name, value in settings.items()}
    first = run_unprivileged(environment)
    second = run_unprivileged(environment)
    assert Path(first["file"]).is_relative_to(tmp_path / "site")
    assert (first["hits"], first["misses"]) == (0, 1)
    assert (second["hits"], second["misses"]) == (1, 0)
    assert second["folder"].startswith(str(tmp_path / expected))


@pytest.fixture
def no_folder_of_numba(monkeypatch):
    """A numba that finds no folder of its own, and no variable that names one."""
    from numba.core.caching import CacheImpl, UserProvidedCacheLocator

    monkeypatch.setattr(CacheImpl, "_locator_classes", [UserProvidedCacheLocator])
    monkeypatch.setattr(compiled.numba.config, "CACHE_DIR", "")
    monkeypatch.delenv("FORETRACE_CACHE_DIR", raising=False)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)


def twice(value):
    return 2 * value


@pytest.mark.parametrize("folder", [None, "/dev/null/nowhere"])
def test_without_any_folder_it_compiles(no_folder_of_numba, monkeypatch, folder):
    monkeypatch.setattr(compiled, "_private_temporary_folder", lambda: folder)
    function = compiled.njit("int64(int64)")(twice)
    assert function(4) == 8
    assert function.stats.cache_path is None


def test_a_temporary_folder_that_others_can_write_is_not_trusted(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path))
    folder = Path(compiled._private_temporary_folder())
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    assert compiled._private_temporary_folder() is None
    folder.rmdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert compiled._private_temporary_folder() is None


def test_the_setting_of_numba_is_left_as_it_was(monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    before = compiled.numba.config.CACHE_DIR
    function = compiled.njit("int64(int64)")(twice)
    assert Path(function.stats.cache_path).is_relative_to(tmp_path)
    assert before == compiled.numba.config.CACHE_DIR


def test_an_error_of_the_function_is_raised():
    def wrong(value):
        return value.no_such_attribute

    with pytest.raises(compiled.numba.errors.TypingError, match="no_such_attribute"):
        compiled.njit("int64(int64)")(wrong)
