from datetime import timedelta
from typing import Any

import pytest

from apps.accounts import tokens
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role
from apps.common.clock import now
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def test_a_new_token_is_shown_once_and_works(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop", "expiresInDays": 7})
    assert made.status == 201
    assert made.body["code"] == 200
    assert Api(token=made.data["token"]).get("/auth/me").data["username"] == "colleague"
    listed = colleague.get("/tokens", search="laptop").data["items"]
    assert [item["id"] for item in listed] == [made.data["id"]]
    assert "token" not in listed[0]


def test_only_a_hash_of_the_token_is_stored(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"})
    stored = ApiToken.objects.get(name="laptop")
    assert made.data["token"] not in str(vars(stored))


def test_a_revoked_token_is_refused(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    assert colleague.delete(f"/tokens/{made['id']}").status == 200
    answer = Api(token=made["token"]).get("/auth/me")
    assert (answer.status, answer.error) == (401, "TOKEN_INVALID")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_an_expired_token_is_refused(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop", "expiresInDays": 1}).data
    ApiToken.objects.filter(name="laptop").update(expiry=now() - timedelta(seconds=1))
    assert Api(token=made["token"]).get("/auth/me").status == 401


def test_the_token_of_a_deactivated_user_is_refused(colleague: Api) -> None:
    colleague.user.is_active = False
    colleague.user.save()
    assert colleague.get("/auth/me").status == 401


def test_users_neither_see_nor_revoke_tokens_of_others(owner: Api, colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    assert made["id"] not in owner.get("/tokens").ids
    assert owner.delete(f"/tokens/{made['id']}").status == 404
    assert colleague.delete(f"/tokens/{made['id'][:4]}").status == 404


def test_making_and_revoking_are_audited_without_the_secret(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    colleague.delete(f"/tokens/{made['id']}")
    events = list(AuditEvent.objects.order_by("id"))
    assert [event.action for event in events] == ["token.create", "token.revoke"]
    assert made["token"] not in str([event.data for event in events])


def test_anonymous_is_told_to_sign_in(anonymous: Api) -> None:
    for answer in (anonymous.get("/tokens"), anonymous.post("/tokens", {"name": "x"}), anonymous.delete("/tokens/x")):
        assert (answer.status, answer.error) == (401, "NOT_AUTHENTICATED")


def test_one_query_authenticates_a_token(colleague: Api, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(2):  # who is asking; the page
        assert colleague.get("/tokens").status == 200


def test_tokens_per_user_are_limited(colleague: Api, owner: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MAX_TOKENS", 2)  # one of them asks here
    assert colleague.post("/tokens", {"name": "a"}).status == 201
    assert colleague.post("/tokens", {"name": "b"}).error == "TOKENS_TOO_MANY"
    assert owner.post("/tokens", {"name": "a"}).status == 201
    ApiToken.objects.filter(name="a", user=colleague.user).update(expiry=now() - timedelta(days=1))
    assert colleague.post("/tokens", {"name": "b"}).status == 201


# Limits ---------------------------------------------------------------------------------------------------------------
def test_a_token_is_created_with_limits_and_listed_with_them(colleague: Api, project: Project) -> None:
    made = colleague.post("/tokens", {"name": "ci", "scopes": ["tasks:write", "runs:read"], "projects": [project.pk]})
    assert (made.data["scopes"], made.data["projects"], made.data["tasks"]) == (
        ["runs:read", "tasks:write"],
        [project.pk],
        None,
    )
    ci = Api(token=made.data["token"])
    assert ci.get("/training-tasks").status == 200
    assert ci.get("/secrets").status == 404
    assert ci.get("/tokens").error == "SCOPE_MISSING"
    listed = colleague.get("/tokens", search="ci").data["items"][0]
    assert (listed["scopes"], listed["lastUsedFrom"]) == (["runs:read", "tasks:write"], "127.0.0.1")
    assert listed["lastUsedAt"]


@pytest.mark.parametrize(
    ("limits", "field", "error"),
    [
        ({"scopes": ["tasks:fly"]}, "scopes", "SCOPE_UNKNOWN"),
        ({"scopes": ["any"]}, "scopes", "SCOPE_UNKNOWN"),
        ({"scopes": ["worker"]}, "scopes", "SCOPE_UNKNOWN"),
        ({"projects": ["project-two"]}, "projects", "PROJECT_UNKNOWN"),
        ({"projects": ["nowhere"]}, "projects", "PROJECT_UNKNOWN"),
        ({"tasks": ["task-nowhere"]}, "tasks", "TOKEN_TASK_UNKNOWN"),
    ],
)
def test_a_limit_that_names_nothing_of_the_user_is_refused(
    colleague: Api, other_project: Project, limits: dict, field: str, error: str
) -> None:
    refused = colleague.post("/tokens", {"name": "x", **limits})
    assert (refused.status, refused.problems) == (400, {field: error})
    assert not ApiToken.objects.filter(name="x").exists()


@pytest.mark.parametrize("limits", [{"scopes": ["x:y"] * 500}, {"projects": []}, {"tasks": ["t"] * 500}, {"scopes": 3}])
def test_limits_are_bounded(colleague: Api, limits: dict) -> None:
    assert colleague.post("/tokens", {"name": "x", **limits}).status == 400


def test_a_token_of_a_narrow_token_is_never_wider(owner: Api, project: Project, other_project: Project) -> None:
    Membership.objects.create(project=other_project, user=owner.user, role=Role.MAINTAINER)
    body = {"name": "narrow", "scopes": ["tokens:write", "tasks:read"], "projects": [project.pk], "expiresInDays": 3}
    made = owner.post("/tokens", body).data
    narrow = Api(token=made["token"])
    for wider in (
        {"scopes": ["tasks:write"]},
        {"scopes": ["runs:read"]},
        {"projects": [other_project.pk]},
        {"projects": [project.pk, other_project.pk]},
    ):
        refused = narrow.post("/tokens", {"name": "x", **wider})
        assert (refused.status, refused.error) == (403, "TOKEN_WIDER"), wider
    for days in ({}, {"expiresInDays": 300}):
        same = narrow.post("/tokens", {"name": "same", **days}).data
        assert (same["scopes"], same["projects"]) == (["tasks:read", "tokens:write"], [project.pk])
        assert same["expiresAt"] <= made["expiresAt"]
    assert narrow.post("/tokens", {"name": "less", "scopes": ["tokens:read"]}).data["projects"] == [project.pk]


def test_the_operator_limits_how_long_a_token_is_valid(colleague: Api, settings: Any) -> None:
    settings.TOKEN_MAX_DAYS = 30
    refused = colleague.post("/tokens", {"name": "x", "expiresInDays": 31})
    assert (refused.status, refused.problems) == (400, {"expiresInDays": "TOKEN_DAYS_TOO_MANY"})
    colleague.post("/tokens", {"name": "endless"})
    expiry = ApiToken.objects.get(name="endless").expiry
    assert expiry is not None
    assert expiry <= now() + timedelta(days=30)


def test_a_token_of_projects_lists_and_revokes_no_token_that_reaches_further(owner: Api, project: Project) -> None:
    wide = owner.post("/tokens", {"name": "wide"}).data
    made = owner.post("/tokens", {"name": "narrow", "projects": [project.pk]}).data
    narrow = Api(token=made["token"])
    assert narrow.get("/tokens").ids == [made["id"]]
    assert narrow.delete(f"/tokens/{wide['id']}").status == 404
    assert narrow.post("/tokens/revoke", {"ids": None}).data == {"count": 1}
    assert Api(token=wide["token"]).get("/auth/me").status == 200


def test_several_tokens_are_revoked_at_once_and_only_ones_own(colleague: Api, owner: Api) -> None:
    mine = [colleague.post("/tokens", {"name": name}).data for name in "abc"]
    other = owner.post("/tokens", {"name": "other"}).data
    ids = [mine[0]["id"], mine[1]["id"], other["id"], "0" * 16]
    assert colleague.post("/tokens/revoke", {"ids": ids}).data == {"count": 2}
    assert Api(token=mine[0]["token"]).get("/auth/me").status == 401
    assert Api(token=mine[2]["token"]).get("/auth/me").status == 200
    assert Api(token=other["token"]).get("/auth/me").status == 200
    assert AuditEvent.objects.filter(action="token.revoke").count() == 2
    assert colleague.post("/tokens/revoke", {"ids": None}).data == {"count": 2}  # with the one that asks
    assert colleague.get("/auth/me").status == 401


def test_maintainers_list_and_revoke_tokens_of_their_project_alone(
    owner: Api, colleague: Api, stranger: Api, viewer: Api, project: Project
) -> None:
    made = colleague.post("/tokens", {"name": "ci", "projects": [project.pk]}).data
    wide = colleague.post("/tokens", {"name": "wide"}).data
    path = f"/projects/{project.pk}/tokens"
    listed = owner.get(path).data["items"]
    assert [(one["id"], one["username"]) for one in listed] == [(made["id"], "colleague")]
    assert (colleague.get(path).status, viewer.get(path).status, stranger.get(path).status) == (403, 403, 404)
    assert colleague.delete(f"{path}/{made['id']}").status == 403
    assert owner.delete(f"{path}/{wide['id']}").status == 404
    assert owner.delete(f"{path}/{made['id']}").status == 200
    assert Api(token=made["token"]).get("/auth/me").status == 401
    assert AuditEvent.objects.get(action="token.revoke").data == {"user": "colleague"}


def test_administrators_list_and_revoke_all_tokens(admin: Api, owner: Api, colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    assert made["id"] in admin.get("/all-tokens", search="colleague").ids
    assert (owner.get("/all-tokens").status, owner.delete(f"/all-tokens/{made['id']}").status) == (403, 403)
    assert admin.delete("/all-tokens/x").status == 404
    assert admin.delete(f"/all-tokens/{made['id']}").status == 200
    assert Api(token=made["token"]).get("/auth/me").status == 401
