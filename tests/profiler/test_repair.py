"""Trace files with unescaped names."""

import json
from pathlib import Path

import pytest
from foretrace.datasets.errors import InputError
from foretrace.profiler.repair import loads, read_trace, repair_names

CASE = Path(__file__).parents[1] / "cases" / "S01-quote-in-event-name"


def test_a_name_with_quotes_is_repaired_and_counted():
    expected = json.loads((CASE / "expected.json").read_text())["wanted"]
    document, repaired = read_trace(CASE / "trace.json")
    assert repaired == expected["repaired_names"]
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == expected["complete_events"]
    assert expected["repaired_name"] in [event["name"] for event in events]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('  "id": 3, "name": "a "b" é\\x", "ctrl_deps": 2,', 'a "b" é\\x'),
        ('  "id": 3, "name": "ends with "", "ctrl_deps": 2,', 'ends with "'),
        ('  "name": "C:\\temp\\q",', "C:\\temp\\q"),
        ('  "name": "a "b", and c"', 'a "b", and c'),
    ],
)
def test_what_torch_writes(line, name):
    text, repaired = repair_names(line)
    assert repaired == 1
    assert json.loads("{" + text.strip().rstrip(",") + "}")["name"] == name


def test_a_sound_file_stays_as_it_is():
    text = '{"traceEvents": [\n{"name": "a \\"b\\"", "ph": "X"}\n]}'
    assert repair_names(text) == (text, 0)
    assert loads(text.encode(), "here")[0]["traceEvents"][0]["name"] == 'a "b"'


def test_what_cannot_be_repaired_is_refused_with_its_line(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text((CASE / "trace.json").read_text()[:900])
    with pytest.raises(InputError, match=r"trace.json: line \d+, column \d+: is damaged or cut short"):
        read_trace(path)
    path.write_text("")
    with pytest.raises(InputError, match="the trace is empty"):
        read_trace(path)
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "none.json")
    path.write_text("[]")
    with pytest.raises(InputError, match="expected a JSON object"):
        read_trace(path)
