from typing import Any

import pytest
from allauth.socialaccount.models import SocialAccount
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Membership, Project, User
from apps.common.clock import now
from apps.directory import counts
from apps.directory.application import apply_rules
from apps.directory.models import RoleRule, RuleAdministrator
from apps.identity.models import IdentityProvider
from tests.api.conftest import Api, make_user
from tests.api.test_identity_sign_in import provider, server, sign_in
from tests.fakes.openid import OpenIdServer

__all__ = ["provider", "server"]  # fixtures

pytestmark = pytest.mark.database

BODY = {"provider": "sso", "pattern": "ml", "projectId": "project-one", "role": "member"}
ROOT = {"provider": "sso", "pattern": "root", "administrator": True}


@pytest.fixture
def sso(db: None) -> IdentityProvider:
    return IdentityProvider.objects.create(
        id="sso",
        kind="openid_connect",
        name="Company",
        client_id="c",
        settings={"server_url": "https://login.example.org"},
        created_at=now(),
        updated_at=now(),
    )


def link(user: User, *groups: str) -> SocialAccount:
    """Return the user's account at the provider, which last sent these groups."""
    claims = {"id_token": {"groups": list(groups)}, "userinfo": {}}
    found, _ = SocialAccount.objects.update_or_create(
        user=user, provider="sso", defaults={"uid": user.username, "extra_data": claims}
    )
    return found


def preview(api: Api, body: dict[str, Any] | None = None, rule: str | None = None) -> Any:
    return api.post("/role-rules/preview", {**({"rule": body} if body else {}), **({"ruleId": rule} if rule else {})})


def save(api: Api, body: dict[str, Any], rule: str | None = None) -> Any:
    """Save a rule as its preview shows it."""
    signed = {**body, "fingerprint": preview(api, body, rule).data["fingerprint"]}
    return api.put(f"/role-rules/{rule}", signed) if rule else api.post("/role-rules", signed)


def delete(api: Api, rule: str) -> Any:
    return api.delete(f"/role-rules/{rule}?fingerprint={preview(api, rule=rule).data['fingerprint']}")


def get_roles(user: User) -> dict[str, tuple[str, str]]:
    return {row.project.name: (row.role, row.source) for row in Membership.objects.filter(user=user)}


def test_a_sign_in_gives_the_roles_of_its_groups_and_the_next_one_removes_them(
    client: Client, admin: Api, project: Project, server: OpenIdServer, provider: IdentityProvider
) -> None:
    save(admin, BODY)
    server.claims["groups"] = ["ml"]
    sign_in(client, server)
    person = User.objects.get(socialaccount__uid="u-1")
    assert get_roles(person) == {"one": ("member", "rule")}
    assert AuditEvent.objects.get(action="member.add").data["by"] == "rule"
    server.claims["groups"] = []
    sign_in(Client(), server)
    assert get_roles(person) == {}


def test_a_refused_sign_in_changes_no_role(
    client: Client, admin: Api, project: Project, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    save(admin, BODY)
    User.objects.filter(socialaccount__uid="u-1").update(is_active=False)
    server.claims["groups"] = ["ml"]
    sign_in(Client(), server)
    assert not Membership.objects.exists()


def test_a_preview_tells_what_saving_then_does(admin: Api, project: Project, sso: IdentityProvider) -> None:
    ada, bob, eve = make_user("ada"), make_user("bob", project, "viewer"), make_user("eve")
    link(ada, "ml")
    link(bob, "ml")
    SocialAccount.objects.create(user=eve, provider="sso", uid="eve", extra_data={})
    shown = preview(admin, BODY).data
    assert (shown["gaining"], shown["losing"], shown["unknownTotal"]) == (2, 0, 1)
    assert [(one["username"], one["before"], one["after"]) for one in shown["changes"]] == [
        ("ada", None, "member"),
        ("bob", "viewer", "member"),
    ]
    assert get_roles(ada) == {}
    rule = save(admin, BODY).data
    assert (get_roles(ada), get_roles(bob)) == ({"one": ("member", "rule")},) * 2
    ApiToken.objects.create(user=ada, expiry=None, name="ci", projects=["project-one"])
    ApiToken.objects.create(user=ada, expiry=None, name="all")
    shown = preview(admin, rule=rule["id"]).data
    assert (shown["losing"], [one["name"] for one in shown["tokens"]]) == (2, ["ci"])
    assert delete(admin, rule["id"]).status == 200
    assert (get_roles(ada), get_roles(bob)) == ({}, {"one": ("viewer", "person")})
    assert list(ApiToken.objects.filter(user=ada).values_list("name", flat=True)) == ["all"]


def test_a_changed_rule_moves_people(admin: Api, project: Project, other_project: Project, sso: Any) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    rule = save(admin, BODY).data["id"]
    save(admin, {**BODY, "projectId": "project-two", "role": "maintainer"}, rule)
    assert get_roles(ada) == {"two": ("maintainer", "rule")}


def test_a_role_that_a_maintainer_changes_is_a_persons(admin: Api, owner: Api, project: Project, sso: Any) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    save(admin, BODY)
    owner.patch("/projects/project-one/members/ada", {"role": "maintainer"})
    apply_rules()
    assert get_roles(ada) == {"one": ("maintainer", "person")}


def test_a_group_gets_a_project_of_its_name_but_never_another_of_that_name(
    admin: Api, project: Project, sso: Any
) -> None:
    ada = make_user("ada")
    link(ada, "team-a", "one")
    for pattern in ("team-*", "one"):
        body = {"pattern": pattern, "createProject": True, "role": "maintainer"}
        taken = admin.post("/role-rules/preview", {"rule": body}).data["taken"]
        assert taken == (["one"] if pattern == "one" else [])
        save(admin, body)
    assert get_roles(ada) == {"team-a": ("maintainer", "rule")}
    bob = make_user("bob")
    link(bob, "team-a")
    apply_rules([bob])
    assert get_roles(bob) == get_roles(ada)


def test_a_group_makes_administrators_and_takes_it_from_nobody_else(admin: Api, sso: Any) -> None:
    ada, bob = make_user("ada"), User.objects.create_superuser("bob")
    link(ada, "root")
    link(bob)
    assert admin.post("/role-rules/preview", {"rule": ROOT}).data["newAdministrators"] == ["ada"]
    save(admin, ROOT)
    ada.refresh_from_db()
    assert ada.is_superuser
    link(ada)
    apply_rules()
    assert list(User.objects.filter(is_superuser=True).values_list("username", flat=True)) == ["admin", "bob"]
    assert not RuleAdministrator.objects.exists()


def test_the_last_administrator_stays(sso: Any) -> None:
    ada = make_user("ada")
    User.objects.filter(pk=ada.pk).update(is_superuser=True)
    RuleAdministrator.objects.create(user=ada)
    link(ada)
    plan = apply_rules()
    assert plan.people[0].last_administrator
    assert User.objects.get(pk=ada.pk).is_superuser


def test_roles_end_with_their_provider_disabled_and_come_back_with_it(
    admin: Api, project: Project, sso: IdentityProvider
) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    save(admin, {**BODY, "provider": ""})
    for enabled, roles in ((False, {}), (True, {"one": ("member", "rule")})):
        assert admin.patch("/identity-providers/sso", {"enabled": enabled}).status == 200
        assert get_roles(ada) == roles


def test_roles_end_with_their_provider_deleted(admin: Api, project: Project, sso: IdentityProvider) -> None:
    ada, bob = make_user("ada"), make_user("bob", project, "viewer")
    link(ada, "ml")
    link(bob, "ml")
    save(admin, {**BODY, "provider": ""})
    assert admin.delete("/identity-providers/sso").status == 200
    assert (get_roles(ada), get_roles(bob)) == ({}, {"one": ("viewer", "person")})


def test_roles_end_with_the_links_to_their_provider(
    admin: Api, project: Project, sso: IdentityProvider, django_capture_on_commit_callbacks: Any
) -> None:
    people = [make_user("ada"), make_user("bob")]
    for user in people:
        link(user, "ml")
    save(admin, BODY)
    with django_capture_on_commit_callbacks(execute=True) as ran:
        SocialAccount.objects.all().delete()
    assert (len(ran), [get_roles(user) for user in people]) == (1, [{}, {}])


def test_an_inactive_person_has_no_role_by_a_rule(admin: Api, project: Project, sso: Any) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    save(admin, BODY)
    for active, roles in ((False, {}), (True, {"one": ("member", "rule")})):
        User.objects.filter(pk=ada.pk).update(is_active=active)
        apply_rules()
        assert get_roles(ada) == roles


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"administrator": True}, "ROLE_RULE_TARGET"),
        ({"projectId": None}, "ROLE_RULE_TARGET"),
        ({"role": ""}, "ROLE_RULE_TARGET"),
        ({"projectId": "project-none"}, "PROJECT_UNKNOWN"),
        ({"provider": "none"}, "ROLE_RULE_PROVIDER"),
        ({"pattern": "a*b"}, "ROLE_RULE_PATTERN"),
        ({"pattern": "*", "projectId": None, "createProject": True}, "ROLE_RULE_PATTERN"),
        ({**ROOT, "provider": "", "projectId": None, "role": ""}, "ROLE_RULE_ADMINISTRATOR"),
        ({**ROOT, "pattern": "r*", "projectId": None, "role": ""}, "ROLE_RULE_ADMINISTRATOR"),
    ],
)
def test_a_wrong_rule_is_refused(admin: Api, project: Project, sso: Any, change: dict[str, Any], code: str) -> None:
    rule = {**BODY, **change}
    for path, body in (("/role-rules", {**rule, "fingerprint": "0"}), ("/role-rules/preview", {"rule": rule})):
        answer = admin.post(path, body)
        assert (answer.status, answer.error) == (400, code)
    assert not RoleRule.objects.exists()


def test_the_list_has_pages_and_a_search(admin: Api, project: Project, sso: Any) -> None:
    for number in range(3):
        save(admin, {**BODY, "pattern": f"ml-{number}"})
    page = admin.get("/role-rules", page=2, pageSize=2).data
    assert ([item["pattern"] for item in page["items"]], page["total"]) == (["ml-2"], 3)
    assert admin.get("/role-rules", search="ML-1").data["total"] == 1


def test_only_administrators_have_anything_to_do_with_rules(admin: Api, owner: Api, anonymous: Api, sso: Any) -> None:
    rule = save(admin, BODY).data["id"]
    for api, status in ((owner, 403), (anonymous, 401)):
        assert api.get("/role-rules").status == status
        assert api.post("/role-rules", {**BODY, "fingerprint": "0"}).status == status
        assert api.post("/role-rules/preview", {"rule": BODY}).status == status
        assert api.put(f"/role-rules/{rule}", {**BODY, "fingerprint": "0"}).status == status
        assert api.delete(f"/role-rules/{rule}?fingerprint=0").status == status
    assert admin.post("/role-rules/preview", {"ruleId": "rule-none"}).status == 404
    assert admin.delete("/role-rules/rule-none?fingerprint=0").status == 404


def test_nothing_is_saved_that_its_preview_has_not_shown(admin: Api, project: Project, sso: Any) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    first = preview(admin, BODY).data["fingerprint"]
    link(make_user("bob"), "ml")
    answer = admin.post("/role-rules", {**BODY, "fingerprint": first})
    assert (answer.status, answer.error) == (409, "ROLE_RULES_CHANGED")
    assert not RoleRule.objects.exists()
    assert not Membership.objects.exists()
    assert not AuditEvent.objects.filter(action__startswith="role-rule").exists()
    rule = save(admin, BODY).data["id"]
    other = {**BODY, "role": "viewer"}
    for body in (BODY, other):
        wrong = preview(admin, other if body is BODY else BODY, rule).data["fingerprint"]
        assert admin.put(f"/role-rules/{rule}", {**body, "fingerprint": wrong}).status == 409
    deletion = preview(admin, rule=rule).data["fingerprint"]
    save(admin, {**BODY, "pattern": "ops"})
    assert admin.delete(f"/role-rules/{rule}?fingerprint={deletion}").status == 409
    assert admin.delete(f"/role-rules/{rule}").status == 400
    assert delete(admin, rule).status == 200


def test_a_rule_that_ends_tokens_is_saved_after_its_preview(admin: Api, project: Project, sso: Any) -> None:
    ada = make_user("ada")
    link(ada, "ml")
    rule = save(admin, BODY).data["id"]
    ApiToken.objects.create(user=ada, expiry=None, name="ci", projects=["project-one"])
    assert save(admin, {**BODY, "pattern": "ops"}, rule).status == 200
    assert not ApiToken.objects.filter(user=ada).exists()


def test_a_preview_names_the_groups_that_were_read(admin: Api, project: Project, sso: Any) -> None:
    link(make_user("ada"), "ml", "ops")
    link(make_user("bob"), "ml")
    shown = preview(admin, {**BODY, "pattern": "m*"}).data
    assert shown["groups"] == [{"name": "ml", "peopleCount": 2}, {"name": "ops", "peopleCount": 1}]
    assert (shown["groupsTotal"], shown["knownTotal"]) == (2, 2)
    assert preview(admin, {**BODY, "claim": "roles"}).data["groups"] == []


def test_the_list_counts_people_and_says_who_made_a_rule(admin: Api, project: Project, sso: Any) -> None:
    link(make_user("ada"), "ml", "ml-ops")
    link(make_user("bob"), "ml")
    save(admin, {**BODY, "pattern": "ml*"})
    save(admin, {**BODY, "provider": "", "pattern": "ml-ops"})
    items = admin.get("/role-rules").data["items"]
    assert [(one["pattern"], one["peopleCount"], one["createdBy"]) for one in items] == [
        ("ml*", 2, "admin"),
        ("ml-ops", 1, "admin"),
    ]


def test_with_many_people_a_count_is_read_again_after_a_while_and_that_of_a_new_rule_at_once(
    admin: Api, project: Project, sso: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = 0.0
    monkeypatch.setattr(counts, "MIN_CACHED_IDENTITIES", 1)
    monkeypatch.setattr(counts, "_counts", {})
    monkeypatch.setattr(counts, "monotonic", lambda: moment)
    link(make_user("ada"), "ml", "ops")
    save(admin, {**BODY, "pattern": "ml"})

    def list_counts() -> dict[str, int]:
        return {one["pattern"]: one["peopleCount"] for one in admin.get("/role-rules").data["items"]}

    assert list_counts() == {"ml": 1}
    link(make_user("bob"), "ml", "ops")
    save(admin, {**BODY, "pattern": "ops"})
    assert list_counts() == {"ml": 1, "ops": 2}
    moment = counts.CACHE_SECONDS
    assert list_counts() == {"ml": 2, "ops": 2}
