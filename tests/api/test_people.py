"""Accounts of people, as administrators manage them."""

import pytest
from allauth.mfa.models import Authenticator
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Project, User
from apps.accounts.people import change_person
from apps.common.errors import ApiError
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def test_administrators_see_who_there_is_and_what_each_one_may_do(admin: Api, owner: Api, colleague: Api) -> None:
    Authenticator.objects.create(user=owner.user, type=Authenticator.Type.TOTP, data={})
    found = {item["username"]: item for item in admin.get("/people").data["items"]}
    assert set(found) == {"admin", "owner", "colleague"}
    assert found["owner"]["projects"] == [
        {"id": "project-one", "name": "one", "role": "maintainer", "source": "person"}
    ]
    assert (found["owner"]["hasSecondFactor"], found["colleague"]["hasSecondFactor"]) == (True, False)
    assert (found["owner"]["hasPassword"], found["admin"]["hasPassword"]) == (True, False)
    assert admin.get("/people", search="COLL").data["total"] == 1
    assert [item["username"] for item in admin.get("/people", administrator="true").data["items"]] == ["admin"]
    assert admin.get("/people", ordering="-username").data["items"][0]["username"] == "owner"


def test_a_list_of_people_costs_as_many_queries_for_many_as_for_few(
    admin: Api, project: Project, django_assert_max_num_queries: object
) -> None:
    for number in range(30):
        project.memberships.create(user=User.objects.create_user(f"person-{number}"))
    with django_assert_max_num_queries(7):
        assert len(admin.get("/people", pageSize=100).data["items"]) == 31


def test_service_accounts_are_listed_apart(admin: Api, project: Project) -> None:
    User.objects.create_user("ci", service_project=project)
    assert [item["username"] for item in admin.get("/people").data["items"]] == ["admin"]
    assert [item["username"] for item in admin.get("/people", service="true").data["items"]] == ["ci"]


def test_nobody_else_reaches_accounts(owner: Api, anonymous: Api) -> None:
    for api, status in ((owner, 403), (anonymous, 401)):
        assert api.get("/people").status == status
        assert api.post("/people", {"username": "x"}).status == status
        assert api.get("/people/owner").status == status
        assert api.patch("/people/owner", {"isAdministrator": True}).status == status
        assert api.post("/people/owner/invitation").status == status
        assert api.delete("/people/owner/second-factors").status == status
    assert not User.objects.filter(is_superuser=True).exists()


def test_a_new_person_enters_by_the_invitation_and_sets_a_password(admin: Api) -> None:
    made = admin.post("/people", {"username": "new", "email": "new@example.org"})
    assert made.status == 201
    browser = Client(enforce_csrf_checks=True)
    assert browser.get(made.data["invitation"]["path"]).status_code == 302
    assert browser.get("/api/v1/auth/me").json()["data"]["username"] == "new"
    browser.get("/_allauth/browser/v1/auth/session")
    answer = browser.post(
        "/_allauth/browser/v1/account/password/change", {"new_password": "a password of some length"},
        content_type="application/json", headers={"X-CSRFToken": browser.cookies["csrftoken"].value},
    )  # fmt: skip
    assert answer.status_code == 200
    assert User.objects.get(username="new").check_password("a password of some length")
    assert browser.get("/api/v1/auth/me").status_code == 200
    assert Client().get(made.data["invitation"]["path"]).status_code == 410
    assert [*AuditEvent.objects.order_by("pk").values_list("action", flat=True)][:2] == [
        "person.create", "person.invite",
    ]  # fmt: skip
    assert made.data["invitation"]["path"] not in str([*AuditEvent.objects.values_list("data", flat=True)])


@pytest.mark.parametrize(
    ("body", "status", "field", "code"),
    [
        ({"username": "owner"}, 409, "username", "USERNAME_TAKEN"),
        ({"username": "new", "email": "OWNER@example.org"}, 409, "email", "EMAIL_TAKEN"),
        ({"username": "a b"}, 400, "username", "FIELD_INVALID"),
        ({"username": "x" * 151}, 400, "username", None),
        ({"username": "new", "email": "no address"}, 400, "email", None),
        ({}, 400, "username", None),
    ],
)
def test_a_wrong_account_is_refused(
    admin: Api, owner: Api, body: dict, status: int, field: str, code: str | None
) -> None:
    answer = admin.post("/people", body)
    assert answer.status == status
    assert field in answer.problems
    assert code is None or answer.problems[field] == code


def test_deactivating_ends_access_and_activating_brings_the_sign_in_back(admin: Api, colleague: Api) -> None:
    assert admin.patch("/people/colleague", {"isActive": False}).data["isActive"] is False
    assert colleague.get("/auth/me").status == 401
    assert not ApiToken.objects.filter(user=colleague.user).exists()
    assert admin.get("/people", active="false").data["total"] == 1
    assert admin.patch("/people/colleague", {"isActive": True}).data["isActive"] is True
    assert colleague.get("/auth/me").status == 401, "what was revoked stays so"
    assert colleague.user.memberships.exists()


def test_administrators_make_others_administrators_but_do_not_change_themselves(admin: Api, owner: Api) -> None:
    assert admin.patch("/people/admin", {"isAdministrator": False}).error == "PERSON_IS_YOU"
    assert admin.patch("/people/admin", {"isActive": False}).error == "PERSON_IS_YOU"
    changed = admin.patch("/people/owner", {"isAdministrator": True}).data
    assert (changed["isAdministrator"], changed["isOperator"]) == (True, True)
    assert owner.patch("/people/admin", {"isAdministrator": False}).status == 200
    assert admin.get("/people").status == 403


def test_the_last_administrator_stays(admin: Api, owner: Api) -> None:
    """`owner` was one when the request began, and is one no longer when it is carried out."""
    owner.user.is_superuser = True
    for change in ({"is_superuser": False}, {"is_active": False}):
        with pytest.raises(ApiError) as refused:
            change_person(owner.user, "admin", **change)
        assert refused.value.problems[0].code == "LAST_ADMINISTRATOR"
    assert User.objects.get(username="admin").is_active


def test_a_service_account_gets_no_rights_and_no_invitation(admin: Api, project: Project) -> None:
    User.objects.create_user("ci", service_project=project)
    assert admin.patch("/people/ci", {"isAdministrator": True}).error == "PERSON_IS_SERVICE"
    assert admin.post("/people/ci/invitation").error == "PERSON_IS_SERVICE"
    assert admin.patch("/people/ci", {"isActive": False}).status == 200


def test_a_narrow_token_of_an_administrator_gives_no_rights(admin: Api, owner: Api) -> None:
    _, token = ApiToken.objects.create(user=admin.user, expiry=None, name="people", scopes=["people:write"])
    narrow = Api(token=token)
    assert narrow.get("/people").status == 200
    for answer in (
        narrow.post("/people", {"username": "x"}),
        narrow.patch("/people/owner", {"isAdministrator": True}),
        narrow.post("/people/owner/invitation"),
        narrow.delete("/people/owner/second-factors"),
    ):
        assert (answer.status, answer.error) == (403, "TOKEN_TOO_NARROW")


def test_a_second_invitation_voids_the_password(admin: Api, colleague: Api) -> None:
    invitation = admin.post("/people/colleague/invitation").data
    assert not User.objects.get(username="colleague").has_usable_password()
    assert Client().get(invitation["path"]).status_code == 302


def test_an_invitation_goes_around_no_second_factor(admin: Api, colleague: Api) -> None:
    Authenticator.objects.create(user=colleague.user, type=Authenticator.Type.TOTP, data={})
    assert admin.post("/people/colleague/invitation").error == "PERSON_HAS_SECOND_FACTOR"
    assert admin.delete("/people/colleague/second-factors").status == 200
    assert not Authenticator.objects.exists()
    assert admin.post("/people/colleague/invitation").status == 201
    assert admin.delete("/people/admin/second-factors").error == "PERSON_IS_YOU"


def test_an_unknown_person_is_not_found(admin: Api) -> None:
    assert admin.get("/people/nobody").status == 404
    assert admin.patch("/people/nobody", {"isActive": False}).status == 404
    assert admin.post("/people/nobody/invitation").status == 404
