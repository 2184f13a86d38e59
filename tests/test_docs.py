"""README and docs: Python blocks run, commands in shell blocks parse, local links lead somewhere."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def blocks(language: str) -> list:
    found = [
        (page, text) for page in PAGES for kind, text in BLOCK.findall(page.read_text("utf-8")) if kind == language
    ]
    return [pytest.param(page, text, id=f"{page.stem}-{index}") for index, (page, text) in enumerate(found)]


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_blocks_run(page, text):
    run = subprocess.run(
        [sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr


def commands() -> list:
    lines = [line for param in blocks("bash") for line in param.values[1].splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line.startswith("foretrace ")]


@pytest.mark.parametrize("line", commands())
def test_commands_are_known_with_all_their_options(line):
    # Running them takes minutes; that every option exists is what goes stale.
    words = shlex.split(line)[1:]
    ours = words[: words.index("--")] if "--" in words else words
    depth = 2 if ours[0] == "profile" else 1
    run = subprocess.run(
        [sys.executable, "-m", "foretrace", *ours[:depth], "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    for option in (word for word in ours if word.startswith("-")):
        assert option in run.stdout, f"{option} is not an option of {' '.join(ours[:depth])}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text("utf-8")):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_make_targets_of_the_readme_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", (ROOT / "README.md").read_text("utf-8")):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
