"""NOTICE of the shipped measurements: whose they are and under which licence, from the provenance."""

from __future__ import annotations

import textwrap
from typing import Any

MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated \
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the \
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit \
persons to whom the Software is furnished to do so, subject to the following conditions: The above copyright notice \
and this permission notice shall be included in all copies or substantial portions of the Software. THE SOFTWARE IS \
PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF \
MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT \
HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, \
ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""

_LICENCES = {
    "Apache-2.0": "under the Apache License, Version 2.0 (the text is in LICENSE)",
    "MIT": "under the MIT License (below)",
    "CC-BY-SA-4.0": "under CC BY-SA 4.0 (https://creativecommons.org/licenses/by-sa/4.0/), in files of their own; "
    "what is made from them is shared alike",
}


def notice(provenance: dict[str, Any]) -> str:
    """The text, one paragraph a repository; every shipped file is named once."""
    lines = ["Measurements", "", _wrapped(
        "The tables of measurements that foretrace ships are packed from the public repositories below: columns "
        "renamed and put into SI units, repeats merged, rows marked. Figures are facts; the selection is their "
        "authors' work."
    )]  # fmt: skip
    by_repository: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for entry in provenance["sources"]:
        key = (entry["repository"], entry["commit"], entry["licence"])
        by_repository.setdefault(key, []).append(entry)
    for (repository, commit, licence), entries in sorted(by_repository.items(), key=lambda item: item[0][0].lower()):
        files = ", ".join(entry["file"] for entry in entries)
        holder = entries[0]["copyright"]
        lines += ["", _wrapped(
            f"github.com/{repository} (commit {commit}), copyright {holder}, {_LICENCES[licence]}: {files}."
        )]  # fmt: skip
    if any(entry["licence"] == "MIT" for entry in provenance["sources"]):
        lines += ["", "MIT License", "", _wrapped(MIT)]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)
