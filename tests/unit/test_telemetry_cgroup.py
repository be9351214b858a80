"""Control groups: v1, v2 and hybrid hierarchies as trees of files, and the one this machine has."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from suite.telemetry import cgroup
from suite.telemetry.reading import Unavailable

V1_MOUNTS = """\
30 25 0:26 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro,nosuid master:11 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory
33 30 0:29 /docker/abc /sys/fs/cgroup/blkio ro,nosuid - cgroup cgroup rw,blkio
34 30 0:30 /docker/abc /sys/fs/cgroup/cpuset ro,nosuid - cgroup cgroup rw,cpuset
35 30 0:31 /docker/abc /sys/fs/cgroup/systemd ro,nosuid - cgroup systemd rw,xattr,name=systemd
"""
V2_MOUNT = "41 31 0:38 / /sys/fs/cgroup{at} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V2_FILES = {
    "cpu.stat": "usage_usec 1500\nuser_usec 1000\nnr_throttled 3\nthrottled_usec 250\n",
    "memory.current": "4096\n",
    "memory.peak": "8192\n",
    "memory.stat": "anon 1000\nfile 3000\n",
    "memory.events": "low 0\nhigh 0\nmax 5\noom 4\noom_kill 3\noom_group_kill 0\n",
    "io.stat": "8:0 rbytes=100 wbytes=20 rios=1 wios=1\n8:16 rbytes=11 wbytes=2 rios=1 wios=1\n",
    "cpu.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=77\nfull avg10=0.00 total=5\n",
    "cpu.max": "150000 100000\n",
    "memory.max": "max\n",
    "cpuset.cpus.effective": "0-3\n",
}


def tree(root: Path, cgroup_file: str, mounts: str, files: dict[str, dict[str, str]], pid: int = 7) -> Path:
    """A root with /proc/<pid>/cgroup, /proc/self/mountinfo and the files of each folder."""
    (root / "proc" / str(pid)).mkdir(parents=True)
    (root / "proc/self").mkdir()
    (root / "proc" / str(pid) / "cgroup").write_text(cgroup_file)
    others = "27 1 254:0 / / rw - ext4 /dev/vda rw\n28 27 0:9 / /mnt rw - tmpfs  rw\n"  # one without a source
    (root / "proc/self/mountinfo").write_text(others + mounts)
    for folder, contents in files.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (root / folder / name).write_text(text)
    return root


def v2(root: Path, **changes: str) -> Path:
    return tree(
        root,
        "0::/user.slice/run.scope\n",
        V2_MOUNT.format(at=""),
        {
            "sys/fs/cgroup": {"cpu.stat": "usage_usec 9\n"},
            "sys/fs/cgroup/user.slice": {"cpu.max": "max 100000\n", "memory.max": "1000000\n"},
            "sys/fs/cgroup/user.slice/run.scope": V2_FILES | changes,
        },
    )


def test_v2_usage_and_limits_are_read(tmp_path: Path) -> None:
    group = cgroup.locate(7, v2(tmp_path))
    assert group.version == "v2"
    data, reasons = cgroup.usage(group)
    assert reasons == {}
    assert data == {
        "cpu_usage_ns": 1_500_000,
        "cpu_throttled_ns": 250_000,
        "memory_bytes": 4096,
        "memory_peak_bytes": 8192,
        "page_cache_bytes": 3000,
        "io_read_bytes": 111,
        "io_write_bytes": 22,
        "cpu_pressure_ns": 77_000,
        "oom_kills": 3,
    }


def test_limits_are_the_tightest_of_the_group_and_those_above(tmp_path: Path) -> None:
    data, reasons = cgroup.limits(cgroup.locate(7, v2(tmp_path)))
    assert reasons == {}
    assert data == {"version": "v2", "cpu_limit": "1.5", "memory_limit_bytes": 1_000_000, "cpuset": "0-3"}


def test_whole_cores_have_no_exponent(tmp_path: Path) -> None:
    data, _ = cgroup.limits(cgroup.locate(7, v2(tmp_path, **{"cpu.max": "1000000 100000"})))
    assert data["cpu_limit"] == "10"


def test_v2_root_group_without_controllers_is_read(tmp_path: Path) -> None:
    files = {"sys/fs/cgroup": {"cpu.stat": "usage_usec 9\nuser_usec 5\n"}}
    group = cgroup.locate(7, tree(tmp_path, "0::/\n", V2_MOUNT.format(at=""), files))
    data, reasons = cgroup.usage(group)
    assert data["cpu_usage_ns"] == 9000
    nulls = {name for name, value in data.items() if value is None}
    assert nulls == set(reasons) == set(data) - {"cpu_usage_ns"}
    limits, why = cgroup.limits(group)
    assert (limits["cpu_limit"], why["cpu_limit"]) == (None, "no limit is set")


def test_v1_mounted_at_the_group_of_the_process_as_docker_does(tmp_path: Path) -> None:
    cgroup_file = (
        "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n3:blkio:/docker/abc\n2:cpuset:/docker/abc\n"
    )
    files = {
        "sys/fs/cgroup/cpu,cpuacct": {
            "cpuacct.usage": "123456789\n",
            "cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 555\n",
            "cpu.cfs_quota_us": "-1\n",
            "cpu.cfs_period_us": "100000\n",
        },
        "sys/fs/cgroup/memory": {
            "memory.usage_in_bytes": "10\n",
            "memory.max_usage_in_bytes": "20\n",
            "memory.stat": "cache 1\nrss 4\ntotal_cache 6\n",
            "memory.limit_in_bytes": "9223372036854771712\n",
            "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
        },
        "sys/fs/cgroup/blkio": {
            "blkio.throttle.io_service_bytes": "8:0 Read 70\n8:0 Write 8\n8:0 Total 78\n8:1 Read 3\n",
        },
        "sys/fs/cgroup/cpuset": {"cpuset.cpus": "0,2\n"},
    }
    group = cgroup.locate(7, tree(tmp_path, cgroup_file, V1_MOUNTS, files))
    assert group.version == "v1"
    data, reasons = cgroup.usage(group)
    assert data == {
        "cpu_usage_ns": 123_456_789,
        "cpu_throttled_ns": 555,
        "memory_bytes": 10,
        "memory_peak_bytes": 20,
        "page_cache_bytes": 6,
        "io_read_bytes": 73,
        "io_write_bytes": 8,
        "cpu_pressure_ns": None,
        "oom_kills": 2,
    }
    assert list(reasons) == ["cpu_pressure_ns"]
    limits, why = cgroup.limits(group)
    assert limits["cpuset"] == "0,2"
    assert why == {"cpu_limit": "no limit is set", "memory_limit_bytes": "no limit is set"}


def test_hybrid_takes_each_controller_from_the_hierarchy_that_has_it(tmp_path: Path) -> None:
    cgroup_file = "4:memory:/job\n3:blkio:/job\n0::/job\n"
    mounts = (
        "32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "33 30 0:29 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n"
    ) + V2_MOUNT.format(at="/unified")
    files = {
        "sys/fs/cgroup/memory/job": {"memory.usage_in_bytes": "10", "memory.max_usage_in_bytes": "20"},
        "sys/fs/cgroup/blkio/job": {"blkio.throttle.io_service_bytes_recursive": "Total 0\n"},
        "sys/fs/cgroup/unified/job": {"cpu.stat": "usage_usec 9\n", "cpu.pressure": "some total=4\n"},
    }
    group = cgroup.locate(7, tree(tmp_path, cgroup_file, mounts, files))
    assert group.version == "hybrid"
    data, reasons = cgroup.usage(group)
    assert (data["cpu_usage_ns"], data["memory_bytes"], data["cpu_pressure_ns"]) == (9000, 10, 4000)
    assert data["io_read_bytes"] is None, "a total of 0 without devices is no measurement"
    assert set(reasons) == {
        "cpu_throttled_ns",
        "io_read_bytes",
        "io_write_bytes",
        "oom_kills",
        "page_cache_bytes",
    }


@pytest.mark.parametrize("cgroup_file", ["0::/../other\n", "4:memory:/elsewhere\n"])
def test_group_outside_the_namespace_is_unavailable(tmp_path: Path, cgroup_file: str) -> None:
    mounts = V1_MOUNTS if "memory" in cgroup_file else V2_MOUNT.format(at="")
    root = tree(tmp_path, cgroup_file, mounts, {"sys/fs/cgroup/memory": {}})
    with pytest.raises(Unavailable, match="outside this namespace"):
        cgroup.locate(7, root)


def test_missing_hierarchy_or_process_is_unavailable(tmp_path: Path) -> None:
    root = tree(tmp_path, "0::/\n", "", {})
    with pytest.raises(Unavailable, match="no control group hierarchy"):
        cgroup.locate(7, root)
    with pytest.raises(Unavailable, match="has ended"):
        cgroup.locate(8, root)


def test_usage_of_this_machine_increases() -> None:
    try:
        group = cgroup.locate(os.getpid())
    except Unavailable as problem:
        pytest.skip(str(problem))
    before, reasons = cgroup.usage(group)
    sum(number * number for number in range(200_000))
    after, _ = cgroup.usage(group)
    assert {name for name, value in before.items() if value is None} == set(reasons)
    if before["cpu_usage_ns"] is not None:
        assert after["cpu_usage_ns"] > before["cpu_usage_ns"]
