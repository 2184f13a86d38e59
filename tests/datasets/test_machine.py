import json

import pytest
from foretrace.datasets.errors import InputError, SchemaError, UsageError
from foretrace.datasets.machine import Machine, default_path
from foretrace.datasets.schemas import validate


@pytest.fixture
def machine(op_row):
    ops = validate("ops", [op_row(time_s=1e-6, threads=1, processes=1), op_row(m=8)], where="here").to_pandas()
    return Machine(name="box", facts={"usable_cores": 2, "quota_cores": None}, ops=ops, peaks={"fp32_flops_per_s": 1e9})


def test_what_is_saved_is_what_is_loaded(machine, tmp_path):
    path = machine.save(tmp_path / "new" / "box.json")
    loaded = Machine.load(path)
    assert loaded.content_hash == machine.content_hash
    assert loaded.ops.equals(machine.ops)
    assert (loaded.facts, loaded.peaks, loaded.name) == (machine.facts, machine.peaks, "box")
    assert [entry.name for entry in path.parent.iterdir()] == ["box.json"]
    assert "2 usable cores" in str(loaded)


def test_no_nan_in_the_file(machine, tmp_path):
    machine.peaks["copy_bytes_per_s"] = float("nan")
    text = machine.save(tmp_path / "box.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["peaks"]["copy_bytes_per_s"] is None
    assert json.loads(text)["ops"]["time_s"] == [1e-6, None]


def test_the_hash_follows_the_content(machine, op_row):
    other = Machine(name="box", facts=machine.facts, ops=machine.ops.iloc[:1], created=machine.created)
    assert other.content_hash != machine.content_hash


def break_it(change):
    def apply(document):
        change(document)
        return json.dumps(document)

    return apply


@pytest.mark.parametrize(
    ("breaking", "error", "message"),
    [
        (lambda d: json.dumps(d)[:-20], InputError, "damaged or cut short"),
        (lambda d: "", InputError, "is empty"),
        (lambda d: "[1]", InputError, "expected a JSON object, found list"),
        (break_it(lambda d: d.update(kind="profile")), InputError, "kind is 'profile'"),
        (break_it(lambda d: d.update(schema_version=99)), InputError, "schema_version is 99.*upgrade foretrace"),
        (break_it(lambda d: d.update(schema_version="1")), InputError, "schema_version must be a whole number"),
        (break_it(lambda d: d["facts"].pop("usable_cores")), SchemaError, "facts.usable_cores .* found None"),
        (break_it(lambda d: d["peaks"].update(x="fast")), SchemaError, "peaks.x must be a number"),
        (break_it(lambda d: d["ops"]["m"].pop()), SchemaError, "ops: columns differ in length"),
        (break_it(lambda d: d["ops"]["m"].__setitem__(1, "many")), SchemaError, "table ops, row 1, column 'm'"),
        (break_it(lambda d: d["ops"].pop("dtype")), SchemaError, "table ops: column 'dtype' is missing"),
        (break_it(lambda d: d.update(host=[])), SchemaError, "host must be a JSON object of columns"),
    ],
)
def test_a_broken_file_is_named_with_what_is_wrong(machine, tmp_path, breaking, error, message):
    path = machine.save(tmp_path / "box.json")
    path.write_text(breaking(json.loads(path.read_text())))
    with pytest.raises(error, match=message) as caught:
        Machine.load(path)
    assert str(caught.value).startswith(str(path))


def test_columns_of_a_later_version_are_left_out(machine, tmp_path):
    path = machine.save(tmp_path / "box.json")
    document = json.loads(path.read_text())
    document["ops"]["later"] = [1, 2]
    del document["ops"]["kernel"]
    path.write_text(json.dumps(document))
    assert len(Machine.load(path).ops) == 2


def test_this_machine_without_a_file_says_how_to_make_one(monkeypatch, tmp_path):
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    assert default_path() == tmp_path / "machine.json"
    with pytest.raises(InputError, match="run: foretrace profile machine --quick"):
        Machine.this()


def test_this_machine(monkeypatch, tmp_path, machine):
    monkeypatch.setenv("FORETRACE_CACHE_DIR", str(tmp_path))
    machine.save(default_path())
    assert Machine.this().content_hash == machine.content_hash


def test_a_file_in_the_way_of_the_folder(machine, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot make its folder"):
        machine.save(tmp_path / "file" / "box.json")
