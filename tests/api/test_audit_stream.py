"""Who may read where the audit trail is sent to."""

from typing import Any

import pytest

from apps.accounts import audit
from apps.audit_stream import delivery
from tests.api.conftest import Api


@pytest.fixture(autouse=True)
def receiver(settings: Any) -> None:
    settings.AUDIT_SYSLOG = "tls://logs.example.org:6514"
    settings.AUDIT_WEBHOOK = "https://user:word@hooks.example.org/path?key=secret"


def test_administrators_see_how_far_each_receiver_is_and_no_secret(admin: Api) -> None:
    for name in ("syslog", "webhook"):
        delivery.get_receiver(name)
    audit.record_event(None, "task.create", "task-1")
    answer = admin.get("/audit-stream")
    syslog, webhook = answer.data["receivers"]
    assert (syslog["name"], syslog["address"]) == ("syslog", "tls://logs.example.org:6514")
    assert (webhook["name"], webhook["address"]) == ("webhook", "https://hooks.example.org")
    assert syslog["eventsBehind"] == webhook["eventsBehind"] == 1
    assert "secret" not in str(answer.body)
    assert "word" not in str(answer.body)


def test_a_receiver_that_no_pass_has_served_yet_is_listed(admin: Api) -> None:
    assert [one["position"] for one in admin.get("/audit-stream").data["receivers"]] == [None, None]


def test_others_are_refused(owner: Api, stranger: Api, anonymous: Api) -> None:
    assert owner.get("/audit-stream").status == 403
    assert stranger.get("/audit-stream").status == 403
    assert anonymous.get("/audit-stream").status == 401
