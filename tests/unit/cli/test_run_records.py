"""`fermi tag`, `fermi note` and `fermi archive`, and tags of a submitted task."""

import json
from typing import Any

import click
import pytest

from tests.fakes.api import FakeApi, data
from tests.unit.cli.conftest import Command


def answer(*tasks: str, refused: str = "") -> Any:
    reason = {"code": "NOT_FOUND", "message": "Not found.", "hint": "Look again."}
    items = [
        {"taskId": task, "done": task != refused, "refusal": reason if task == refused else None} for task in tasks
    ]
    return data({"items": items, "done": sum(one["done"] for one in items)})


def list_bodies(api: FakeApi) -> list[Any]:
    return [request.body for request in api.list_requests("POST", "/runs/bulk")]


def test_words_with_a_sign_add_and_remove_tags(api: FakeApi, command: Command) -> None:
    api.on("POST", "/runs/bulk", answer("task-1", "task-2"))
    result = command("tag", "task-1", "task-2", "+wiki v2", "-old", "+b", "-f")
    assert (result.code, result.out) == (0, "task-1: done.\ntask-2: done.\n")
    tasks = ["task-1", "task-2"]
    assert list_bodies(api) == [
        {"taskIds": tasks, "action": "addTags", "tags": ["wiki v2", "b"]},
        {"taskIds": tasks, "action": "removeTags", "tags": ["old", "f"]},
    ]


def test_options_of_the_command_are_no_tags(api: FakeApi, command: Command) -> None:
    api.on("POST", "/runs/bulk", answer("task-1"))
    result = command("tag", "task-1", "-draft", "-o", "json")
    assert json.loads(result.out)["items"][0]["done"]
    assert [body["tags"] for body in list_bodies(api)] == [["draft"]]
    command("tag", "task-1", "--", "-o")
    assert list_bodies(api)[-1]["tags"] == ["o"]


def test_a_refused_task_is_named_and_the_exit_code_is_1(api: FakeApi, command: Command) -> None:
    api.on("POST", "/runs/bulk", answer("task-1", "task-2", refused="task-2"))
    result = command("tag", "task-1", "task-2", "+a")
    assert result.code == 1
    assert "task-2: Not found. Look again." in result.out


def test_tags_are_printed_without_a_sign(api: FakeApi, command: Command) -> None:
    api.on("GET", "/training-tasks/task-1", data({"taskId": "task-1", "taskName": "t", "tags": ["a", "b"]}))
    assert "a, b" in command("tag", "task-1").out
    assert json.loads(command("tag", "task-1", "-o", "json").out)["items"] == [{"taskId": "task-1", "tags": ["a", "b"]}]
    assert command("tag", "+a").code == 2


def test_more_than_a_thousand_tasks_go_in_several_requests(api: FakeApi, command: Command) -> None:
    api.on("POST", "/runs/bulk", answer("task-1"))
    command("archive", *(f"task-{number}" for number in range(1001)))
    assert [len(body["taskIds"]) for body in list_bodies(api)] == [1000, 1]
    command("archive", "task-1", "--undo")
    assert list_bodies(api)[-1] == {"taskIds": ["task-1"], "action": "unarchive"}


def test_a_note_is_printed_stored_and_edited(api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    api.on("GET", "/training-tasks/task-1", data({"taskId": "task-1", "note": "# Before"}))
    record: dict[str, Any] = {"taskId": "task-1", "tags": [], "note": "x", "archivedAt": None}
    api.on("PATCH", "/runs/task-1", data(record))
    assert command("note", "task-1").out == "# Before\n"
    command("note", "task-1", "two words")
    monkeypatch.setattr(click, "edit", lambda text, extension: f"{text}, edited")
    command("note", "task-1", "--edit")
    monkeypatch.setattr(click, "edit", lambda text, extension: None)
    assert "not changed" in command("note", "task-1", "--edit").err
    sent = [request.body for request in api.list_requests("PATCH", "/runs/task-1")]
    assert sent == [{"note": "two words"}, {"note": "# Before, edited"}]
