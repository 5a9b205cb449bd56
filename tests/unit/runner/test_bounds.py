"""What a task may use of its machine: its node's runner ends it with a cause, and nobody else."""

import os
import re
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.engines import failure_cause
from fermi.jobs import bounds
from fermi.jobs.causes import BOUND_CODES, CAUSES
from fermi.planning import checks, plugins
from fermi.runner import cgroups, disk_space, disk_usage, processes
from tests.disks import small_disk
from tests.goldens import job
from tests.unit.runner.test_node import cause, run

ORDER: dict[str, Any] = {
    "processes": 4096, "open_files": 1 << 20, "memory": False, "disk": None, "reserve": 0, "control_group": False
}  # fmt: skip


def ordered(**changed: Any) -> dict[str, Any]:
    return {**ORDER, **changed}


def text(found: dict[str, Any] | None) -> str:
    assert found is not None
    made = failure_cause.build_runner_cause(found, {"nodeRank": 0, "node": "gn5"})
    assert made is not None
    for lang in ("en", "zh"):
        message, hint = messages.render_text(made.code, lang, **made.params)
        assert message
        assert hint
    return messages.render_text(made.code, "en", **made.params)[0]


FORKS = """
if rank == 1:
    ready()
    signal.pause()
until("ready-1")
for number in range(400):
    if os.fork() == 0:
        how = number % 4
        if how == 0:
            os.setsid()              # in a session of its own
        if how == 1 and os.fork():
            os._exit(0)              # an orphan
        if how == 2:
            os._exit(0)              # dead, and nobody waits for it
        signal.pause()
sys.exit(7)
"""


def test_a_fork_bomb_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    """The script ends itself after 400 forks, should nobody else do it. What another task does meanwhile goes on."""
    for name in ("bomb", "other"):
        (tmp_path / name).mkdir()
    other: list[dict[str, Any]] = []
    patient = "ready()\nuntil('end')"
    beside = threading.Thread(target=lambda: other.extend(run(tmp_path / "other", patient, 1)))
    beside.start()
    try:
        ranks = run(tmp_path / "bomb", FORKS, 2, name="task-bomb-1", bounds=ordered(processes=100))
    finally:
        (tmp_path / "other" / "end").touch()
        beside.join()
    found = cause(tmp_path / "bomb")
    assert found is not None, ranks
    assert (found["code"], found["rank"]) == ("PROCESS_BOUND_REACHED", 0)
    assert found["processes"] >= 100
    assert all(rank["asked"] or rank["exit_code"] == 7 for rank in ranks), "a busy machine may let it come to its end"
    marked = f"HERE={tmp_path / 'bomb'}".encode()
    assert [pid for pid, _ in processes.list_living_processes() if marked in environment(pid)] == []
    assert [rank["exit_code"] for rank in other] == [0]
    assert text(found).startswith(f"task-bomb was terminated: it had {found['processes']} processes")


LEAVES = """
if rank == 1:
    ready()
    signal.pause()
until("ready-1")
runner, own = os.getppid(), os.getpid()
os.kill(runner, signal.SIGSTOP)  # it counts once this rank has ended, and not before
for number in range(120):
    if os.fork() == 0:
        while number == 0 and pathlib.Path(f"/proc/{own}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)
        if number == 0:
            os.kill(runner, signal.SIGCONT)
        signal.pause()
sys.exit(7)
"""


def test_processes_left_by_an_ended_rank_still_count(tmp_path: Path) -> None:
    run(tmp_path, LEAVES, 2, name="task-bomb-1", bounds=ordered(processes=100))
    found = cause(tmp_path)
    assert found is not None
    assert (found["code"], found["rank"]) == ("PROCESS_BOUND_REACHED", 0)


def environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def test_a_task_with_too_many_open_files_is_ended(tmp_path: Path) -> None:
    script = """
import resource
assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == 600, "of each process, too"
for number in range(4):
    if os.fork() == 0:
        kept = [open("/dev/null") for _ in range(200)]
        signal.pause()
time.sleep(60)
sys.exit(7)
"""
    run(tmp_path, script, 1, name="task-x-1", bounds=ordered(open_files=600))
    found = cause(tmp_path)
    assert found is not None
    assert (found["code"], found["rank"], found["fileBound"]) == ("OPEN_FILE_BOUND_REACHED", 0, 600)
    assert "open files" in text(found)


def test_a_task_that_uses_too_much_memory_is_ended(tmp_path: Path) -> None:
    script = """
if rank == 1:
    data = []
    for _ in range(40):
        data.append(b"x" * (10 << 20))
        time.sleep(0.02)
time.sleep(60)
sys.exit(7)
"""
    run(tmp_path, script, 2, name="task-x-1", bounds=ordered(memory=200 << 20))
    found = cause(tmp_path)
    assert found is not None
    assert (found["code"], found["rank"], found["bound"]) == ("MEMORY_BOUND_REACHED", 1, "200 MiB")
    assert "those of rank 1 the most" in text(found)


def test_shared_pages_count_once(tmp_path: Path) -> None:
    """Ranks that are forked from one process share what it has imported: five children have 100 MiB together here."""
    script = """
data = b"x" * (100 << 20)
for _ in range(5):
    if os.fork() == 0:
        ready()
        signal.pause()
until("ready-0")
sys.exit(5)
"""
    [rank] = run(tmp_path, script, 1, bounds=ordered(memory=300 << 20))  # it is counted once a rank has failed
    assert (rank["exit_code"], cause(tmp_path)) == (5, None)


def test_the_oom_killer_prefers_ranks_to_runner_and_platform(tmp_path: Path) -> None:
    script = """
def score(pid):
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text())
if os.fork() == 0:
    (here / "child").write_text(str(score("self")))
    os._exit(0)
os.wait()
(here / "scores").write_text(f"{score('self')} {score(os.getppid())}")
"""
    run(tmp_path, script, 1)
    rank, runner = map(int, (tmp_path / "scores").read_text("utf-8").split())
    own = int(Path("/proc/self/oom_score_adj").read_text("utf-8"))
    assert (rank > runner or runner == 1000, runner) == (True, own)
    assert int((tmp_path / "child").read_text("utf-8")) == rank


# --- disks ---


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as found:
        yield found


WRITES = """
out = pathlib.Path(os.environ["FERMI_OUTPUT_DIR"])
out.mkdir(exist_ok=True)
ready()
for number in range(200):
    with open(out / f"{number}.bin", "wb") as file:
        file.write(b"x" * (1 << 19))
    time.sleep(0.05)
time.sleep(60)
sys.exit(7)
"""


def test_a_task_that_fills_a_disk_is_ended_before_the_platform_fails(disk: Path) -> None:
    """A database of the platform's lies there, and another task trains there."""
    database = sqlite3.connect(disk / "platform.sqlite3", isolation_level=None)
    database.execute("CREATE TABLE lines (text)")
    for name in ("filler", "other"):
        (disk / name).mkdir()
    other: list[dict[str, Any]] = []
    steady = """
until_end = here / "end"
while not until_end.exists():
    print("step")
    time.sleep(0.05)
"""
    limits = {"bounds": ordered(reserve=0.5)}
    beside = threading.Thread(
        target=lambda: other.extend(run(disk / "other", steady, 1, name="task-other-1", **limits))
    )
    beside.start()
    env = {"HERE": str(disk / "filler"), "FERMI_OUTPUT_DIR": str(disk / "filler" / "outputs")}
    filler = threading.Thread(
        target=lambda: run(disk / "filler", WRITES, 1, name="task-filler-1", env=env, **limits)
    )  # fmt: skip
    filler.start()
    try:
        while filler.is_alive():
            database.execute("INSERT INTO lines VALUES ('still there')")
            filler.join(0.05)
    finally:
        (disk / "other" / "end").touch()
        beside.join()
        filler.join()
    found = cause(disk / "filler")
    assert found is not None
    assert (found["code"], found["totalMiB"]) == ("DISK_RESERVE_REACHED", 64)
    assert 0 < found["freeMiB"] <= found["reserveMiB"] == 32
    assert re.match(r"task-filler was terminated: it wrote [34]\d(\.\d)? MiB within \d+ s to the disk of ", text(found))
    assert (cause(disk / "other"), [rank["exit_code"] for rank in other]) == (None, [0])
    database.execute("INSERT INTO lines VALUES ('and still')")
    database.close()


def test_no_task_starts_on_a_disk_with_only_reserved_space(disk: Path) -> None:
    (disk / "full").write_bytes(b"x" * (40 << 20))
    [rank] = run(disk, "ready()", 1, bounds=ordered(reserve=0.5), grace_seconds=0)
    assert (rank["state"], rank["pid"]) == ("waiting", None)
    found = cause(disk)
    assert found is not None
    assert (found["code"], found["path"], found["reserveMiB"]) == ("DISK_WITHOUT_ROOM", str(disk), 32)
    assert "No rank was started on gn5" in text(found)


def test_a_task_over_its_disk_limit_is_ended(tmp_path: Path) -> None:
    env = {"HERE": str(tmp_path), "FERMI_OUTPUT_DIR": str(tmp_path / "outputs")}
    run(tmp_path, WRITES, 1, name="task-x-1", env=env, bounds=ordered(disk=8 << 20))
    found = cause(tmp_path)
    assert found is not None
    assert (found["code"], found["bound"]) == ("DISK_BOUND_REACHED", "8 MiB")
    assert "the bound is 8 MiB" in text(found)


def test_a_task_that_wrote_nothing_is_not_ended_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it sees itself: of the reserve, a half and a quarter are left when it looks."""
    size = {"one": 0, "two": 50 << 20}
    free = [100 << 20]
    monkeypatch.setattr(disk_usage, "_read_disk", lambda folder: (free[0], 200 << 20))
    monkeypatch.setattr(disk_usage, "_find_outermost", list)
    monkeypatch.setattr(disk_usage, "_measure_folders", lambda folders: size[folders[0]])
    monkeypatch.setattr(disk_usage, "_count_written_bytes", lambda: 0)
    tasks = {name: disk_usage.DiskMonitor(ordered(reserve=0.2), f"task-{name}-1", [name]) for name in size}

    def looks() -> dict[str, bool]:
        return {name: task.check() is not None for name, task in tasks.items()}

    assert looks() == {"one": False, "two": False}
    size["one"], size["two"], free[0] = 61 << 20, 54 << 20, 35 << 20
    assert looks() == {"one": True, "two": False}
    free[0] = 15 << 20
    assert looks()["two"] is False
    free[0] = 9 << 20
    assert looks()["two"] is True, "it wrote lately, and next to nothing is left"


def test_files_written_elsewhere_count_once_half_of_the_reserve_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, written = [100 << 20], [0]
    monkeypatch.setattr(disk_usage, "_read_disk", lambda folder: (free[0], 200 << 20))
    monkeypatch.setattr(disk_usage, "_find_outermost", list)
    monkeypatch.setattr(disk_usage, "_measure_folders", lambda folders: 0)
    monkeypatch.setattr(disk_usage, "_count_written_bytes", lambda: written[0])
    task = disk_usage.DiskMonitor(ordered(reserve=0.2), "task-x-1", ["one"])
    seen = []
    for left, wrote in ((100, 1), (38, 60), (30, 68), (19, 79)):
        free[0], written[0] = left << 20, wrote << 20
        seen.append(task.check())
    assert seen[:3] == [None] * 3
    assert seen[3] is not None
    assert (seen[3]["code"], seen[3]["wrote"]) == ("DISK_RESERVE_REACHED", "19 MiB")


# --- control groups ---


def test_a_control_group_limits_memory_where_possible(tmp_path: Path) -> None:
    name = f"fermi-test-{os.getpid()}-1"
    probe = f"""
import sys
from fermi.runner import cgroups
group = cgroups.join_group("{name}", {{"memory": 96 << 20}})
if group is None:
    sys.exit(3)
group.leave()
"""
    if subprocess.run([sys.executable, "-c", probe], check=False).returncode:
        pytest.skip("no control group (version 2) with the memory controller can be made here")
    eats = "data = [b'x' * (8 << 20) for _ in range(60)]\ntime.sleep(60)\nsys.exit(7)"
    [rank] = run(tmp_path, eats, 1, name=name, bounds=ordered(memory=96 << 20, control_group=True))
    assert rank["kill"] is not None
    assert (rank["exit_code"], rank["kill"]["by"], rank["kill"]["scope"]) == (-9, "memory", "cgroup")
    assert rank["kill"]["limit"] == 96 << 20
    assert cause(tmp_path) is None


def test_a_hierarchy_without_controllers_gives_no_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where version 1 has the controllers."""
    monkeypatch.setattr(cgroups, "_find_mount", lambda: (str(tmp_path), "/"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (tmp_path / "cgroup.subtree_control").write_text("")
    assert cgroups.join_group("task-x-1", {"pids": 64}) is None
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [], "nothing is left behind"
    monkeypatch.setattr(cgroups, "_find_mount", lambda: ("", ""))
    assert cgroups.join_group("task-x-1", {"pids": 64}) is None
    assert not cgroups.divide_own_group()


# --- what is ordered, and what is said ---


def test_sizes_are_rendered_in_three_digits() -> None:
    sizes = (0, 999, 1000, 41.2 * (1 << 30), 5 << 40)
    assert [disk_space.format_bytes(size) for size in sizes] == ["0 B", "999 B", "0.977 KiB", "41.2 GiB", "5 TiB"]


def test_each_engine_passes_bounds_from_its_connection() -> None:
    asked = {"bounds": {"processes": 64, "openFiles": 100, "memoryGb": 1.5, "diskGb": 2, "reservePercent": 10}}
    for engine in plugins.BACKENDS:
        assert checks.find_connection_problems(engine, asked) == [], engine
        found = checks.find_connection_problems(engine, {"bounds": {"processes": 0, "disc": 1}})
        assert {problem.code for problem in found} == {"CONNECTION_INVALID", "CONNECTION_KEY_UNKNOWN"}, engine
    assert bounds.build_bounds(asked, shared=True)["bounds"] == {
        "processes": 64, "open_files": 100, "memory": 1536 << 20, "disk": 2 << 30, "reserve": 0.1,
        "control_group": True,
    }  # fmt: skip
    assert bounds.build_bounds({}, shared=False)["bounds"]["memory"] is False


def test_the_kubelet_limits_a_pods_disk() -> None:
    spec = job("env-001")
    plan = plugins.get_framework(spec.framework).plan(spec)
    rendered = plugins.get_backend("kubernetes", {"data_dir": "/fermi", "bounds": {"diskGb": 40}}).render(spec, plan)
    pods = [one.content["spec"]["template"]["spec"] for one in rendered.artifacts if one.kind == "Job"]
    assert pods[0]["containers"][0]["resources"]["limits"]["ephemeral-storage"] == "40Gi"
    assert {"name": "fermi-run", "emptyDir": {"sizeLimit": "40Gi"}} in pods[0]["volumes"]


def test_each_bound_has_its_cause() -> None:
    assert set(BOUND_CODES) <= failure_cause.RUNNER_CAUSES
    assert set(BOUND_CODES) <= CAUSES.keys()
    assert [code for code in sorted(BOUND_CODES) if CAUSES[code].retry] == [
        "DISK_RESERVE_REACHED", "DISK_WITHOUT_ROOM", "MEMORY_BOUND_REACHED"
    ]  # fmt: skip
