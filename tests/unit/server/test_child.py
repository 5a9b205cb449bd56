"""Children are started again when they die, and never once they were stopped."""

import sys
import threading
from pathlib import Path

import pytest

from server.up import child as module
from server.up.child import ChildProcess, build_environment, describe_exit
from tests.polling import until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_dead_child_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (0.01,))
    child = ChildProcess("web", SLEEP, build_environment())
    child.start()
    child.keep_running()
    first = child.process
    assert first
    child.kill()
    try:
        until(lambda: child.process != first and child.alive(), what="a new process lives")
    finally:
        child.stop()
        child.kill()
    assert not child.alive()


def test_the_pause_grows_while_a_child_keeps_dying(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    enough = threading.Event()

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0)
            if len(pauses) == 4:
                child.stop()
                enough.set()
            return False

    child = ChildProcess("worker", [sys.executable, "-c", "raise SystemExit(3)"], build_environment())
    child._wake = Pause()
    child.start()
    child.keep_running()
    assert enough.wait(60)
    assert pauses == [0.5, 1, 2, 4]


def test_a_stopped_child_is_not_restarted() -> None:
    child = ChildProcess("web", SLEEP, build_environment())
    child.start()
    child.keep_running()
    child.stop()
    until(lambda: not child.alive(), what="it ended")
    ended = child.process
    child.start()
    assert child.process == ended
    assert not child.alive()


def test_a_restarted_child_starts_without_a_pause_or_warning(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (3600,))
    child = ChildProcess("web", SLEEP, build_environment())
    child.start()
    child.keep_running()
    try:
        for _ in range(2):
            old = child.process
            child.restart()
            until(lambda old=old: child.process != old and child.alive(), what="a new process lives")
    finally:
        child.stop()
        child.kill()
    assert capfd.readouterr().out == ""


def test_a_restart_ends_the_pause_of_a_child_that_keeps_dying(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "BACKOFF_SECONDS", (3600,))
    script = tmp_path / "part.py"
    script.write_text("a mistake\n")
    child = ChildProcess("web", [sys.executable, script], build_environment())
    child.start()
    child.keep_running()
    shown = ""

    def complained() -> bool:
        nonlocal shown
        shown += capfd.readouterr().out
        return "starting it again in 3600 s" in shown

    try:
        until(complained, what="the pause began")
        script.write_text("import time; time.sleep(600)\n")
        child.restart()
        until(child.alive, what="it lives")
    finally:
        child.stop()
        child.kill()


def test_a_child_that_ignores_the_request_is_killed() -> None:
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    child = ChildProcess("web", [sys.executable, "-c", code], build_environment())
    child.start()
    child.stop()
    child.kill()
    assert not child.alive()


def test_lines_are_prefixed_with_their_process(capfd: pytest.CaptureFixture[str]) -> None:
    code = "print('one'); print('noise!'); print('two')"
    child = ChildProcess("beat", [sys.executable, "-c", code], build_environment(), lambda line: "noise" not in line)
    child.start()
    until(lambda: not child.alive(), what="it ended")
    child.drain()
    assert capfd.readouterr().out == "beat   | one\nbeat   | two\n"


def test_an_exit_is_described() -> None:
    assert describe_exit(3) == "ended with code 3"
    assert describe_exit(-9) == "was killed by SIGKILL"


def test_children_can_import_the_projects_packages(tmp_path: Path) -> None:
    assert build_environment(FERMI_DATA=str(tmp_path))["FERMI_DATA"] == str(tmp_path)
    assert build_environment()["PYTHONPATH"].endswith("/platform")
