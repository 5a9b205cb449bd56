"""Service accounts of a project: who makes them, what they may do, and that nobody signs in as one."""

import pytest
from django.test import Client

from apps.accounts import services
from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, Role, User
from tests.api.conftest import Api, make_user

pytestmark = pytest.mark.database

PATH = "/projects/project-one/service-accounts"


def make_account(owner: Api, name: str = "ci", role: str = "member") -> Api:
    """Make a service account, and return the API with a token of it."""
    assert owner.post(PATH, {"name": name, "role": role}).status == 201
    return Api(token=owner.post(f"{PATH}/{name}/tokens", {"name": "pipeline"}).data["token"])


def test_a_maintainer_makes_an_account_and_its_token(owner: Api, project: Project) -> None:
    account = make_account(owner)
    me = account.get("/auth/me").data
    assert (me["username"], [one["role"] for one in me["projects"]]) == ("ci@project-one", ["member"])
    listed = owner.get(PATH).data["items"]
    assert [(one["name"], one["role"], one["tokens"]) for one in listed] == [("ci", "member", 1)]
    token = owner.get("/projects/project-one/tokens").data["items"][0]
    assert (token["username"], token["projects"], token["name"]) == ("ci@project-one", [project.pk], "pipeline")
    assert ApiToken.objects.get(name="pipeline").created_by == owner.user
    assert account.get("/training-tasks").status == 200
    assert account.post("/projects/project-one/members", {"username": "owner"}).status == 403


def test_only_maintainers_of_the_project_manage_accounts(
    owner: Api, colleague: Api, viewer: Api, stranger: Api, anonymous: Api
) -> None:
    make_account(owner)
    for who, status in ((colleague, 403), (viewer, 403), (stranger, 404), (anonymous, 401)):
        assert who.get(PATH).status == status
        assert who.post(PATH, {"name": "x"}).status == status
        assert who.patch(f"{PATH}/ci", {"role": "viewer"}).status == status
        assert who.post(f"{PATH}/ci/tokens", {"name": "x"}).status == status
        assert who.delete(f"{PATH}/ci").status == status


def test_a_role_is_changed_at_once(owner: Api) -> None:
    account = make_account(owner)
    assert owner.patch(f"{PATH}/ci", {"role": "viewer"}).status == 200
    assert account.get("/auth/me").data["projects"][0]["role"] == "viewer"
    assert owner.patch(f"{PATH}/nobody", {"role": "viewer"}).status == 404
    assert owner.patch(f"{PATH}/ci", {"role": "administrator"}).status == 400


def test_a_service_account_changes_the_role_of_none(owner: Api) -> None:
    account = make_account(owner, "boss", "maintainer")
    make_account(owner)
    for name in ("boss", "ci"):
        assert account.patch(f"{PATH}/{name}", {"role": "viewer"}).status == 403
        assert account.patch(f"/projects/project-one/members/{name}@project-one", {"role": "viewer"}).status == 404
    assert not AuditEvent.objects.filter(action="member.change").exists()


def test_nobody_signs_in_as_a_service_account(owner: Api) -> None:
    make_account(owner)
    user = User.objects.get(username="ci@project-one")
    assert not user.has_usable_password()
    assert services.redeem_sign_in_link(services.create_sign_in_link(user).rpartition("/")[2]) is None
    body = {"username": user.username, "password": ""}
    for password in ("", "!", user.password):
        answer = Client().post(
            "/_allauth/browser/v1/auth/login", {**body, "password": password}, content_type="application/json"
        )
        assert answer.status_code in (400, 401)


def test_a_service_account_makes_no_tokens(owner: Api) -> None:
    account = make_account(owner, role="maintainer")
    assert account.post("/tokens", {"name": "own"}).status == 403
    assert account.post(f"{PATH}/ci/tokens", {"name": "own"}).status == 403
    assert account.post(PATH, {"name": "other"}).status == 403


def test_its_token_is_never_wider_than_the_one_that_makes_it(owner: Api) -> None:
    make_account(owner)
    scopes = ["tokens:write", "tasks:read"]
    narrow = Api(token=owner.post("/tokens", {"name": "narrow", "scopes": scopes}).data["token"])
    assert narrow.post(f"{PATH}/ci/tokens", {"name": "x", "scopes": ["tasks:write"]}).error == "TOKEN_WIDER"
    assert narrow.post(f"{PATH}/ci/tokens", {"name": "x"}).data["scopes"] == sorted(scopes)


def test_a_deleted_account_has_no_access_and_its_name_stays(owner: Api) -> None:
    account = make_account(owner)
    assert owner.delete(f"{PATH}/ci").status == 200
    assert account.get("/auth/me").status == 401
    assert owner.get(PATH).data["items"] == []
    assert User.objects.filter(username="ci@project-one", is_active=False).exists()
    assert owner.delete(f"{PATH}/ci").status == 404
    assert AuditEvent.objects.filter(action="service-account.delete", target="ci@project-one").exists()
    make_account(owner)
    assert account.get("/auth/me").status == 401
    assert User.objects.filter(username__startswith="ci@").count() == 1


def test_an_account_belongs_to_one_project_alone(owner: Api, stranger: Api, project: Project) -> None:
    account = make_account(owner)
    refused = stranger.post("/projects/project-two/members", {"username": "ci@project-one"})
    assert (refused.status, refused.problems) == (400, {"username": "USER_UNKNOWN"})
    Membership.objects.create(project_id="project-two", user=User.objects.get(username="ci@project-one"))
    assert [one["id"] for one in account.get("/auth/me").data["projects"]] == [project.pk]


def test_names_are_unambiguous(owner: Api, project: Project) -> None:
    make_account(owner)
    assert owner.post(PATH, {"name": "ci"}).problems == {"name": "SERVICE_ACCOUNT_TAKEN"}
    make_user("bot@project-one", project, Role.VIEWER)
    assert owner.post(PATH, {"name": "bot"}).problems == {"name": "SERVICE_ACCOUNT_TAKEN"}
    for name in ("", "a@b", "A", "-a", "a-", "a/b", "x" * 41):
        assert owner.post(PATH, {"name": name}).status == 400, name


def test_a_project_is_deleted_with_its_service_accounts(owner: Api, admin: Api) -> None:
    account = make_account(owner)
    assert admin.delete("/projects/project-one").status == 200
    assert account.get("/auth/me").status == 401
    assert not User.objects.get(username="ci@project-one").is_active
