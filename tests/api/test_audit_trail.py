"""The audit trail: filters, pages by cursor, and the export."""

import json
from datetime import timedelta

import pytest
from django.test import Client

from apps.accounts import trail
from apps.accounts.models import AuditEvent, Project
from apps.common.clock import now
from tests.api.conftest import BASE, Api

pytestmark = pytest.mark.database


def add(project: Project | None, count: int = 1, **values: object) -> None:
    given = {"action": "task.create", "target": "task-1", "data": {"name": "a"}, **values}
    AuditEvent.objects.bulk_create([AuditEvent(project=project, **given) for _ in range(count)])


def export(api: Api, **query: object) -> tuple[int, list[dict], Client]:
    span = {"begin": (now() - timedelta(days=1)).isoformat(), "end": (now() + timedelta(days=1)).isoformat()}
    headers = {"Authorization": f"Bearer {api.token}"} if api.token else {}
    answer = Client().get(f"{BASE}/audit-events/export", query_params={**span, **query}, headers=headers)
    lines = b"".join(answer.streaming_content).splitlines() if answer.streaming else []
    return answer.status_code, [json.loads(line) for line in lines], answer


def test_each_filter_finds_its_events(owner: Api, colleague: Api, project: Project) -> None:
    add(project)
    add(project, actor=colleague.user, action="member.add", target="lee", token="0123456789abcdef", address="192.0.2.7")
    for name, value in (
        ("actor", "colleague"), ("action", "member.add"), ("target", "lee"), ("token", "0123456789abcdef"),
        ("address", "192.0.2.7"), ("search", "member"),
    ):  # fmt: skip
        [found] = owner.get("/audit-events", **{name: value}).data["items"]
        assert (found["actor"], found["address"], found["token"]) == ("colleague", "192.0.2.7", "0123456789abcdef")
    assert owner.get("/audit-events", actor="nobody").data["total"] == 0
    later = (now() + timedelta(hours=1)).isoformat()
    assert owner.get("/audit-events", begin=later).data["total"] == 0
    assert owner.get("/audit-events", end=later).data["total"] == 2
    assert owner.get("/audit-events", begin="yesterday").status == 400


def test_pages_by_cursor_hold_each_event_once_while_others_come(owner: Api, project: Project) -> None:
    add(project, 7)
    seen, cursor = [], ""
    while cursor is not None:
        page = owner.get("/audit-events", cursor=cursor, pageSize=3).data
        assert page["total"] is None
        seen += [item["id"] for item in page["items"]]
        cursor = page["nextCursor"]
        add(project)
    assert len(seen) == 7
    assert seen == sorted(set(seen), reverse=True)
    assert owner.get("/audit-events", cursor="x").problems == {"cursor": "CURSOR_INVALID"}
    assert owner.get("/audit-events", cursor="9" * 19).status == 400


def test_an_export_has_all_events_of_the_span_in_order(
    owner: Api, project: Project, other_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail, "EXPORT_BATCH_ROWS", 2)
    add(project, 5)
    add(other_project)
    add(None)
    status, lines, answer = export(owner)
    assert (status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
    assert [line["project"] for line in lines] == ["project-one"] * 5
    assert [line["id"] for line in lines] == sorted(line["id"] for line in lines)
    assert lines[0]["data"] == {"name": "a"}
    event = AuditEvent.objects.get(action="audit.export")
    assert event.actor == owner.user
    assert export(owner, action="nothing.done")[1] == []


def test_an_export_is_bounded_in_time(owner: Api) -> None:
    for begin, end in ((now(), now() - timedelta(days=1)), (now() - timedelta(days=400), now())):
        answer = owner.get("/audit-events/export", begin=begin.isoformat(), end=end.isoformat())
        assert answer.problems == {"end": "EXPORT_SPAN"}
    assert owner.get("/audit-events/export").status == 400
    assert not AuditEvent.objects.exists()


def test_who_maintains_no_project_exports_nothing_of_it(
    owner: Api, colleague: Api, stranger: Api, anonymous: Api, project: Project
) -> None:
    add(project)
    add(None)
    assert export(colleague)[1] == []
    assert export(colleague, project=project.pk)[0] == 403
    assert export(stranger, project=project.pk)[0] == 404
    assert export(stranger)[1] == []
    assert export(anonymous)[0] == 401
    assert len(export(owner, project=project.pk)[1]) == 1


def test_administrators_export_also_what_belongs_to_no_project(admin: Api, project: Project) -> None:
    add(project)
    add(None)
    assert {line["project"] for line in export(admin)[1]} == {None, "project-one"}


def test_actions_have_texts_in_the_language_of_the_reader(owner: Api, project: Project) -> None:
    add(project)
    add(project, action="task.unheard-of")
    for language, text in (("en", "Created a task"), ("zh", "创建了任务")):
        headers = {"Authorization": f"Bearer {owner.token}", "Accept-Language": language}
        found = Client().get(f"{BASE}/audit-events", {"cursor": ""}, headers=headers).json()["data"]["items"]
        assert [item["actionText"] for item in found] == ["task.unheard-of", text]
        known = Client().get(f"{BASE}/audit-events/actions", headers=headers).json()["data"]["items"]
        assert {"action": "task.create", "text": text} in known


def test_only_who_is_signed_in_lists_actions(owner: Api, anonymous: Api) -> None:
    assert owner.get("/audit-events/actions").status == 200
    assert anonymous.get("/audit-events/actions").status == 401
