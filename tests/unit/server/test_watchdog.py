"""Who does not answer is replaced; who could not, or only takes long, is not."""

from collections.abc import Iterator

import pytest

from server.up import watchdog
from server.up.watchdog import MAX_SILENCE_SECONDS, ProcessSample, Watchdog, WatchdogVerdict

LOOK = 5.0
WEB = watchdog.MAX_STALL_SECONDS["web"]


def looks(dog: Watchdog, *, answer: bytes | None = None, state: str = "S", waits: float = 0.0) -> Iterator[str]:
    """Verdicts of looks one after the other: each time the same is answered, and the process has waited for a processor
    for so many seconds of the five."""
    waited = 0.0
    while True:
        verdict = dog.check(LOOK, answer, ProcessSample(state, {1: 0.0, 2: waited}))
        yield verdict.code if verdict else ""
        waited += waits


def after(seconds: float, found: Iterator[str]) -> str:
    """The first verdict of that time."""
    return next((code for code, _ in zip(found, range(int(seconds / LOOK)), strict=False) if code), "")


def lively(dog: Watchdog) -> Watchdog:
    for number in range(3):
        assert dog.check(LOOK, b"%d 0" % number, ProcessSample("S", {1: 0.0, 2: 0.0})) is None
    return dog


def test_an_unresponsive_process_hangs() -> None:
    assert after(MAX_SILENCE_SECONDS, looks(lively(Watchdog(WEB)))) == ""
    assert after(MAX_SILENCE_SECONDS + 2 * LOOK, looks(lively(Watchdog(WEB)))) == "PROCESS_HUNG"


def test_a_process_waiting_for_a_cpu_gets_more_time() -> None:
    """With thirty times the work that the machine can do it has a thirtieth of the time."""
    dog = lively(Watchdog(WEB))
    assert after(15 * MAX_SILENCE_SECONDS, looks(dog, waits=LOOK * 29 / 30)) == ""


def test_a_late_answer_resets_the_timer() -> None:
    dog = lively(Watchdog(WEB))
    for number in range(20):
        assert after(MAX_SILENCE_SECONDS - LOOK, looks(dog)) == ""
        assert dog.check(LOOK, b"%d 1" % number, ProcessSample("S", {1: 0.0})) is None


def test_a_starting_process_is_waited_for() -> None:
    assert after(100 * MAX_SILENCE_SECONDS, looks(Watchdog(WEB))) == ""


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_process_is_named_and_not_restarted(state: str) -> None:
    dog = lively(Watchdog(WEB))
    assert after(100 * MAX_SILENCE_SECONDS, looks(dog, state=state)) == "PROCESS_STOPPED"
    assert dog.check(LOOK, None, ProcessSample(state, {1: 0.0})) == WatchdogVerdict("PROCESS_STOPPED", ends=False)
    assert dog.check(LOOK, None, ProcessSample("S", {1: 0.0})) is None


def test_a_process_waiting_for_a_disk_is_not_restarted() -> None:
    assert after(100 * MAX_SILENCE_SECONDS, looks(lively(Watchdog(WEB)), state="D")) == ""


def test_without_process_statistics_nothing_is_judged() -> None:
    dog = lively(Watchdog(WEB))
    assert not any(dog.check(LOOK, None, ProcessSample("S", None)) for _ in range(1000))


def test_a_blocked_pool_hangs_although_its_process_answers() -> None:
    assert after(WEB, looks(lively(Watchdog(WEB)), answer=b"7 0")) == ""
    assert after(WEB + 3 * LOOK, looks(lively(Watchdog(WEB)), answer=b"7 0")) == "PROCESS_POOL_HUNG"


def test_a_working_pool_does_not_hang() -> None:
    dog = lively(Watchdog(WEB))
    for number in range(100):
        assert dog.check(LOOK, b"7 %d" % number, ProcessSample("S", {1: 0.0})) is None
