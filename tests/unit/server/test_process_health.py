"""Processes that hang or were changed are replaced, and noted; real ones, with little patience."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from apps.common import disks
from fermi.runner import processes
from server import paths
from server.up import limits, process_health, watchdog
from server.up.child import ChildProcess, build_environment
from server.up.process_health import ProcessSupervision
from tests.polling import until

PART = """
import signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from server import liveness

pool, never = ThreadPoolExecutor(2, "part"), threading.Event()
liveness.answer_in_thread(pool, "part")
if sys.argv[1] == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR1, lambda *_: [pool.submit(never.wait) for _ in range(2)])
while True:
    time.sleep(60)
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    return tmp_path / "notes.json"


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ChildProcess]]:
    """A child of that name, which answers."""
    monkeypatch.setattr(process_health, "GRACE_SECONDS", 0.1)
    children: list[ChildProcess] = []

    def begin(name: str, how: str = "") -> ChildProcess:
        child = ChildProcess(name, [sys.executable, "-c", PART, how], build_environment(), is_asked=True)
        children.append(child)
        child.start()
        child.keep_running()
        until(lambda: child.line and watchdog.query_process(child.line), what="it answers")
        return child

    yield begin
    for child in children:
        child.stop()
        child.kill()


def noted(notes: Path) -> set[str]:
    return {note["code"] for note in json.loads(notes.read_text(encoding="utf-8"))} if notes.exists() else set()


def replaced(found: ProcessSupervision, child: ChildProcess) -> Callable[[], bool]:
    before = child.process

    def look() -> bool:
        found.check_children([child])
        return child.process != before and child.alive()

    return look


def test_a_process_with_blocked_threads_is_restarted(
    begin: Any, notes: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also where it does not end when it is asked to."""
    monkeypatch.setitem(watchdog.MAX_STALL_SECONDS, "web", 1.0)
    child, found = begin("web", "deaf"), ProcessSupervision(os.getpid(), notes)
    child.process.signal(signal.SIGUSR1)
    until(replaced(found, child), what="it was replaced")
    assert noted(notes) == {"PROCESS_POOL_HUNG"}
    assert "none of its threads completed work" in capfd.readouterr().out


def test_a_stopped_process_is_noted_while_it_is_stopped(begin: Any, notes: Path) -> None:
    child, found = begin("web"), ProcessSupervision(os.getpid(), notes)
    before = child.process
    before.signal(signal.SIGSTOP)

    def look() -> set[str]:
        found.check_children([child])
        return noted(notes)

    until(look, what="it is noted")
    assert noted(notes) == {"PROCESS_STOPPED"}
    before.signal(signal.SIGCONT)
    until(lambda: not look(), what="it is forgotten")
    assert child.process == before
    assert child.alive()


def nice(pid: int) -> None:
    before = os.getpriority(os.PRIO_PROCESS, pid)
    if before == 19:
        pytest.skip("these tests run with the highest niceness")
    os.setpriority(os.PRIO_PROCESS, pid, before + 1)


def idle(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))


def few_files(pid: int) -> None:
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (8, resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]))


def one_thread(pid: int) -> None:
    """Not the main one."""
    nice(max(map(int, os.listdir(f"/proc/{pid}/task"))))


@pytest.mark.parametrize(
    ("change", "name"),
    [(nice, "nice = "), (idle, "policy = SCHED_IDLE"), (few_files, "RLIMIT_NOFILE = 8:"), (one_thread, "nice = ")],
)
def test_a_process_with_changed_limits_is_restarted(
    begin: Any, notes: Path, change: Callable[[int], None], name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    child, found = begin("watch"), ProcessSupervision(os.getpid(), notes)
    found.check_children([child])
    assert noted(notes) == set()
    change(child.process.pid)
    until(replaced(found, child), what="it was replaced")
    [note] = json.loads(notes.read_text(encoding="utf-8"))
    assert (note["code"], note["params"]["process"]) == ("PROCESS_CHANGED", "watch")
    assert name in note["params"]["what"]
    assert "were changed from outside" in capfd.readouterr().out


def test_a_process_changed_again_is_named_and_not_restarted_at_once(begin: Any, notes: Path) -> None:
    child, found = begin("watch"), ProcessSupervision(os.getpid(), notes)
    nice(child.process.pid)
    until(replaced(found, child), what="it was replaced")
    second = child.process
    nice(second.pid)
    for _ in range(5):
        found.check_children([child])
    assert child.process == second
    assert child.alive()


def test_changes_that_affect_the_whole_machine_are_ignored() -> None:
    start = {"processors": "0-7", "nice": "0", "RLIMIT_NOFILE": "1024:4096", "RLIMIT_AS": "-1:-1"}
    narrowed = {**start, "processors": "0-3"}
    assert limits.find_changes(narrowed, [start, narrowed]) == {}
    assert limits.find_changes(start, [start, narrowed]) == {}
    assert limits.find_changes({**start, "processors": "0"}, [start, narrowed]) == {"processors": ("0", "0-7")}


def test_limits_may_be_raised_and_not_lowered() -> None:
    start = {"RLIMIT_NOFILE": "1024:4096", "RLIMIT_AS": "-1:-1"}
    assert limits.find_changes({**start, "RLIMIT_NOFILE": "4096:4096"}, [start]) == {}
    assert limits.find_changes({**start, "RLIMIT_NOFILE": "1023:4096"}, [start]).keys() == {"RLIMIT_NOFILE"}
    assert limits.find_changes({**start, "RLIMIT_AS": "1000:-1"}, [start]).keys() == {"RLIMIT_AS"}


def test_a_child_has_our_attributes() -> None:
    """Whatever the system makes of input and output, which it tells in several ways."""
    program = "import threading, time; [threading.Thread(target=time.sleep, args=(600,)).start() for _ in range(3)]; "
    program += "open('/proc/self/status').read(); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        assert (
            limits.find_changes(limits.read_process_settings(process.pid), [limits.read_process_settings(os.getpid())])
            == {}
        )
        process.kill()
    until(lambda: processes.read_start_time(process.pid) is None)
    assert limits.read_process_settings(process.pid) == {}


def test_readyz_shows_the_notes(
    client: Client, settings: Any, tmp_path: Path, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})  # whatever this machine has
    settings.DATA_DIR = tmp_path
    notes = paths.get_notes_path(paths.get_run_dir(tmp_path))
    notes.parent.mkdir()
    note = {"code": "PROCESS_STOPPED", "params": {"process": "web", "pid": 7, "seconds": 0}, "at": 1}
    notes.write_text(json.dumps([note]))
    [shown] = client.get("/readyz", headers={"Accept-Language": "en"}).json()["warnings"]
    assert shown == {**note, "message": "web (pid 7) is suspended by SIGSTOP or a debugger and does no work."}
    notes.write_text("{")
    assert client.get("/readyz").json()["warnings"] == []


def test_a_hanging_kept_child_is_not_waited_for_at_shutdown(begin: Any) -> None:
    child = begin("web", "deaf")
    child.replace(3600)
    child.stop()
    child.kill()
    assert not child.alive()
