"""`fermi why`: one screen that says what, since when, where, and what to paste next; `fermi restart` does it."""

import json
from typing import Any

import pytest

from fermi.cli.commands import why
from fermi.diagnosis.actions import ACTIONS, ActionCode
from tests.fakes.api import FakeApi, data
from tests.unit.cli.api_responses import task
from tests.unit.cli.conftest import Command

PATH = "/training-tasks/task-1"
WHERE = {"rank": 3, "nodeRank": 1, "node": "env-b"}


def action(code: str, label: str, *, allowed: bool = True, **params: Any) -> dict[str, Any]:
    return {"code": code, "label": label, "hint": "ask them", "params": params, "allowed": allowed}


def finding(message: str, **changes: Any) -> dict[str, Any]:
    return {
        "code": "HANG", "level": "fail", "message": message, "hint": "look at the stacks", "attempt": 2,
        "since": "2026-11-21T00:00:00Z", "until": None, "where": [WHERE], "evidence": [], "actions": [],
    } | changes  # fmt: skip


def answer(*findings: dict[str, Any], healthy: bool, summary: str) -> dict[str, Any]:
    return {
        "taskId": "task-1", "status": "running", "healthy": healthy, "summary": summary, "findings": list(findings),
    }  # fmt: skip


def test_a_healthy_task_is_two_lines_and_exit_code_0(api: FakeApi, command: Command) -> None:
    api.on("GET", f"{PATH}/diagnosis", data(answer(healthy=True, summary="Training goes well: step 3.")))
    result = command("why", "task-1")
    assert (result.code, result.out) == (0, "✓ task-1  running\nTraining goes well: step 3.\n")


def test_a_finding_shows_place_evidence_and_commands(api: FakeApi, command: Command) -> None:
    lines = [f"line {number}" for number in range(20)]
    stacks = {"message": "Ranks 0-2 wait:", "lines": ["\x1b[2Jwait (train.py:3)"], "where": WHERE}
    found = answer(
        finding(
            "Rank 3 hangs.",
            evidence=[stacks, {"message": "The log:", "lines": lines, "where": WHERE}],
            actions=[
                action("WITHOUT_NODE", "Continue without env-b", nodeRank=1, node="env-b", environmentId="env-2"),
                action("SEE_LOG", "See the log", rank=3),
                action("CORDON", "Cordon env-b", nodeRank=1, node="env-b", environmentId="env-2"),
                action("STOP", "Stop the task", allowed=False),
            ],
        ),
        finding("Rank 1 failed.", level="info", attempt=1, until="2026-11-21T01:00:00Z"),
        healthy=False,
        summary="Rank 3 hangs.",
    )
    api.on("GET", f"{PATH}/diagnosis", data(found))
    result = command("why", "task-1")
    assert result.code == 1
    said = result.out.splitlines()
    assert said[:2] == ["✗ task-1  running", "Rank 3 hangs."]
    assert "attempt 2 · rank 3 env-b" in said[3]
    assert "  │ \\x1b[2Jwait (train.py:3)" in said
    assert ["  │ line 8" in said, "  │ line 7" in said, "(8 more lines: use -o json)" in " ".join(said)] == [
        True,
        False,
        True,
    ]
    assert [" ".join(line.split()) for line in said if line.startswith("  Continue") or "fermi logs" in line] == [
        "Continue without env-b fermi restart task-1 --without env-2",
        "See the log fermi logs task-1 --rank 3",
    ]
    assert "Stop the task" not in result.out
    assert said[-1].endswith("Rank 1 failed.")
    assert json.loads(command("why", "task-1", "--json").out) == found


@pytest.mark.parametrize("code", ActionCode)
def test_every_action_has_a_command_with_its_parameters(code: ActionCode) -> None:
    params = dict.fromkeys([*ACTIONS[code].needs, *ACTIONS[code].may, "environmentId"], "x y")
    said = why._suggest_command("task-1", action(code, "label", **params))  # type: ignore[arg-type]
    assert said == "ask them" if code not in why.ACTION_COMMANDS else "fermi " in said
    assert "{" not in said


def test_a_task_is_restarted_without_a_node_or_with_a_spare(api: FakeApi, command: Command) -> None:
    api.on("POST", f"{PATH}/restart", data(task()))
    assert command("restart", "task-1").out == "task-1 continues.\n"
    assert api.list_requests("POST", f"{PATH}/restart")[0].body == {"leaveOut": [], "useSpares": False}
    assert command("restart", "task-1", "--without", "a", "--replace", "b").code == 2


def test_a_failed_task_refers_to_fermi_why(api: FakeApi, command: Command) -> None:
    api.on("GET", PATH, data(task("failed")))
    assert "fermi why task-1" in command("get", "task-1").out
    api.on("GET", PATH, data(task()))
    assert "fermi why" not in command("get", "task-1").out
