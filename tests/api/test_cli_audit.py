"""`fermi audit` and `fermi role-rules` against the real API over HTTP."""

import json
from pathlib import Path
from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount

from apps.accounts import audit
from apps.accounts.models import Membership, Project
from apps.common.clock import now
from apps.identity.models import IdentityProvider
from tests.api.conftest import Api, Command, make_user


def add_events(project: Project, count: int) -> None:
    for number in range(count):
        audit.record_event(None, "task.stop", f"task-{number}", project=project)


def test_events_are_shown_by_words_and_filtered(command: Command, owner: Api, project: Project) -> None:
    add_events(project, 2)
    shown = command(owner, "audit")
    assert shown.code == 0
    assert "Stopped a task" in shown.out
    assert "the platform" in shown.out
    found = json.loads(command(owner, "audit", "--target", "task-1", "-o", "json").out)["items"]
    assert [item["action"] for item in found] == ["task.stop"]
    assert json.loads(command(owner, "audit", "--until", "1h", "-o", "json").out)["items"] == []


def test_more_events_than_a_page_are_followed_by_cursor(command: Command, owner: Api, project: Project) -> None:
    add_events(project, 205)
    found = json.loads(command(owner, "audit", "--limit", "204", "-o", "json").out)["items"]
    assert len({item["id"] for item in found}) == 204


def test_an_export_is_written_to_a_file_or_to_standard_output(
    command: Command, owner: Api, project: Project, tmp_path: Path
) -> None:
    add_events(project, 3)
    written = command(owner, "audit", "--action", "task.stop", "--export", "events.jsonl")
    assert "3 events written to events.jsonl." in written.err + written.out
    lines = (tmp_path / "events.jsonl").read_text("utf-8").splitlines()
    assert [json.loads(line)["target"] for line in lines] == ["task-0", "task-1", "task-2"]
    assert command(owner, "audit", "--action", "task.stop", "--export", "-").out.splitlines() == lines
    assert command(owner, "audit", "--export", "none/events.jsonl").code == 2


def test_who_maintains_nothing_sees_nothing_of_others(command: Command, colleague: Api, project: Project) -> None:
    add_events(project, 1)
    assert json.loads(command(colleague, "audit", "-o", "json").out)["items"] == []
    assert command(colleague, "audit", "--project", project.pk).code != 0


@pytest.fixture
def rule(project: Project, tmp_path: Path) -> dict[str, Any]:
    """A rule in rule.yaml, and ada, whose last sign-in sent its group."""
    IdentityProvider.objects.create(
        id="sso", kind="openid_connect", name="Company", client_id="c", created_at=now(), updated_at=now()
    )
    claims = {"id_token": {"groups": ["ml"]}, "userinfo": {}}
    SocialAccount.objects.create(user=make_user("ada"), provider="sso", uid="ada", extra_data=claims)
    values = {"provider": "sso", "claim": "groups", "pattern": "ml", "projectId": project.pk, "role": "member"}
    (tmp_path / "rule.yaml").write_text(json.dumps(values), "utf-8")
    return values


def test_a_rule_is_previewed_applied_listed_and_deleted(command: Command, admin: Api, rule: dict[str, Any]) -> None:
    shown = command(admin, "role-rules", "preview", "rule.yaml")
    assert "one: ada: – → member" in shown.out
    assert not Membership.objects.exists()
    assert command(admin, "role-rules", "apply", "rule.yaml").code != 0  # nobody answers the question
    assert not Membership.objects.exists()
    applied = command(admin, "role-rules", "apply", "rule.yaml", "--yes", "-o", "json")
    assert applied.code == 0
    assert Membership.objects.get().user.username == "ada"
    saved = json.loads(applied.out)
    assert "one: member" in command(admin, "role-rules").out
    Path("again.yaml").write_text(json.dumps({**saved, "role": "viewer"}), "utf-8")
    assert command(admin, "role-rules", "apply", "again.yaml", "--yes").code == 0
    assert Membership.objects.get().role == "viewer"
    assert command(admin, "role-rules", "delete", saved["id"], "--yes").code == 0
    assert not Membership.objects.exists()


def test_a_file_that_is_no_rule_is_refused(command: Command, admin: Api, owner: Api, rule: dict[str, Any]) -> None:
    Path("other.yaml").write_text(json.dumps({**rule, "group": "ml"}), "utf-8")
    refused = command(admin, "role-rules", "apply", "other.yaml", "--yes")
    assert refused.code == 2
    assert "no field group" in refused.err
    assert command(admin, "role-rules", "apply").code == 2
    assert command(owner, "role-rules").code != 0
