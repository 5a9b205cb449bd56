"""A node runner that watches its ranks, as a process: what it says of those that hang, work, and fail."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from fermi.runner import files
from tests.polling import until
from tests.unit.runner.test_node import run

WORKS = """
def work():
    ends = time.monotonic() + 0.02
    while time.monotonic() < ends:
        pass
    time.sleep(0.01)
"""
SEVERAL = f"""
import itertools, signal, threading
{WORKS}
def load_batch():
    time.sleep(600)
def evaluate():
    while True:
        work()
def prepare():
    if os.fork() == 0:
        evaluate()
    os.wait()
def train():
    for number in itertools.count():
        time.sleep(0.2)
        print("line", number, flush=True)
def retry():
    while True:
        time.sleep(0.2)
        print(time.strftime("%Y-%m-%d %H:%M:%S"), "the server does not answer", flush=True)
def lock():
    threading.Event().wait()
def poll():
    while True:
        threading.Event().wait(0.5)
def load():
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    threading.Event().wait()
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
def launch():
    child = os.fork() or poll()
    os.waitpid(child, 0)
def launch_still():
    child = os.fork() or time.sleep(600)
    os.waitpid(child, 0)
[load_batch, evaluate, prepare, train, retry, lock, poll, load, stop, launch, launch_still][rank]()
"""


def entries(folder: Path) -> list[dict[str, Any]]:
    status = files.read_json(str(folder / "node-0.status.json")) or {"ranks": []}
    return list(status["ranks"])


def line_of(folder: Path, text: str) -> int:
    lines = (folder / "script.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def watched(
    folder: Path, script: str, ranks: int, over: Callable[[], Any], **spec: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The ranks' entries and pulses as soon as `over` finds something, and then the end."""
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run, folder, script, ranks, **{"pulse": True, "hang_seconds": 1.0, **spec})
        try:
            until(over, what="what the ranks do is seen")
            return entries(folder), files.read_json(str(folder / "node-0.pulse.json"))["pulse"]
        finally:
            files.write_json_atomically(str(folder / "stop.json"), {"grace_seconds": 0})
            ended.result()


def test_hanging_ranks_differ_from_computing_waiting_and_printing_ones(tmp_path: Path) -> None:
    before = time.time()

    def looked_at_twice() -> bool:
        return sum((one["stalled"] or {}).get("looks", 0) >= 2 for one in entries(tmp_path)) == 10

    told, pulses = watched(tmp_path, SEVERAL, 11, looked_at_twice)
    hangs, computes, waits, prints, repeats, locked, polls, loads, stopped, quiet, dead = (
        one["stalled"] for one in told
    )
    assert [hangs["still"], computes["still"], waits["still"], prints] == [True, False, False, None]
    assert [quiet["still"], dead["still"]] == [False, True], "a launcher is as its children are"
    assert [one["children"] for one in (hangs, computes, waits, locked, polls, quiet, dead)] == [
        False, False, True, False, False, True, False,
    ]  # fmt: skip
    assert repeats["at"].endswith("in retry"), "a line that is said again and again is no progress"
    assert [stopped["stopped"]["signal"], stopped["still"], stopped["state"]] == ["SIGSTOP", False, "T"]
    assert [one["stopped"] for one in (hangs, computes, locked)] == [None] * 3
    if os.path.exists("/proc/self/syscall"):  # as kernels for containers may be built without
        assert [one["locked"] for one in (hangs, locked, polls, loads)] == [False, True, False, False]
        assert [one["timed"] for one in (hangs, locked, polls, loads)] == [True, False, True, True]
    assert [one["moves"] for one in (hangs, locked, polls, repeats)] == [False, False, True, True]
    line = line_of(tmp_path, "time.sleep(600)")
    assert hangs["at"] == f"script.py:{line} in load_batch"
    assert hangs["stack"][0] == f"load_batch (script.py:{line})"
    assert hangs["in"] == ""
    assert before < hangs["since"] < hangs["looked_at"] - 1.0
    assert waits["at"].endswith("in prepare")
    assert computes["cpu"] > hangs["cpu"]
    assert pulses[3]["printed_at"] > before
    assert pulses[0]["printed_at"] is None
    assert all(one["rss_bytes"] > 1 << 20 and one["phase"] == "starting" for one in pulses)


def test_a_rank_that_continues_is_no_longer_stalled(tmp_path: Path) -> None:
    script = """
until("go")
print("on", flush=True)
time.sleep(600)
"""
    seen = []

    def stalled_and_over() -> bool:
        for one in entries(tmp_path):
            seen.append(one["stalled"])
        if any(seen):
            (tmp_path / "go").touch()
        return any(seen) and not seen[-1]

    watched(tmp_path, script, 1, stalled_and_over)


def test_an_exception_ends_a_rank_that_hangs_in_its_teardown(tmp_path: Path) -> None:
    script = """
import threading
if rank == 0:
    threading.Thread(target=threading.Event().wait).start()
    raise ValueError("bad shape (4, 7)")
threading.Event().wait()
"""
    failed, other = run(tmp_path, script, 2, pulse=True, hang_seconds=1.0)
    assert (failed["exit_code"], failed["asked"]) == (1, False)
    error = failed["error"]
    assert (error["type"], error["message"], error["file"]) == ("ValueError", "bad shape (4, 7)", "script.py")
    assert (error["line"], error["function"]) == (line_of(tmp_path, "raise"), "<module>")
    assert error["at"] < failed["ended_at"] - 3.0
    assert (other["asked"], other["error"]) == (True, None)


def test_without_a_probe_nothing_is_inspected(tmp_path: Path) -> None:
    [rank] = run(tmp_path, "print(os.environ.get('FERMI_PULSE'), flush=True); raise ValueError('bad')", 1)
    assert (rank["exit_code"], rank["error"], rank["stalled"]) == (1, None, None)
    assert (tmp_path / "0.log").read_text().startswith("None\n")
    assert not os.path.exists(tmp_path / "node-0.pulse.json")
