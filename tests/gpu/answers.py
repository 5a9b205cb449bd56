"""What the platform says of a task that goes wrong, and how soon: asked again and again, judged as the catalogue of
faults judges it (tests/faults/catalogue/answer.py), and logged whole."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from tests.faults.catalogue import answer
from tests.faults.catalogue.answer import NOTHING, Said
from tests.faults.catalogue.fault import Expected
from tests.gpu.context import Context, Row
from tests.gpu.platform import FINAL

AFTERWARDS = 4.0
"""Seconds after a task's end in which what is said of it may still become right."""
MOST_LOGGED = 24_000
"""Letters of a diagnosis and of a rank's log that are printed."""


def marks(script: Path) -> dict[str, int]:
    """Returns the numbers of the lines that end with a mark (`# here`), by mark."""
    lines = enumerate(script.read_text(encoding="utf-8").splitlines(), 1)
    return {found[1]: number for number, line in lines if (found := re.search(r"# (\w+)$", line))}


def moment(context: Context, task_id: str, key: str, ranks: int) -> float | None:
    """Returns when a rank said that it goes wrong (unix seconds), None where none has."""
    for rank in range(ranks):
        for line in context.log(task_id, rank).splitlines():
            if line.startswith("{") and f'"{key}"' in line:
                try:
                    return float(json.loads(line)[key])
                except (ValueError, KeyError, TypeError):
                    continue
    return None


def judge(context: Context, task_id: str, expected: Expected, script: Path, *, title: str = "", seconds: float = 45,
          within: float = 20.0, key: str = "wrong", ranks: int = 1, to_its_end: bool = True,
          marked: bool = True) -> Said:  # fmt: skip
    """Asks until the answer has what is expected, or for at most so many seconds; the check fails with what it lacks.
    Returns what was said last. `within`: seconds from when the rank went wrong to the right answer. `to_its_end`: the
    task has to end by itself, too. `marked`: the script says itself when it goes wrong."""
    began, said, lacks, right_at, over_at = time.monotonic(), NOTHING, ["any answer"], None, None
    known, name, asked = marks(script), title or script.stem, 0
    while time.monotonic() - began < seconds:
        said, asked = answer.read_diagnosis(context.platform, task_id), asked + 1
        lacks = answer.list_missing_parts(expected, said, [], known)
        if not lacks:
            right_at = time.time()
            break
        if context.platform.task(task_id)["status"] in FINAL:
            over_at = over_at or time.monotonic()
            if time.monotonic() - over_at > AFTERWARDS:
                break
        time.sleep(0.2)
    task = context.platform.task(task_id)
    while to_its_end and task["status"] not in FINAL and time.monotonic() - began < seconds:
        time.sleep(0.2)
        task = context.platform.task(task_id)
    if to_its_end and task["status"] not in FINAL:
        context.fail(f"{name}: it is still {task['status']} after {seconds:.0f} s")
    wrong_at = moment(context, task_id, key, ranks)
    context.expect(wrong_at or not marked, f"{name}: it never came to where it goes wrong")
    if right_at and wrong_at and asked > 1:  # else it was there before it was asked for
        context.figure(f"{name}: seconds to the answer", max(0.0, right_at - wrong_at), "s", most=within)
    for lack in lacks:
        context.fail(f"{name} lacks {lack}; it says {said.short[:500]}")
    context.note(f"{name}: {said.short[:260]}")
    show(context, task_id, said.whole, ranks)
    return said


def show(context: Context, task_id: str, diagnosis: Any = None, ranks: int = 1) -> None:
    """Prints all that the platform has of a task: state, reason, diagnosis, pulses, events and the ranks' logs."""
    task = context.platform.task(task_id)
    print(f"task   | {task_id}: {task['status']} attempt {task['attempt']} {json.dumps(task['reason'])}", flush=True)
    print("ranks  |", json.dumps(task["ranks"])[:3000], flush=True)
    print(
        "diagnosis |", json.dumps(diagnosis or context.platform.diagnosis(task_id), indent=1)[:MOST_LOGGED], flush=True
    )
    for text in context.platform.events(task_id):
        print("event  |", text[:600], flush=True)
    for rank in range(ranks):
        print(f"--- log of rank {rank}\n{context.log(task_id, rank)[-MOST_LOGGED // (2 * ranks) :]}", flush=True)


def alarms(diagnosis: Row) -> list[str]:
    """Returns the codes of what alarms a reader."""
    return [str(one["code"]) for one in answer.list_alarms(diagnosis)]


def stop(context: Context, task_id: str) -> Row:
    """Ends a task that still runs, and returns it."""
    if (task := context.platform.task(task_id))["status"] in FINAL:
        return task
    context.platform.api.post(f"/training-tasks/{task_id}/stop")
    return context.platform.until_final(task_id, 25)
