from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, User
from apps.common.row_bounds import MAX_ROWS
from apps.directory.application import apply_rules
from apps.directory.models import Directory, DirectoryUser, RoleRule
from tests.api.conftest import Api, make_user
from tests.api.scim_client import ScimClient, make_directory, save_rule
from tests.api.test_role_rules import get_roles, sso

__all__ = ["sso"]  # fixture

pytestmark = pytest.mark.database

ADA = {"userName": "ada@example.org", "externalId": "e-1", "name": {"givenName": "Ada", "familyName": "L"}}


@pytest.fixture
def scim(admin: Api, sso: Any) -> ScimClient:
    """A directory of the provider `sso`, which knows people by their externalId."""
    return make_directory(admin)


def test_a_user_gets_an_account_that_signs_in_by_the_provider(scim: ScimClient) -> None:
    body = {**ADA, "emails": [{"value": "ada@example.org", "primary": True}], "password": "secret", "title": "x"}
    made = scim.post("/Users", body)
    assert made.status == 201
    assert made.headers["Location"] == made.body["meta"]["location"]
    assert made.headers["Content-Type"] == "application/scim+json"
    assert (made.body["userName"], made.body["active"]) == ("ada@example.org", True)
    assert not {"password", "title"} & set(made.body)
    user = User.objects.get(username="ada@example.org")
    assert (user.email, user.get_full_name(), user.has_usable_password()) == ("ada@example.org", "Ada L", False)
    assert SocialAccount.objects.get(provider="sso", uid="e-1").user == user
    assert scim.get(f"/Users/{made.body['id']}").body == made.body
    created = AuditEvent.objects.get(action="person.create")
    assert (created.target, created.actor, created.data["by"]) == ("ada@example.org", None, "directory")


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('userName eq "ADA@example.org"', ["ada@example.org"]),
        ('externalId eq "e-2"', ["bob"]),
        ('urn:ietf:params:scim:schemas:core:2.0:User:userName eq "bob"', ["bob"]),
        ('userName eq "none"', []),
        ('externalId eq ""', []),
    ],
)
def test_users_are_found_by_name_and_external_id(scim: ScimClient, query: str, names: list[str]) -> None:
    scim.post("/Users", ADA)
    scim.post("/Users", {"userName": "bob", "externalId": "e-2"})
    found = scim.get("/Users", filter=query).body
    assert ([one["userName"] for one in found.get("Resources", [])], found["totalResults"]) == (names, len(names))


@pytest.mark.parametrize(
    "query",
    ['userName co "a"', 'userName eq "a" or id eq "b"', "userName pr", 'title eq "a"', "userName eq", "active eq true"],
)
def test_other_filters_are_refused(scim: ScimClient, query: str) -> None:
    answer = scim.get("/Users", filter=query)
    assert (answer.status, answer.body["scimType"], answer.body["status"]) == (400, "invalidFilter", "400")


@pytest.mark.parametrize("value", [r"\ud800", r"\u0000"])
def test_a_filter_for_what_cannot_be_stored_is_refused(scim: ScimClient, value: str) -> None:
    answer = scim.get("/Users", filter=f'userName eq "{value}"')
    assert (answer.status, answer.body["scimType"]) == (400, "invalidFilter")


def test_lists_have_bounded_pages(scim: ScimClient) -> None:
    for number in range(3):
        scim.post("/Users", {"userName": f"u{number}"})
    page = scim.get("/Users", startIndex=2, count=1).body
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"]) == (3, 2, 1)
    assert page["Resources"][0]["userName"] == "u1"
    assert len(scim.get("/Users", count=10**9).body["Resources"]) == 3
    assert "Resources" not in scim.get("/Users", startIndex=10**9, count=0).body
    assert scim.get("/Users", startIndex=10**30).status in (200, 400)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "Replace", "path": "active", "value": "False"},
        {"op": "replace", "value": {"active": False}},
        {"op": "Replace", "value": {"active": "False"}},
        {"op": "replace", "path": "urn:ietf:params:scim:schemas:core:2.0:User:active", "value": False},
    ],
)
def test_a_leaver_loses_sessions_tokens_and_roles_and_comes_back_without_tokens(
    scim: ScimClient, admin: Api, project: Project, operation: dict[str, Any]
) -> None:
    key = scim.add_user("ada")
    user = User.objects.get(username="ada")
    scim.add_group("ml", key)
    save_rule(admin, scim.make_rule("ml"))
    assert get_roles(user) == {"one": ("member", "rule")}
    ApiToken.objects.create(user=user, expiry=None, name="all")
    assert scim.patch(f"/Users/{key}", operation).body["active"] is False
    user.refresh_from_db()
    assert (user.is_active, user.auth_token_set.count(), get_roles(user)) == (False, 0, {})
    assert AuditEvent.objects.filter(action="access.end", target="ada").exists()
    assert scim.patch(f"/Users/{key}", {"op": "replace", "path": "active", "value": True}).body["active"] is True
    user.refresh_from_db()
    assert (user.is_active, user.auth_token_set.count()) == (True, 0)
    assert get_roles(user) == {"one": ("member", "rule")}


def test_a_deleted_user_is_deactivated_and_only_the_same_person_gets_the_account_again(scim: ScimClient) -> None:
    key = scim.add_user("ada", externalId="e-1")
    group = scim.add_group("ml", key)
    gone = scim.delete(f"/Users/{key}")
    assert (gone.status, gone.body) == (204, None)
    assert scim.get(f"/Users/{key}").status == scim.delete(f"/Users/{key}").status == 404
    assert "members" not in scim.get(f"/Groups/{group}").body
    assert not User.objects.get(username="ada").is_active
    other = scim.post("/Users", {"userName": "ada", "externalId": "e-2"})
    assert (other.status, other.body["scimType"]) == (409, "uniqueness")
    again = scim.post("/Users", {"userName": "ada", "externalId": "e-1"})
    assert (again.status, again.body["id"], again.body["active"]) == (201, key, True)
    assert User.objects.filter(username="ada", is_active=True).count() == 1


def test_who_an_administrator_deactivated_is_not_activated_by_a_directory(scim: ScimClient, admin: Api) -> None:
    key = scim.add_user("ada")
    assert admin.patch("/people/ada", {"isActive": False}).status == 200
    assert scim.put(f"/Users/{key}", {"userName": "ada", "active": True}).body["active"] is False
    assert scim.patch(f"/Users/{key}", {"op": "add", "path": "active", "value": True}).body["active"] is False
    assert not User.objects.get(username="ada").is_active


def test_a_replaced_user_changes_the_account_but_not_its_name(scim: ScimClient) -> None:
    key = scim.add_user("ada", externalId="e-1")
    body = {"userName": "ada.l", "externalId": "e-9", "displayName": "Ada L", "emails": [{"value": "a@example.org"}]}
    changed = scim.put(f"/Users/{key}", body).body
    assert (changed["userName"], changed["externalId"]) == ("ada.l", "e-9")
    user = User.objects.get(username="ada")
    assert (user.email, user.first_name) == ("a@example.org", "Ada L")
    assert list(SocialAccount.objects.filter(user=user).values_list("uid", flat=True)) == ["e-9"]
    patched = scim.patch(
        f"/Users/{key}",
        {"op": "Add", "path": 'emails[type eq "work"].value', "value": "b@example.org"},
        {"op": "Replace", "path": "name.familyName", "value": "Lovelace"},
        {"op": "Add", "path": "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:department", "value": "x"},
    )
    assert patched.status == 200
    assert [one["value"] for one in patched.body["emails"]] == ["a@example.org", "b@example.org"]
    assert User.objects.get(username="ada").last_name == "Lovelace"


def test_an_existing_account_is_linked_only_if_the_provider_vouches_for_it(scim: ScimClient, admin: Api) -> None:
    for name in ("local", "mine", "other", "boss"):
        make_user(name)
    User.objects.filter(username="boss").update(is_superuser=True)
    for name, uid in (("mine", "e-1"), ("other", "e-2"), ("boss", "e-3")):
        SocialAccount.objects.create(user=User.objects.get(username=name), provider="sso", uid=uid)
    refused = [("local", "e-9"), ("LOCAL", "e-9"), ("other", "e-8"), ("boss", "e-3"), ("admin", "e-7")]
    for name, uid in refused:
        answer = scim.post("/Users", {"userName": name, "externalId": uid})
        assert (answer.status, answer.body["scimType"]) == (409, "uniqueness")
    made = scim.post("/Users", {"userName": "mine@corp", "externalId": "e-1"})
    assert made.status == 201
    assert DirectoryUser.objects.get().user.username == "mine"
    assert AuditEvent.objects.get(action="person.link").target == "mine"
    second = make_directory(admin, "second")
    assert second.post("/Users", {"userName": "mine", "externalId": "e-1"}).status == 409


def test_a_directory_gets_nobody_into_the_account_of_an_administrator_by_hand(scim: ScimClient) -> None:
    """By another ID for sign-in, or by an address to which a new password is sent."""
    key = scim.post("/Users", {**ADA, "emails": [{"value": "ada@example.org"}]}).body["id"]
    User.objects.filter(username="ada@example.org").update(is_superuser=True)
    for answer in (
        scim.put(f"/Users/{key}", {**ADA, "externalId": "mallory"}),
        scim.patch(f"/Users/{key}", {"op": "replace", "path": "externalId", "value": "mallory"}),
        scim.patch(f"/Users/{key}", {"op": "remove", "path": "externalId"}),
    ):
        assert (answer.status, answer.body["scimType"]) == (409, "mutability")
    assert SocialAccount.objects.get().uid == "e-1"
    email = {"op": "replace", "path": "emails", "value": [{"value": "mallory@example.org"}]}
    assert scim.patch(f"/Users/{key}", email).status == 200
    assert User.objects.get(username="ada@example.org").email == "ada@example.org"
    assert scim.patch(f"/Users/{key}", {"op": "replace", "path": "name.givenName", "value": "A"}).status == 200
    User.objects.filter(username="ada@example.org").update(is_superuser=False)
    assert scim.put(f"/Users/{key}", {**ADA, "externalId": "e-2"}).status == 200
    assert SocialAccount.objects.get().uid == "e-2"


def test_the_last_administrator_is_never_deactivated(scim: ScimClient, admin: Api) -> None:
    key = scim.add_user("ada")
    User.objects.update(is_superuser=False)
    User.objects.filter(username="ada").update(is_superuser=True)
    body = {"op": "replace", "path": "active", "value": False}
    assert scim.patch(f"/Users/{key}", body).status == 409
    assert scim.delete(f"/Users/{key}").status == 409
    assert User.objects.get(username="ada").is_active
    User.objects.filter(username="admin").update(is_superuser=True)
    assert scim.patch(f"/Users/{key}", body).status == 200


def test_service_accounts_are_neither_shown_nor_taken_over(scim: ScimClient, owner: Api) -> None:
    name = owner.post("/projects/project-one/service-accounts", {"name": "ci"}).data["username"]
    assert scim.get("/Users").body["totalResults"] == 0
    assert scim.post("/Users", {"userName": name, "externalId": "e-1"}).status == 409
    DirectoryUser.objects.create(
        id="person-1", directory=Directory.objects.get(), user=User.objects.get(username=name), user_name=name,
        created_at=sso_time(), updated_at=sso_time(),
    )  # fmt: skip
    assert scim.get("/Users").body["totalResults"] == 0
    assert scim.get("/Users/person-1").status == scim.delete("/Users/person-1").status == 404


def sso_time() -> Any:
    from apps.common.clock import now

    return now()


def test_a_group_gives_roles_and_ends_them_in_the_same_request(scim: ScimClient, admin: Api, project: Project) -> None:
    ada, bob = scim.add_user("ada"), scim.add_user("bob")
    assert save_rule(admin, scim.make_rule("ml")).status == 201
    group = scim.add_group("ml", ada, externalId="g-1")
    users = [User.objects.get(username=name) for name in ("ada", "bob")]
    member = {"one": ("member", "rule")}
    steps: list[tuple[list[dict[str, Any]], list[Any]]] = [
        ([{"op": "Add", "path": "members", "value": [{"value": bob}]}], [member, member]),
        ([{"op": "Remove", "path": "members", "value": [{"value": ada}]}], [{}, member]),
        ([{"op": "remove", "path": f'members[value eq "{bob}"]'}], [{}, {}]),
        ([{"op": "replace", "path": "members", "value": [{"value": ada}, {"value": bob}]}], [member, member]),
        ([{"op": "replace", "value": {"id": group, "displayName": "ml-old"}}], [{}, {}]),
        ([{"op": "Replace", "path": "displayName", "value": "ml"}], [member, member]),
        ([{"op": "remove", "path": "members"}], [{}, {}]),
        ([{"op": "add", "value": {"members": [{"value": ada, "display": "Ada"}]}}], [member, {}]),
    ]
    for operations, roles in steps:
        assert scim.patch(f"/Groups/{group}", *operations).status == 204, operations
        assert [get_roles(user) for user in users] == roles, operations
    assert scim.put(f"/Groups/{group}", {"displayName": "ml", "members": [{"value": bob}]}).status == 200
    assert [get_roles(user) for user in users] == [{}, member]
    assert scim.get(f"/Users/{bob}").body["groups"] == [{"value": group, "display": "ml"}]
    assert scim.delete(f"/Groups/{group}").status == 204
    assert not Membership.objects.exists()


def test_changes_of_a_directorys_groups_have_names_of_their_own_in_the_audit_trail(
    scim: ScimClient, admin: Api
) -> None:
    group = scim.add_group("ml", scim.add_user("ada"))
    scim.put(f"/Groups/{group}", {"displayName": "ml-old"})
    scim.delete(f"/Groups/{group}")
    events = admin.get("/audit-events", target=group).data["items"]
    assert {event["action"]: (event["actionText"], event["actor"]) for event in events} == {
        "directory-group.create": ("添加了目录中的组", None),
        "directory-group.change": ("更改了目录中的组", None),
        "directory-group.delete": ("删除了目录中的组", None),
    }


def test_a_rule_reads_external_ids_apart_from_names(scim: ScimClient, admin: Api, project: Project) -> None:
    scim.add_group("g-1", scim.add_user("ada"))
    scim.add_group("ml", scim.add_user("bob"), externalId="g-1")
    save_rule(admin, {**scim.make_rule("g-1"), "claim": "externalId"})
    assert list(Membership.objects.values_list("user__username", flat=True)) == ["bob"]


def test_a_directory_removes_roles_of_who_has_too_many_groups_elsewhere(
    scim: ScimClient, project: Project, other_project: Project
) -> None:
    key = scim.add_user("ada", externalId="e-1")
    group = scim.add_group("ml", key)
    for provider, pattern, target, role in (
        (scim.directory, "ml", project, "member"),
        ("sso", "x", other_project, "viewer"),
    ):
        about = {"provider": provider, "claim": "groups", "pattern": pattern, "project": target, "role": role}
        RoleRule.objects.create(created_at=sso_time(), updated_at=sso_time(), **about)
    SocialAccount.objects.filter(uid="e-1").update(extra_data={"id_token": {"groups": ["x"]}})
    apply_rules()
    SocialAccount.objects.filter(uid="e-1").update(extra_data={"id_token": {"hasgroups": True}})
    ada = User.objects.get(username="ada")
    assert get_roles(ada) == {"one": ("member", "rule"), "two": ("viewer", "rule")}
    assert scim.delete(f"/Groups/{group}").status == 204
    assert get_roles(ada) == {"two": ("viewer", "rule")}


def test_a_rule_of_any_provider_does_not_read_a_directory(scim: ScimClient, admin: Api, project: Project) -> None:
    scim.add_group("ml", scim.add_user("ada"))
    for provider in ("", "sso"):
        save_rule(admin, {**scim.make_rule("ml"), "provider": provider})
    assert not Membership.objects.exists()


def test_a_preview_lists_the_groups_of_the_directory_also_those_without_people(
    scim: ScimClient, admin: Api, project: Project
) -> None:
    ada, bob = scim.add_user("ada"), scim.add_user("bob")
    scim.add_user("gone", active=False)
    scim.add_group("ml", ada, bob, externalId="g-1")
    scim.add_group("hpc", ada, externalId="g-2")
    scim.add_group("empty")

    def preview(claim: str, provider: str) -> Any:
        rule = {**scim.make_rule("ml"), "claim": claim, "provider": provider}
        return admin.post("/role-rules/preview", {"rule": rule}).data

    def count(claim: str, provider: str = scim.directory) -> dict[str, int]:
        return {one["name"]: one["peopleCount"] for one in preview(claim, provider)["groups"]}

    assert list(count("groups").items()) == [("ml", 2), ("hpc", 1), ("empty", 0)]
    assert count("externalId") == {"g-1": 2, "g-2": 1}
    assert count("displayName") == count("groups", "") == count("groups", "sso") == {}
    assert save_rule(admin, scim.make_rule("ml")).data["peopleCount"] == 2


def test_groups_of_5_000_people_are_written_in_few_queries(
    scim: ScimClient, admin: Api, project: Project, django_assert_max_num_queries: Any
) -> None:
    keys = scim.add_many(5_000)
    save_rule(admin, scim.make_rule("ml"))
    with django_assert_max_num_queries(150):
        group = scim.add_group("ml", *keys)
    assert Membership.objects.filter(role="member", source="rule").count() == 5_000
    with django_assert_max_num_queries(40):
        scim.patch(f"/Groups/{group}", {"op": "remove", "path": f'members[value eq "{keys[7]}"]'})
    assert Membership.objects.count() == 4_999
    assert len(scim.get(f"/Groups/{group}").body["members"]) == 4_999
    assert "members" not in scim.get("/Groups", excludedAttributes="members").body["Resources"][0]
    with django_assert_max_num_queries(150):
        assert scim.patch(f"/Groups/{group}", {"op": "remove", "path": "members"}).status == 204
    assert not Membership.objects.exists()


def test_names_are_unique(scim: ScimClient) -> None:
    ada, bob = scim.add_user("ada", externalId="e-1"), scim.add_user("bob")
    scim.add_group("ml", externalId="g-1")
    other = scim.add_group("ai")
    taken = [
        scim.post("/Users", {"userName": "ADA"}),
        scim.post("/Users", {"userName": "eve", "externalId": "e-1"}),
        scim.put(f"/Users/{bob}", {"userName": "Ada"}),
        scim.patch(f"/Users/{bob}", {"op": "replace", "path": "externalId", "value": "e-1"}),
        scim.post("/Groups", {"displayName": "ML"}),
        scim.patch(f"/Groups/{other}", {"op": "replace", "path": "externalId", "value": "g-1"}),
    ]
    assert [(one.status, one.body["scimType"]) for one in taken] == [(409, "uniqueness")] * 6
    make_user("eve")
    mail = {"userName": "ada", "externalId": "e-1", "emails": [{"value": "EVE@example.org"}]}
    assert scim.put(f"/Users/{ada}", mail).body["scimType"] == "uniqueness"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "scim_type"),
    [
        ("POST", "/Users", {}, 400, "invalidValue"),
        ("POST", "/Users", [], 400, "invalidSyntax"),
        ("POST", "/Users", b"{", 400, "invalidSyntax"),
        ("POST", "/Users", b'{"userName": ' + b"[" * 900 + b"]" * 900 + b"}", 400, "invalidSyntax"),
        ("POST", "/Users", {"userName": "a b/c"}, 400, "invalidValue"),
        ("POST", "/Users", {"userName": "x" * 151}, 400, "invalidValue"),
        ("POST", "/Users", {"userName": "a\0"}, 400, "invalidValue"),
        ("POST", "/Users", {"userName": "a", "externalId": "x" * 192}, 400, "invalidValue"),
        ("POST", "/Users", {"userName": "a", "emails": [{"value": "x"}] * 21}, 400, "invalidValue"),
        ("POST", "/Groups", {"displayName": "a", "members": [{"value": "none"}]}, 400, "invalidValue"),
        ("POST", "/Groups", {"members": []}, 400, "invalidValue"),
        ("GET", "/Users/none", None, 404, None),
        ("GET", "/Nothing", None, 404, None),
        ("POST", "/Bulk", {}, 501, None),
        ("POST", "/.search", {}, 501, None),
        ("DELETE", "/Users", None, 405, None),
        ("PATCH", "/Users/none", {"Operations": [{"op": "burn", "path": "active"}]}, 400, "invalidValue"),
        (
            "PATCH",
            "/Users/none",
            {"Operations": [{"op": "add", "path": "active", "value": 1}] * 1001},
            400,
            "invalidValue",
        ),
        ("PATCH", "/Users/none", {"Operations": [{"op": "replace", "path": "id", "value": "x"}]}, 400, "mutability"),
    ],
)
def test_what_is_wrong_is_refused_in_scims_words(
    scim: ScimClient, method: str, path: str, body: Any, status: int, scim_type: str | None
) -> None:
    if method == "PATCH":
        body = {"schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"], **body}
    answer = scim.send(method, path, body)
    assert (answer.status, answer.body.get("scimType"), answer.body["status"]) == (status, scim_type, str(status))
    assert answer.body["schemas"] == ["urn:ietf:params:scim:api:messages:2.0:Error"]
    assert answer.body["detail"]


def test_only_a_valid_token_of_a_directory_gets_anywhere(scim: ScimClient, admin: Api, anonymous: Api) -> None:
    key = scim.add_user("ada")
    for token in ("", admin.token, scim.token + "x", scim.token[:-1], "fermi_scim_", "fermi_scim_" + "x" * 500):
        stranger = ScimClient(token, "")
        for method, path in (("GET", "/Users"), ("DELETE", f"/Users/{key}"), ("GET", "/Schemas"), ("GET", "/x")):
            answer = stranger.send(method, path)
            assert (answer.status, answer.body["status"]) == (401, "401")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    other = make_directory(admin, "other")
    assert other.get(f"/Users/{key}").status == 404
    assert other.get("/Users").body["totalResults"] == 0
    assert Api(None, token=scim.token).get("/auth/me").status == 401


def test_administrators_make_and_revoke_tokens(scim: ScimClient, admin: Api) -> None:
    [row] = admin.get("/directories").data["items"]
    assert scim.token not in str(row)
    made = admin.post(f"/directories/{row['id']}/tokens").data
    second = ScimClient(made["token"], row["id"])
    assert second.get("/Users").status == 200
    assert admin.delete(f"/directories/{row['id']}/tokens/{row['tokens'][0]['id']}").status == 200
    assert (scim.get("/Users").status, second.get("/Users").status) == (401, 200)
    [row] = admin.get("/directories", search="COMP").data["items"]
    assert [one["id"] for one in row["tokens"]] == [made["id"]]
    assert row["tokens"][0]["lastUsedAt"]
    for _ in range(4):
        admin.post(f"/directories/{row['id']}/tokens")
    assert admin.post(f"/directories/{row['id']}/tokens").error == "ROWS_FULL"
    events = AuditEvent.objects.filter(action__startswith="directory")
    assert made["token"] not in str(list(events.values()))


def test_a_deleted_directory_takes_its_roles_with_it_and_leaves_accounts(
    scim: ScimClient, admin: Api, project: Project
) -> None:
    scim.add_group("ml", scim.add_user("ada"))
    save_rule(admin, scim.make_rule("ml"))
    assert Membership.objects.exists()
    assert admin.delete(f"/directories/{scim.directory}").status == 200
    assert not Membership.objects.exists()
    assert User.objects.get(username="ada").is_active
    assert scim.get("/Users").status == 401


def test_only_administrators_have_anything_to_do_with_directories(
    scim: ScimClient, owner: Api, anonymous: Api, admin: Api
) -> None:
    path = f"/directories/{scim.directory}"
    for api, status in ((owner, 403), (anonymous, 401)):
        assert api.get("/directories").status == status
        assert api.post("/directories", {"name": "x"}).status == status
        assert api.delete(path).status == api.post(f"{path}/tokens").status == status
        assert api.delete(f"{path}/tokens/x").status == status
    assert admin.post("/directories", {"name": "company"}).error == "DIRECTORY_NAME_TAKEN"
    assert admin.post("/directories", {"name": "x", "provider": "none"}).error == "ROLE_RULE_PROVIDER"
    assert admin.post("/directories", {"name": "x", "uidAttribute": "userName"}).error == "DIRECTORY_PROVIDER_MISSING"
    assert admin.delete("/directories/none").status == admin.delete(f"{path}/tokens/none").status == 404


def test_directories_and_their_users_and_groups_are_bounded(
    scim: ScimClient, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("directories", "directory-users", "directory-groups"):
        monkeypatch.setitem(MAX_ROWS, kind, 1)
    assert admin.post("/directories", {"name": "x"}).error == "ROWS_FULL"
    scim.add_group("ml", scim.add_user("ada"))
    assert scim.post("/Users", {"userName": "bob"}).status == 409
    assert scim.post("/Groups", {"displayName": "ai"}).status == 409


def test_a_directory_has_a_rate_limit(scim: ScimClient, settings: Any) -> None:
    settings.RATE_LIMIT = 5
    answers = [scim.get("/Users") for _ in range(7)]
    if "RateLimit" not in answers[0].headers:
        pytest.skip("no Redis")
    assert [one.status for one in answers[-2:]] == [429, 429]
    assert answers[-1].body["status"] == "429"
