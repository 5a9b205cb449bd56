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
from tests.faults.catalogue.fault import Fault, Healthy, Scene
from tests.faults.catalogue.lab import Ground
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


def fault(ground: Ground, name: str, part: Fault) -> Result:
    scene, began = Scene(ground, name, part), time.monotonic()
    seen, printed = Seen(scene), ""
    try:
        scene.set_up()
        scene.begin()
        if part.inject:
            part.inject(scene)
        right_at = seen.until_right()
        knowable = scene.knowable()
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
            printed = "".join(f"--- rank {rank}\n{scene.log(rank)[-4000:]}" for rank in range(4))
        with suppress(Exception):
            scene.end()
    right = seconds is not None and not seen.lacks
    wall = time.monotonic() - began
    return Result(name, right, seconds, seen.said, tuple(seen.lacks), note, scene.task_id, wall, printed)


class Seen:
    """What was said last, and what that lacks."""

    def __init__(self, scene: Scene) -> None:
        assert isinstance(scene.part, Fault)
        self.scene, self.part = scene, scene.part
        self.said: Said = NOTHING
        self.lacks: list[str] = ["any answer"]
        marks = re.findall(r"# (\w+)$", self.part.script, re.MULTILINE)
        self.marks = {mark: scene.line(mark) for mark in marks}

    def look(self) -> bool:
        self.said = answer.read_diagnosis(self.scene.platform, self.scene.task_id)
        self.lacks = answer.missing(self.part.expected, self.said, self.scene.nodes, self.marks)
        return not self.lacks

    def until_right(self) -> float | None:
        """When, in unix seconds."""
        deadline = time.time() + UNTIL_KNOWABLE
        is_over = False
        while time.time() < deadline:
            if self.look():
                return time.time()
            if knowable := self.scene.knowable():
                deadline = min(deadline, knowable + LONGEST)
            if not is_over and self.scene.task()["status"] in FINAL:
                is_over, deadline = True, min(deadline, time.time() + AFTERWARDS)
            time.sleep(AGAIN)
        return None

    def until_it_ends(self, states: Any) -> None:
        """It has to end as the fault says, with the right answer."""
        deadline = time.monotonic() + LONGEST
        while (status := self.scene.task()["status"]) not in FINAL and time.monotonic() < deadline:
            time.sleep(AGAIN)
        if not self.look() and status == "succeeded" and not answer.alarms(self.said.whole):
            self._look_back()  # what went wrong is over, and has to be among what was
        if status not in states:
            self.lacks.append(f"an end as {' or '.join(states)}: it is {status}")

    def _look_back(self) -> None:
        for said in answer.every(self.said.whole["findings"], self.said.whole):
            if not answer.missing(self.part.expected, said, self.scene.nodes, self.marks):
                self.said, self.lacks = said, []


def healthy(ground: Ground, name: str, part: Healthy) -> Result:
    """Right: it succeeds in its first attempt, and nothing was ever said to be wrong with it."""
    scene, began = Scene(ground, name, part), time.monotonic()
    lacks: list[str] = []
    said, note = NOTHING, ""
    try:
        scene.set_up()
        scene.begin()
        deadline = time.monotonic() + 300
        while (task := scene.task())["status"] not in FINAL and time.monotonic() < deadline:
            said = alarm(scene) or said
            time.sleep(2)
        said = alarm(scene) or said
        told = noted(scene)
        lacks = [f"a success: {task['status']}"] * (task["status"] != "succeeded")
        lacks += ["one attempt"] * (task["attempt"] != 1)
        lacks += [f"silence: {said.code}"] * bool(said.code)
        lacks += [f"silence: {code}" for code in told]
        if lacks and not said.code:
            said = Said(text=f"{task['reason']} {scene.log()[-300:]}")
    except Exception as error:
        note = f"{type(error).__name__}: {error}"
    finally:
        with suppress(Exception):
            scene.end()
    wall = time.monotonic() - began
    return Result(name, not lacks and not note, None, said, tuple(lacks), note, scene.task_id, wall)


def alarm(scene: Scene) -> Said | None:
    found = answer.read_diagnosis(scene.platform, scene.task_id)
    return found if answer.alarms(found.whole) else None


def noted(scene: Scene) -> list[str]:
    """What was ever found that would have alarmed somebody: looked up in the database, as what is over only informs."""
    database = sqlite3.connect(f"file:{scene.platform.data / 'fermi.sqlite3'}?mode=ro", uri=True, timeout=30)
    with closing(database):
        found = "SELECT code FROM training_finding WHERE task_id = ? AND level != 'info'"
        return [code for (code,) in database.execute(found, [scene.task_id])]
