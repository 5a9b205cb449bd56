"""What a node and its ranks use, read from trees that say what a kernel would, and from this machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fermi.telemetry import metrics
from fermi.telemetry.aggregation import SampleAggregator, aggregate_samples
from fermi.telemetry.node import NodeReader
from fermi.telemetry.proc_files import CounterRates, ProcFiles
from fermi.telemetry.ranks import RankReader
from fermi.telemetry.sampler import TelemetrySampler

STAT = "cpu  {user} 0 {system} {idle} {wait} 0 0 0 0 0\ncpu0 1 1 1 1\nintr 1 2 3\n"
NET = """Inter-|   Receive                          |  Transmit
 face |bytes    packets errs drop (and so on) |bytes    packets (and so on)
    lo: {lo}       0    0    0    0     0          0         0 {lo}       0    0    0    0     0       0          0
  eth0: {rx}       0    0    0    0     0          0         0 {tx}       0    0    0    0     0       0          0
veth12: 5       0    0    0    0     0          0         0 5       0    0    0    0     0       0          0
"""


def write(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    write(tmp_path, "/proc/stat", STAT.format(user=1000, system=500, idle=8000, wait=500))
    write(tmp_path, "/proc/loadavg", "3.25 2.00 1.00 2/500 4711\n")
    write(tmp_path, "/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 400 kB\n")
    write(tmp_path, "/proc/net/dev", NET.format(lo=10, rx=1000, tx=2000))
    write(tmp_path, "/proc/self/cgroup", "0::/\n")
    write(tmp_path, "/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data", "100\n")
    write(tmp_path, "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data", "200\n")
    return tmp_path


def look_twice(tree: Path, seconds: float, **changes: str) -> dict[str, float]:
    rates = CounterRates()
    node = NodeReader(ProcFiles(str(tree)), rates)
    node.read_values(100.0)
    rates.turn()
    for path, text in changes.items():
        write(tree, path, text)
    return node.read_values(100.0 + seconds)


def test_counters_become_rates_between_two_samples(tree: Path) -> None:
    ticks, processors = os.sysconf("SC_CLK_TCK"), os.cpu_count() or 1
    busy = processors * ticks  # one second of all processors
    found = look_twice(tree, 2.0, **{
        "/proc/stat": STAT.format(user=1000 + busy, system=500, idle=8000, wait=900),
        "/proc/net/dev": NET.format(lo=999, rx=3000, tx=2500),
        "/sys/class/infiniband/mlx5_0/ports/1/counters/port_rcv_data": "350\n",
    })  # fmt: skip
    assert found["cpu"] == pytest.approx(50.0)  # one of two seconds; waiting for a disk is no work
    assert (found["received:eth0"], found["sent:eth0"]) == (1000.0, 250.0)
    assert found["received:mlx5_0/1"] == 500.0  # words of four bytes
    assert found["load"] == 3.25
    assert (found["memory"], found["memory_total"]) == (600 << 10, 1000 << 10)
    assert not any(key.endswith((":lo", ":veth12")) for key in found)


def test_a_first_sample_and_a_reset_counter_have_no_rate(tree: Path) -> None:
    found = look_twice(tree, 5.0, **{"/proc/net/dev": NET.format(lo=0, rx=10, tx=2500)})
    assert "received:eth0" not in found
    assert "sent:eth0" in found
    assert "cpu" not in NodeReader(ProcFiles(str(tree)), CounterRates()).read_values(1.0)


def test_a_list_in_several_pages_is_read_completely() -> None:
    files = ProcFiles()
    text = files.read("/proc/self/maps")
    files.close()
    assert len(text) > 2 * os.sysconf("SC_PAGE_SIZE")
    assert b"[stack]" in text


def test_a_container_has_the_tightest_limits_of_its_groups(tree: Path) -> None:
    groups = "/sys/fs/cgroup"
    write(tree, "/proc/self/cgroup", "0::/pods/one\n")
    write(tree, f"{groups}/pods/one/cpu.max", "max 100000\n")
    write(tree, f"{groups}/pods/one/memory.max", "8192\n")
    write(tree, f"{groups}/pods/one/memory.current", "5000\n")
    write(tree, f"{groups}/pods/one/memory.stat", "anon 1\ninactive_file 1000\n")
    write(tree, f"{groups}/pods/cpu.max", "400000 100000\n")
    write(tree, f"{groups}/pods/cpu.stat", "usage_usec 1000000\n")
    write(tree, f"{groups}/pods/memory.max", "max\n")
    found = look_twice(tree, 10.0, **{f"{groups}/pods/cpu.stat": "usage_usec 21000000\n"})
    assert found["cpu"] == pytest.approx(50.0)  # 20 of the 40 seconds of four processors
    assert (found["memory"], found["memory_total"]) == (4000, 8192)


def test_unreadable_files_give_no_values(tmp_path: Path) -> None:
    known = NodeReader(ProcFiles(str(tmp_path)), CounterRates(), ["/nowhere"]).read_values(1.0)
    assert known == {}
    assert RankReader(ProcFiles(str(tmp_path)), CounterRates()).read_values({0: 1}, 1.0) == {}


@pytest.mark.parametrize("text", ["", "cpu", "garbage\n\n\0", "cpu  1 2\n"])
def test_a_truncated_file_never_raises(tree: Path, text: str) -> None:
    for path in ("/proc/stat", "/proc/loadavg", "/proc/meminfo", "/proc/net/dev", "/proc/self/cgroup"):
        write(tree, path, text)
    NodeReader(ProcFiles(str(tree)), CounterRates(), [str(tree)]).read_values(1.0)


SPINS = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "b = bytearray(40 << 20); b[::4096] = bytes(len(b) // 4096); input()"],
                         stdin=subprocess.PIPE)
print("ready", flush=True)
while True: sum(range(10000))
"""


def test_a_rank_includes_its_descendants() -> None:
    with subprocess.Popen([sys.executable, "-c", SPINS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            sampler = TelemetrySampler(["/"], visible="")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("utf-8").split()
            while sampler.sample({3: process.pid}, {3: 1})["values"].get("rank_memory:3", 0) < 40 << 20:
                pass  # until the child has its memory
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass
            told = sampler.sample({3: process.pid}, {3: 1})
            sampler.close()
        finally:
            process.kill()
    assert len(children) == 1
    values = told["values"]
    assert told["emulated"] is True
    assert values["rank_cpu:3"] > 0
    assert values["gpu:1"] == min(100.0, values["rank_cpu:3"])
    assert {"cpu", "load", "memory", "shm", "rank_read:3", "rank_written:3"} <= values.keys()
    assert all(metrics.parse_key(key) for key in values)


def test_samples_are_aggregated_by_metric() -> None:
    first = {"at": 15.0, "values": {"cpu": 10, "ecc:0": 1, "throttled:0": 1, "xid:0": 31, "memory_total": 5}}
    second = {"at": 20.0, "values": {"cpu": 20, "ecc:0": 2, "throttled:0": 4, "xid:0": 79, "received:eth0": 7}}
    third = {"at": 30.0, "values": {"cpu": 99}}
    folding = SampleAggregator()
    assert folding.add(first) is folding.add(second) is None
    told = folding.add(third)
    assert told == {
        "at": 20.0,
        "values": {"cpu": 15.0, "ecc:0": 3, "throttled:0": 5.0, "xid:0": 79, "memory_total": 5, "received:eth0": 7.0},
    }
    assert folding.rest() == aggregate_samples([third])
    assert folding.rest() is None


@pytest.mark.parametrize(("key", "known"), [
    ("cpu", ("cpu", "")), ("gpu:3", ("gpu", "3")), ("received:mlx5_0/1", ("received", "mlx5_0/1")),
    ("cpu:1", None), ("gpu", None), ("gpu:", None), ("nonsense", None), ("disk_used:" + 65 * "x", None),
])  # fmt: skip
def test_a_key_has_a_metric_and_its_object(key: str, known: tuple[str, str] | None) -> None:
    assert metrics.parse_key(key) == known
