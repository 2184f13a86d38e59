import errno
import json
import math
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from foretrace.datasets.errors import InputError, RunError, UsageError
from foretrace.datasets.store.files import encode, plain, read_json, replacing, set_aside, write_json, write_new


def test_an_error_leaves_the_old_content_and_no_temporary_file(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError), replacing(path) as temporary:
        temporary.write_text("half")
        raise ValueError
    assert read_json(path, what="file") == {"a": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "free some space"), (errno.EDQUOT, "quota"), (errno.EROFS, "choose a folder that can be written")],
)
def test_a_refusing_disk_is_told_in_words(tmp_path, code, advice):
    with pytest.raises(RunError) as caught, replacing(tmp_path / "a"):
        raise OSError(code, os.strerror(code))
    assert str(caught.value).startswith(f"{tmp_path / 'a'}: cannot write: {os.strerror(code).lower()}")
    assert advice in str(caught.value)


def test_the_kind_of_error_is_the_callers_choice(tmp_path):
    with pytest.raises(UsageError):
        write_json(tmp_path / "none" / "a.json", {}, UsageError)


def test_new_names_are_never_shared(tmp_path):
    def take(text):
        write_new(lambda number: tmp_path / f"part.{number}", lambda path: path.write_text(text))

    threads = [threading.Thread(target=take, args=(str(index),)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(f"part.{index}" for index in range(16))
    assert {entry.read_text() for entry in tmp_path.iterdir()} == {str(index) for index in range(16)}


def test_without_hard_links_the_next_free_name_is_still_taken(tmp_path, monkeypatch):
    def no_links(*_):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    names = [
        write_new(lambda number: tmp_path / f"part.{number}", lambda path: path.write_text("x")).name for _ in range(3)
    ]
    assert names == ["part.0", "part.1", "part.2"]


def test_json_is_sorted_and_has_no_nan():
    document = {"b": math.nan, "a": [math.inf, np.float32(1.5), np.int64(2)], "c": Path("x"), "d": {2, 1}}
    assert json.loads(encode(document)) == {"a": [None, 1.5, 2], "b": None, "c": "x", "d": [1, 2]}
    assert encode(document).index('"a"') < encode(document).index('"b"')
    assert plain(np.array([1.0, np.nan])) == [1.0, None]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b'{"a": ', r"damaged or cut short \(line 1"), (b"\xff\xfe", "not UTF-8"), (b"3", "found int")],
)
def test_unreadable_json_is_named(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_json(path, what="manifest")
    assert str(path) in str(caught.value)


def test_set_aside_never_overwrites_an_earlier_one(tmp_path):
    for content in ("first", "second"):
        path = tmp_path / "a"
        path.write_text(content)
        assert "set aside as" in set_aside(path)
    assert sorted(entry.read_text() for entry in tmp_path.iterdir()) == ["first", "second"]
