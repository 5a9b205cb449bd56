"""`fermi diff`: what differs between two runs, within 80 columns."""

import json
from typing import Any

from tests.fakes.api import FakeApi, data
from tests.unit.cli.conftest import Command


def run(name: str, task: str) -> dict[str, str]:
    return {"taskId": task, "taskName": name, "status": "succeeded", "createdAt": "2026-11-28T10:00:00Z"}


def difference(kind: str, weight: int, message: str) -> dict[str, Any]:
    return {
        "kind": kind, "name": "", "left": "a", "right": "b", "weight": weight, "code": "X", "message": message,
        "hint": "",
    }  # fmt: skip


CURVE = {
    "metric": "loss", "verdict": "parted", "basis": "own", "sisters": 0, "points": 400, "step": 200, "left": 2.0,
    "right": 2.5, "margin": 0.1, "identicalUntil": None, "code": "X", "message": "loss parts at step 200",
    "hint": "Run one of them again with another seed.",
}  # fmt: skip
NOTHING = {
    "left": run("first", "task-1"), "right": run("second", "task-2"), "differences": [], "leftOut": 0, "curves": [],
    "files": [], "filesLeftOut": 0, "gaps": [],
}  # fmt: skip


def answer(api: FakeApi, **changed: Any) -> None:
    api.on("GET", "/runs/differences", data({**NOTHING, **changed}))


def test_differences_are_lines_with_their_weight_as_a_mark(api: FakeApi, command: Command) -> None:
    file = {"path": "train.py", "change": "changed", "diff": "--- a\n+++ b\n@@ -1 +1 @@\n-LR = 1\n+LR = 2\n"}
    answer(
        api, curves=[CURVE], files=[{**file, "binary": False, "cut": False}],
        differences=[difference("code", 95, "Code: train.py"), difference("time", 8, "Time: 1 % \x1b[2J")],
        gaps=[{"code": "X", "message": "No packages of first", "hint": ""}],
    )  # fmt: skip
    found = command("diff", "task-1", "task-2")
    assert found.code == 0
    assert [line for line in found.out.splitlines() if line] == [
        "first  task-1  succeeded", "second  task-2  succeeded", "● Code: train.py", "· Time: 1 % \\x1b[2J",
        "Curves", "loss parts at step 200", "  Run one of them again with another seed.", "Code", "--- a", "+++ b",
        "@@ -1 +1 @@", "-LR = 1", "+LR = 2", "No packages of first",
    ]  # fmt: skip


def test_a_long_code_difference_is_cut_unless_all_of_it_is_requested(api: FakeApi, command: Command) -> None:
    text = "".join(f"+line {n}\n" for n in range(100))
    files = [{"path": "a.py", "change": "added", "diff": text, "binary": False, "cut": False},
             {"path": "b.bin", "change": "removed", "diff": "", "binary": True, "cut": False}]  # fmt: skip
    answer(api, files=files)
    assert command("diff", "task-1", "task-2").out.splitlines()[-1] == "… 61 more lines: --code"
    answer(api, files=files)
    assert command("diff", "task-1", "task-2", "--code").out.splitlines()[-2:] == ["+line 99", "removed: b.bin"]


def test_runs_that_do_not_differ_are_said_not_to(api: FakeApi, command: Command) -> None:
    answer(api, leftOut=0)
    assert "Nothing differs of what is known." in command("diff", "task-1", "task-2").out


def test_scripts_get_json(api: FakeApi, command: Command) -> None:
    answer(api)
    assert json.loads(command("diff", "task-1", "task-2", "--json").out) == NOTHING
