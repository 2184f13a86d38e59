import json
import os
import signal
import subprocess
import sys
import time

import pytest


def test_version_names_torch_and_the_driver(foretrace):
    done = foretrace("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("foretrace ")
    for word in ("python", "torch", "NVIDIA driver"):
        assert word in done.stdout


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_the_commands(foretrace, flag):
    done = foretrace(flag)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("compare", "datasets", "predict", "profile"):
        assert f"\n  {name} " in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nope",), "No such command 'nope'; see: foretrace --help"),
        (("datasets", "list", "--nope"), "No such option"),
        (("datasets", "show"), "Missing argument 'PATH'; see: foretrace datasets show --help"),
        (("datasets", "show", "x", "--top", "0"), "Invalid value for '--top'"),
    ],
)
def test_a_usage_error_is_one_line_and_2(foretrace, arguments, message):
    done = foretrace(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("foretrace: error: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_command_the_help_comes_on_stderr(foretrace):
    done = foretrace()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: foretrace")


def test_our_error_is_one_line_with_its_code_and_no_traceback(foretrace):
    done = foretrace("datasets", "show", "none")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "foretrace: error: none: no such file or folder\n"
    verbose = foretrace("-v", "datasets", "show", "none")
    assert verbose.returncode == 3
    assert "Traceback" in verbose.stderr
    assert verbose.stderr.endswith(done.stderr)


def test_a_reader_that_goes_away_is_no_error(foretrace, run_folder):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = foretrace("datasets", "show", run_folder, capture_output=False, stdout=closed, stderr=subprocess.PIPE)
    assert done.returncode == 141  # 128 + SIGPIPE, as a shell shows it for any other tool
    assert done.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")  # noqa: PTH110
def test_a_full_disk_behind_stdout_is_told(foretrace, run_folder):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = foretrace("datasets", "show", run_folder, capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == "foretrace: error: output: no space left on device\n"


def test_ctrl_c_is_130_and_one_line(tmp_path):
    code = (
        "import sys, time, click\n"
        "from foretrace.cli import main\n"
        "@main.foretrace.command('wait')\n"
        "def wait():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "main.LazyGroup.get_command = lambda self, ctx, name: wait\n"
        "sys.exit(main.main(['wait']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.strip() == "foretrace: interrupted"


def test_a_narrow_encoding_does_not_break_the_output(foretrace, run_folder):
    done = foretrace("datasets", "show", run_folder, env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert "500.00 ms" in done.stdout
    document = foretrace("datasets", "show", run_folder, "--json", env={"PYTHONIOENCODING": "ascii"})
    assert json.loads(document.stdout)["step_time_s"] == 0.5
