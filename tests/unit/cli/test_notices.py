"""The inbox, channels and rules in a terminal."""

import io
import json
from typing import Any

import pytest

from tests.fakes.api import FakeApi, data
from tests.unit.cli.conftest import Command

ITEM = {
    "id": "incident-1", "kind": "task_failed", "level": "fail", "projectId": "project-1", "title": "Task gpt failed",
    "body": "Rank 3 ended with 1.", "path": "/training/task-1", "times": 1, "openedAt": "2026-11-23T00:00:00Z",
    "updatedAt": "2026-11-23T00:00:00Z", "overAt": None, "at": "2026-11-23T00:00:00Z", "readAt": None,
}  # fmt: skip
CHANNEL: dict[str, Any] = {
    "id": "channel-1", "name": "ops", "scope": "me", "projectId": None, "kind": "webhook",
    "address": "https://hooks.example.org/…", "language": "en", "enabled": True, "failures": 0, "restsUntil": None,
    "createdAt": "2026-11-23T00:00:00Z", "createdBy": "ann", "lastSentAt": None,
}  # fmt: skip
DELIVERY: dict[str, Any] = {
    "id": "delivery-1", "incidentId": None, "what": "test", "title": "Fermi: a test message", "outcome": "sent",
    "createdAt": "2026-11-23T00:00:00Z", "dueAt": None, "endedAt": "2026-11-23T00:00:01Z",
    "tries": [{"at": "2026-11-23T00:00:00Z", "seconds": 0.1, "answer": "200 ok", "error": None}],
}  # fmt: skip
RULE = {
    "id": "rule-1", "name": "nights", "scope": "me", "projectId": None, "channels": ["channel-1"], "kinds": [],
    "level": "warn", "restarts": None, "waitsSeconds": 1800, "quietFrom": 1320, "quietTo": 420, "timezone": "UTC",
    "breaksThrough": "fail", "enabled": True, "createdAt": "2026-11-23T00:00:00Z",
}  # fmt: skip


def listing(*items: Any) -> Any:
    return data({"items": [*items], "total": len(items), "page": 1, "pageSize": 100})


def test_the_inbox_is_listed_and_read(api: FakeApi, command: Command) -> None:
    api.on("GET", "/inbox", listing(ITEM))
    api.on("POST", "/inbox/read", data({"unread": 0}))
    said = command("notices", "--unread")
    assert "Task gpt failed" in said.out
    assert api.list_requests("GET", "/inbox")[0].query["unread"] == "true"
    assert command("notices", "read", "incident-1").out.strip() == "Unread: 0"
    assert command("notices", "read", lang="zh").out.strip() == "未读：0"
    assert [each.body for each in api.list_requests("POST", "/inbox/read")] == [{"ids": ["incident-1"]}, {"ids": None}]


def test_a_channel_takes_its_address_from_standard_input_and_shows_its_secret_once(
    api: FakeApi, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("POST", "/notice-channels", data({**CHANNEL, "secret": "fermi_whsec_1"}, 201))
    monkeypatch.setattr("sys.stdin", io.StringIO("https://hooks.example.org/secret\n"))
    said = command("channels", "add", "ops")
    assert "fermi_whsec_1" in said.out + said.err
    assert api.list_requests("POST", "/notice-channels")[0].body == {
        "name": "ops", "kind": "webhook", "address": "https://hooks.example.org/secret", "scope": "me",
    }  # fmt: skip
    command("channels", "add", "mail", "--address", "mailto://smtp.example.org?to=a@b.cc", "--platform")
    assert api.list_requests("POST", "/notice-channels")[1].body["kind"] == "apprise"
    assert api.list_requests("POST", "/notice-channels")[1].body["scope"] == "platform"
    assert command("channels", "add", "x", "--address", "y", "--platform", "--project", "p").code == 2
    assert command("channels", "add").code == 2


def test_a_test_message_that_does_not_arrive_fails(api: FakeApi, command: Command) -> None:
    error = {"code": "CHANNEL_AWAY", "message": "The message could not be sent: refused"}
    failed = {**DELIVERY, "outcome": "failed", "tries": [{**DELIVERY["tries"][0], "error": error}]}
    api.on("GET", "/notice-channels", listing(CHANNEL))
    api.on("POST", "/notice-channels/channel-1/test", data(DELIVERY), data(failed))
    assert command("channels", "test", "ops").code == 0
    said = command("channels", "test", "ops")
    assert said.code == 1
    assert "could not be sent" in said.out
    api.on("GET", "/notice-channels/channel-1/deliveries", listing(DELIVERY))
    assert "200 ok" in command("channels", "log", "ops").out
    api.on("DELETE", "/notice-channels/channel-1", data(None))
    assert command("channels", "remove", "ops").code == 0
    assert json.loads(command("channels", "-o", "json").out)["items"][0]["id"] == "channel-1"


def test_a_rule_has_events_channel_and_times(api: FakeApi, command: Command) -> None:
    api.on("GET", "/notice-channels", listing(CHANNEL))
    api.on("POST", "/notice-rules", data(RULE, 201))
    api.on("GET", "/notice-rules", listing(RULE))
    api.on("DELETE", "/notice-rules/rule-1", data(None))
    arguments = ("--channel", "ops", "--level", "warn", "--waits", "30", "--quiet", "22:00-7:00", "--timezone", "UTC")
    assert command("notice-rules", "add", "nights", *arguments).code == 0
    assert api.list_requests("POST", "/notice-rules")[0].body == {
        "name": "nights", "channels": ["channel-1"], "kinds": [], "level": "warn", "restarts": None,
        "waitsSeconds": 1800, "quietFrom": 1320, "quietTo": 420, "timezone": "UTC", "scope": "me",
    }  # fmt: skip
    for wrong in ("22", "25:00-7:00", "22:00-", "a:b-c:d"):
        assert command("notice-rules", "add", "nights", "--quiet", wrong).code == 2
    assert "nights" in command("notice-rules").out
    assert command("notice-rules", "remove", "nights").code == 0
    assert command("notice-rules", "remove").code == 2
