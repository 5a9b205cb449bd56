"""Lets one fault happen, and takes the time from when it could be known until the platform's answer is right."""

import re
import sqlite3
import time
import traceback
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from tests.faults.catalogue import answer
from tests.faults.catalogue.answer import NOTHING, Said
from tests.faults.catalogue.fault import Fault, FaultRun, Healthy
from tests.faults.catalogue.lab import FaultLab
from tests.platform_process import FINAL

LONGEST = 45.0
"""An answer that comes later than so many seconds after it could be known is as good as none."""
UNTIL_KNOWABLE = 150.0
AFTERWARDS = 5.0
"""What is still not right so long after the task has ended stays so."""
AGAIN = 0.3


@dataclass(frozen=True, slots=True)
class Result:
    """`seconds`: from when it could be known to the right answer, None where none came. `lacks`: what the answer did
    not have. `note`: what went wrong in the making of it."""

    name: str
    right: bool
    seconds: float | None
    said: Said
    lacks: tuple[str, ...] = ()
    note: str = ""
    task_id: str = ""
    wall: float = 0.0
    printed: str = ""


def try_fault(fault_lab: FaultLab, name: str, part: Fault) -> Result:
    run, began = FaultRun(fault_lab, name, part), time.monotonic()
    seen, printed = Seen(run), ""
    try:
        run.set_up()
        run.start()
        if part.inject:
            part.inject(run)
        right_at = seen.until_right()
        knowable = run.knowable()
        seconds = None if right_at is None or knowable is None else max(0.0, right_at - knowable)
        if seconds is not None and part.ends:
            seen.until_it_ends(part.ends)
        note = "" if knowable else "it never went wrong"
    except Exception as error:  # the others are still played
        seconds, note = None, f"{type(error).__name__}: {error}".strip() or "?"
        if not isinstance(error, AssertionError):
            traceback.print_exc()
    finally:
        with suppress(Exception):
            printed = "".join(f"--- rank {rank}\n{run.log(rank)[-4000:]}" for rank in range(4))
        with suppress(Exception):
            run.tear_down()
    right = seconds is not None and not seen.lacks
    wall = time.monotonic() - began
    return Result(name, right, seconds, seen.said, tuple(seen.lacks), note, run.task_id, wall, printed)


class Seen:
    """What was said last, and what that lacks."""

    def __init__(self, run: FaultRun) -> None:
        assert isinstance(run.part, Fault)
        self.run, self.part = run, run.part
        self.said: Said = NOTHING
        self.lacks: list[str] = ["any answer"]
        marks = re.findall(r"# (\w+)$", self.part.script, re.MULTILINE)
        self.marks = {mark: run.line(mark) for mark in marks}

    def check(self) -> bool:
        self.said = answer.read_diagnosis(self.run.platform, self.run.task_id)
        self.lacks = answer.list_missing_parts(self.part.expected, self.said, self.run.nodes, self.marks)
        return not self.lacks

    def until_right(self) -> float | None:
        """When, in unix seconds."""
        deadline = time.time() + UNTIL_KNOWABLE
        is_over = False
        while time.time() < deadline:
            if self.check():
                return time.time()
            if knowable := self.run.knowable():
                deadline = min(deadline, knowable + LONGEST)
            if not is_over and self.run.task()["status"] in FINAL:
                is_over, deadline = True, min(deadline, time.time() + AFTERWARDS)
            time.sleep(AGAIN)
        return None

    def until_it_ends(self, states: Any) -> None:
        """It has to end as the fault says, with the right answer."""
        deadline = time.monotonic() + LONGEST
        while (status := self.run.task()["status"]) not in FINAL and time.monotonic() < deadline:
            time.sleep(AGAIN)
        if not self.check() and status == "succeeded" and not answer.list_alarms(self.said.whole):
            self._look_back()  # what went wrong is over, and has to be among what was
        if status not in states:
            self.lacks.append(f"an end as {' or '.join(states)}: it is {status}")

    def _look_back(self) -> None:
        for said in answer.list_statements(self.said.whole["findings"], self.said.whole):
            if not answer.list_missing_parts(self.part.expected, said, self.run.nodes, self.marks):
                self.said, self.lacks = said, []


def try_healthy_run(fault_lab: FaultLab, name: str, part: Healthy) -> Result:
    """Right: it succeeds in its first attempt, and nothing was ever said to be wrong with it."""
    run, began = FaultRun(fault_lab, name, part), time.monotonic()
    lacks: list[str] = []
    said, note = NOTHING, ""
    try:
        run.set_up()
        run.start()
        deadline = time.monotonic() + 300
        while (task := run.task())["status"] not in FINAL and time.monotonic() < deadline:
            said = find_alarm(run) or said
            time.sleep(2)
        said = find_alarm(run) or said
        told = list_recorded_alarms(run)
        lacks = [f"a success: {task['status']}"] * (task["status"] != "succeeded")
        lacks += ["one attempt"] * (task["attempt"] != 1)
        lacks += [f"silence: {said.code}"] * bool(said.code)
        lacks += [f"silence: {code}" for code in told]
        if lacks and not said.code:
            said = Said(text=f"{task['reason']} {run.log()[-300:]}")
    except Exception as error:
        note = f"{type(error).__name__}: {error}"
    finally:
        with suppress(Exception):
            run.tear_down()
    wall = time.monotonic() - began
    return Result(name, not lacks and not note, None, said, tuple(lacks), note, run.task_id, wall)


def find_alarm(run: FaultRun) -> Said | None:
    found = answer.read_diagnosis(run.platform, run.task_id)
    return found if answer.list_alarms(found.whole) else None


def list_recorded_alarms(run: FaultRun) -> list[str]:
    """What was ever found that would have alarmed somebody: looked up in the database, as what is over only informs."""
    database = sqlite3.connect(f"file:{run.platform.data / 'fermi.sqlite3'}?mode=ro", uri=True, timeout=30)
    with closing(database):
        found = "SELECT code FROM training_finding WHERE task_id = ? AND level != 'info'"
        return [code for (code,) in database.execute(found, [run.task_id])]
