"""The scope that each operation states, and what narrow tokens may do."""

import json
import re
from pathlib import Path

import pytest
from django.urls import URLResolver, get_resolver
from rest_framework.views import APIView

from apps.accounts import scopes
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role
from tests.api.conftest import Api

pytestmark = pytest.mark.database

DOCUMENT = Path(__file__).parents[2] / "docs" / "openapi.json"
METHODS = ("get", "post", "put", "patch", "delete")


def list_operations() -> list[tuple[str, str, dict]]:
    """Return path, method and document of each operation of the API."""
    paths = json.loads(DOCUMENT.read_text("utf-8"))["paths"]
    return [(path, method, one) for path, of in paths.items() for method, one in of.items() if method in METHODS]


def test_each_operation_states_a_known_scope() -> None:
    for path, method, one in list_operations():
        assert one.get("x-scope") in scopes.OPERATION_SCOPES, f"{method} {path}"


def test_each_method_of_each_view_of_the_api_states_a_scope() -> None:
    """What has no `@operation`, and so no scope, is not in the document either, and would be found by nobody."""
    missing = []

    def walk(patterns: list, prefix: str) -> None:
        for one in patterns:
            if isinstance(one, URLResolver):
                walk(one.url_patterns, prefix + str(one.pattern))
            elif issubclass(view := getattr(one.callback, "view_class", object), APIView):
                missing.extend(
                    f"{method} {prefix}{one.pattern}"
                    for method in METHODS
                    if hasattr(view, method) and not hasattr(getattr(view, method), "scope")
                )

    walk(get_resolver().url_patterns, "")
    without = {"get api/v1/schema", "get api/v1/docs", "get metrics"}  # open to all, or to administrators alone
    assert {one for one in missing if not re.match(r"[a-z]+ (mlflow|tensorboard-feed)/", one)} == without


def narrow(api: Api, **columns: object) -> None:
    """Narrow the token that `api` uses."""
    assert api.user
    ApiToken.objects.filter(user=api.user).update(**columns)


def test_a_token_of_scopes_is_refused_outside_of_them(owner: Api, project: Project) -> None:
    narrow(owner, scopes=["projects:read"])
    assert owner.get("/projects").ids == [project.pk]
    refused = owner.patch(f"/projects/{project.pk}", {"name": "other"})
    assert (refused.status, refused.error) == (403, "SCOPE_MISSING")
    assert "projects:write" in refused.body["message"]
    assert owner.get("/training-tasks").error == "SCOPE_MISSING"
    assert owner.get("/auth/me").status == 200


def test_write_contains_read_of_the_same_resource(owner: Api, project: Project) -> None:
    narrow(owner, scopes=["projects:write"])
    assert owner.get("/projects").status == 200
    assert owner.patch(f"/projects/{project.pk}", {"name": "other"}).status == 200


def test_a_token_without_a_single_scope_may_do_what_is_open_to_all(owner: Api) -> None:
    narrow(owner, scopes=[])
    assert owner.get("/auth/me").status == 200
    assert owner.get("/projects").error == "SCOPE_MISSING"


def test_other_projects_do_not_exist_for_a_token_of_projects(
    owner: Api, project: Project, other_project: Project
) -> None:
    assert owner.user
    Membership.objects.create(project=other_project, user=owner.user, role=Role.MAINTAINER)
    narrow(owner, projects=[other_project.pk])
    assert owner.get("/projects").ids == [other_project.pk]
    assert [one["id"] for one in owner.get("/auth/me").data["projects"]] == [other_project.pk]
    assert owner.get(f"/projects/{project.pk}").status == 404
    assert owner.patch(f"/projects/{project.pk}/", {"name": "x"}).status == 404
    assert owner.get(f"/projects/{other_project.pk}").data["role"] == Role.MAINTAINER


def test_a_token_of_projects_has_no_role_that_its_user_has_lost(owner: Api, project: Project) -> None:
    narrow(owner, projects=[project.pk])
    Membership.objects.filter(user=owner.user).delete()
    assert owner.get("/projects").ids == []
    assert owner.get(f"/projects/{project.pk}").status == 404


def test_an_administrators_token_of_projects_is_a_maintainers_there_and_nobody_elsewhere(
    admin: Api, project: Project, other_project: Project
) -> None:
    narrow(admin, projects=[project.pk])
    assert admin.get("/projects").ids == [project.pk]
    assert admin.get(f"/projects/{other_project.pk}").status == 404
    assert admin.get(f"/projects/{project.pk}").data["role"] == Role.MAINTAINER
    assert admin.post("/projects", {"name": "new"}).status == 403
    assert admin.get("/auth/me").data["isAdministrator"] is False


def test_a_token_of_tasks_reaches_no_other_task_and_no_list(owner: Api, project: Project) -> None:
    narrow(owner, tasks=["task-one"])
    assert owner.get("/training-tasks/task-one").status == 404  # it does not exist, but may be asked for
    refused = owner.get("/training-tasks/task-two")
    assert (refused.status, refused.error) == (403, "TOKEN_TASK_OTHER")
    assert owner.get("/training-tasks").error == "TOKEN_TASK_OTHER"
    assert owner.get("/projects").error == "TOKEN_TASK_OTHER"


def test_the_audit_trail_names_the_token_and_the_address(owner: Api, project: Project) -> None:
    owner.patch(f"/projects/{project.pk}", {"name": "other"})
    event = AuditEvent.objects.get(action="project.rename")
    token = ApiToken.objects.get(user=owner.user)
    assert (event.token, event.token_name, event.address) == (token.digest[:16], "tests", "127.0.0.1")


def test_the_last_use_of_a_token_is_known_to_the_minute(owner: Api) -> None:
    narrow(owner, last_used_at=None)
    owner.get("/auth/me")
    token = ApiToken.objects.get(user=owner.user)
    assert token.last_used_from == "127.0.0.1"
    before = token.last_used_at
    owner.get("/auth/me")
    assert ApiToken.objects.get(user=owner.user).last_used_at == before


@pytest.mark.parametrize("page", ["tokens.md", "zh/tokens.md"])
def test_the_page_on_tokens_lists_each_scope_once_in_order(page: str) -> None:
    text = (DOCUMENT.parent / page).read_text("utf-8")
    assert re.findall(r"^\| `([a-z]+:[a-z]+)` \|", text, re.MULTILINE) == list(scopes.SCOPES)
