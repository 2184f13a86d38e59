import json
from pathlib import Path

import pytest
from foretrace.datasets.environment import (
    Cores,
    affinity,
    caches_bytes,
    environment,
    library_version,
    memory_bytes,
    quota_cores,
    usable_cores,
)

CASE = Path(__file__).parents[1] / "cases" / "S17-cpu-quota"
USABLE = json.loads((CASE / "expected.json").read_text())["usable"]


@pytest.mark.parametrize("name", USABLE)
def test_s17_quota_and_affinity(tmp_path, name):
    case = json.loads((CASE / f"{name}.json").read_text())
    cores = case.pop("affinity")
    for file, text in case.items():
        (tmp_path / file).write_text(text + "\n")
    quota = quota_cores(tmp_path, memberships="0::/\n")
    assert Cores(affinity=cores, quota=quota).usable == USABLE[name]


def test_the_tightest_ancestor_counts(tmp_path):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("150000 100000\n")  # 1.5 cores
    assert quota_cores(tmp_path, memberships="0::/outer/inner\n") == 1.5
    assert Cores(affinity=12, quota=1.5).usable == 1


def test_version_1_controllers_in_folders_of_their_own(tmp_path):
    folder = tmp_path / "cpu,cpuacct" / "job"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("250000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    memberships = "5:memory:/job\n4:cpu,cpuacct:/job\n"
    assert quota_cores(tmp_path, memberships) == 2.5
    (folder / "cpu.cfs_quota_us").write_text("-1\n")
    assert quota_cores(tmp_path, memberships) is None


def test_a_path_of_the_host_that_the_container_does_not_see(tmp_path):
    (tmp_path / "cpu.max").write_text("200000 100000\n")
    assert quota_cores(tmp_path, memberships="0::/../../kubepods/pod1\n") == 2.0


@pytest.mark.parametrize("text", ["", "max", "garbage", "100000 0", "-5 100000"])
def test_a_quota_that_makes_no_sense_is_no_quota(tmp_path, text):
    (tmp_path / "cpu.max").write_text(text)
    assert quota_cores(tmp_path, memberships="") is None


def test_memory_limit_of_the_group(tmp_path):
    (tmp_path / "memory.max").write_text("1048576\n")
    assert memory_bytes(tmp_path, memberships="") == 1048576
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_bytes(tmp_path, memberships="") > 1048576


def test_caches_by_level_in_bytes(tmp_path):
    for index, (kind, level, size) in enumerate([("Data", 1, "32K"), ("Instruction", 1, "64K"), ("Unified", 2, "1M")]):
        folder = tmp_path / "cpu0" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert caches_bytes(tmp_path) == {"L1d": 32 * 1024, "L2": 1024 * 1024}
    assert caches_bytes(tmp_path / "none") == {}


def test_this_machine():
    facts = environment()
    assert 1 <= facts["usable_cores"] <= facts["affinity"] == affinity()
    assert usable_cores().usable == facts["usable_cores"]
    assert facts["memory_bytes"] > 0
    json.dumps(facts, allow_nan=False)


def test_versions_without_importing():
    assert library_version("pyarrow")
    assert library_version("no-such-library-of-ours") is None
