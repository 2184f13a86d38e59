"""README and docs: Python blocks run, foretrace commands in shell blocks run, links and make targets exist.

A shell block under the comment `<!-- long -->` takes minutes; of its commands only the options are checked.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MACHINE = ROOT / "tests" / "data" / "machine.json"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^(?P<long><!-- long -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")

# What `python train.py` in a shell block trains.
SCRIPT = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(8):
    model(torch.randn(8, 16)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def blocks(page: Path) -> list[re.Match[str]]:
    return list(BLOCK.finditer(page.read_text("utf-8")))


def commands(text: str) -> list[str]:
    lines = (line.partition("  #")[0].strip() for line in text.splitlines())
    return [line for line in lines if line.startswith("foretrace ")]


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where a reader follows a page: a script to train, and a cache with a small device file."""
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "cache").mkdir()
    shutil.copy(MACHINE, tmp_path / "cache" / "machine.json")
    return tmp_path


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("FORETRACE_")}
    variables |= {"PATH": paths, "FORETRACE_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=variables, capture_output=True, text=True, timeout=180, check=False
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run_in_their_order(page, folder):
    for block in blocks(page):
        if block["language"] == "python":
            run = shell(f"{shlex.quote(sys.executable)} -c {shlex.quote(block['text'])}", folder)
            assert run.returncode == 0, f"{block['text']}\n{run.stderr}"
        elif block["language"] == "bash" and not block["long"]:
            for line in commands(block["text"]):
                run = shell(line, folder)
                # The device file is of another machine: a comparison may find what it was told to look for.
                expected = (0, 5) if "--fail-on" in line else (0,)
                assert run.returncode in expected, f"{line}\n{run.stderr}"
                assert "Traceback" not in run.stderr


def long_commands() -> list[str]:
    return [line for page in PAGES for block in blocks(page) if block["long"] for line in commands(block["text"])]


@pytest.mark.parametrize("line", long_commands())
def test_options_of_long_commands_exist(line, folder):
    words = shlex.split(line)[1:]
    ours = words[: words.index("--")] if "--" in words else words
    depth = 2 if ours[0] in ("datasets", "price", "profile") else 1
    run = shell(shlex.join(["foretrace", *ours[:depth], "--help"]), folder)
    assert run.returncode == 0, run.stderr
    for option in (word for word in ours if word.startswith("-")):
        assert option in run.stdout, f"{option} is not an option of {' '.join(ours[:depth])}"


def test_blocks_are_found():
    # A pattern that no longer matches would pass by running nothing.
    languages = [block["language"] for block in blocks(ROOT / "README.md") if not block["long"]]
    assert languages.count("bash") >= 4 and languages.count("python") >= 2
    assert long_commands()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
