"""What all tests share."""

import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _compiled_loops_are_shared(tmp_path_factory):
    """One folder for the compiled loops of all commands that tests start: compiling takes longer than most tests."""
    os.environ.setdefault("NUMBA_CACHE_DIR", str(tmp_path_factory.mktemp("compiled")))
