"""Runs at the start of every Python process below `foretrace profile run`, before the script.

The script itself is started by Python as always: its own `__main__`, arguments, `sys.path[0]` and tracebacks. Another
`sitecustomize` that this one hides is run too.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib would be imported for this alone


def _run_hidden() -> None:
    """Run the sitecustomize that would have run without us."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def _watch() -> None:
    """Get ready to record, unless this process has no foretrace."""
    if "FORETRACE_RUN" not in os.environ:
        return
    try:
        importlib.import_module("foretrace.profiler.injected").install()
    except Exception as error:
        sys.stderr.write(
            f"foretrace: warning: {sys.executable} cannot record: {type(error).__name__}: {error}; "
            "install foretrace for this Python\n"
        )


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]  # noqa: PTH100
_run_hidden()
_watch()
