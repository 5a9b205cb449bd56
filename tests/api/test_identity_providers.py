from typing import Any

import pytest

from apps.accounts.models import AuditEvent, User
from apps.identity import environment
from apps.identity.models import IdentityProvider, ProviderKind
from apps.identity.provider_settings import REQUIRED
from apps.identity.starts import STARTS
from tests.api.conftest import Api

pytestmark = pytest.mark.database

BODY: dict[str, Any] = {
    "id": "company",
    "kind": "keycloak",
    "name": "Company",
    "clientId": "fermi",
    "secret": "very secret",
    "settings": {"server_url": "https://sso.example.org/realms/main"},
}


def test_an_administrator_sets_a_provider_up_and_its_secret_is_never_shown(admin: Api) -> None:
    made = admin.post("/identity-providers", BODY)
    assert made.status == 201
    assert made.data["hasSecret"] is True
    assert made.data["callbackUrl"].endswith("/auth/oidc/company/login/callback/")
    assert "very secret" not in str(made.body) + str(admin.get("/identity-providers").body)
    assert "very secret" not in IdentityProvider.objects.get().secret
    assert "very secret" not in str(list(AuditEvent.objects.values("data")))


def test_the_list_has_pages_and_a_search(admin: Api) -> None:
    for number in range(3):
        admin.post("/identity-providers", {**BODY, "id": f"company-{number}", "name": f"Company {number}"})
    page = admin.get("/identity-providers", page=2, pageSize=2).data
    assert ([item["id"] for item in page["items"]], page["total"]) == (["company-2"], 3)
    assert admin.get("/identity-providers", search="company 1").ids == ["company-1"]


def test_a_change_without_a_secret_leaves_it(admin: Api) -> None:
    admin.post("/identity-providers", BODY)
    before = IdentityProvider.objects.get().secret
    changed = admin.patch("/identity-providers/company", {"enabled": False, "name": "Firm"})
    assert (changed.data["enabled"], changed.data["name"], changed.data["hasSecret"]) == (False, "Firm", True)
    assert IdentityProvider.objects.get().secret == before
    assert admin.delete("/identity-providers/company").status == 200
    assert admin.get("/identity-providers/company").status == 404


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "settings.server_url"),
        ({"server_url": "http://sso.example.org"}, "settings.server_url"),
        ({"server_url": "https://user:password@sso.example.org"}, "settings.server_url"),
        ({"server_url": "https://sso.example.org", "verified_email": True}, "settings.verified_email"),
        ({"server_url": "https://sso.example.org", "create_users": "no"}, "settings.create_users"),
        ({"server_url": "https://sso.example.org", "allowed_domains": ["@x"]}, "settings.allowed_domains"),
        ({"server_url": "https://sso.example.org", "auth_params": {"nonce": "1"}}, "settings.auth_params"),
    ],
)
def test_wrong_settings_are_named(admin: Api, settings: dict[str, Any], field: str) -> None:
    answer = admin.post("/identity-providers", {**BODY, "settings": settings})
    assert answer.status == 400
    assert field in answer.problems
    assert not IdentityProvider.objects.exists()


def test_an_id_is_given_once(admin: Api) -> None:
    admin.post("/identity-providers", BODY)
    assert admin.post("/identity-providers", BODY).error == "IDENTITY_ID_TAKEN"


def test_only_administrators_have_anything_to_do_with_providers(owner: Api, anonymous: Api, admin: Api) -> None:
    admin.post("/identity-providers", BODY)
    for api, status in ((owner, 403), (anonymous, 401)):
        assert api.get("/identity-providers").status == status
        assert api.get("/identity-providers/company").status == status
        assert api.post("/identity-providers", {**BODY, "id": "another"}).status == status
        assert api.patch("/identity-providers/company", {"name": "x"}).status == status
        assert api.delete("/identity-providers/company").status == status
        assert api.post("/identity-providers/company/trial", {}).status == status
        assert api.post("/identity-providers/company/links", {"username": "owner", "uid": "1"}).status == status
        assert api.delete("/identity-providers/company/links").status == status


def test_an_administrator_links_an_account_once(admin: Api, owner: Api) -> None:
    admin.post("/identity-providers", BODY)
    body = {"username": "owner", "uid": "u-1"}
    assert admin.post("/identity-providers/company/links", body).status == 201
    assert admin.post("/identity-providers/company/links", body).error == "IDENTITY_UID_TAKEN"
    assert admin.post("/identity-providers/other/links", body).status == 404
    assert AuditEvent.objects.filter(action="identity-provider.link").count() == 1


def test_only_kinds_that_can_begin_a_sign_in_are_stored(admin: Api) -> None:
    for kind in ProviderKind:
        settings = {REQUIRED.get(kind, "server_url"): "https://sso.example.org"}
        made = admin.post(
            "/identity-providers", {**BODY, "id": kind.replace("_", "-"), "kind": kind, "settings": settings}
        )
        refused = made.problems if made.status == 400 else {}
        assert ("kind" in refused) == (kind not in STARTS), kind
    assert "kind" in admin.post("/identity-providers", {**BODY, "id": "ldap", "kind": "ldap"}).problems


@pytest.mark.parametrize(
    "settings",
    [{"server_url": "https://other.example.org"}, {**BODY["settings"], "uid_claim": "email"}],
)
def test_linked_accounts_are_not_opened_to_the_people_of_another_issuer(
    admin: Api, owner: Api, settings: dict[str, Any]
) -> None:
    admin.post("/identity-providers", BODY)
    admin.post("/identity-providers/company/links", {"username": "owner", "uid": "u-1"})
    assert admin.get("/identity-providers/company").data["linkCount"] == 1
    refused = admin.patch("/identity-providers/company", {"settings": settings})
    assert (refused.status, refused.error) == (409, "IDENTITY_LINKED")
    assert IdentityProvider.objects.get().settings == BODY["settings"]
    same = {"server_url": BODY["settings"]["server_url"] + "/", "uid_claim": "sub", "create_users": False}
    assert admin.patch("/identity-providers/company", {"settings": same}).status == 200
    assert admin.delete("/identity-providers/company/links").data == {"deleted": 1}
    assert admin.patch("/identity-providers/company", {"settings": settings}).status == 200


def test_the_organisation_that_wecom_names_stays_while_accounts_are_linked(admin: Api, owner: Api) -> None:
    admin.post("/identity-providers", {**BODY, "kind": "wecom", "settings": {"agent_id": "1"}})
    admin.post("/identity-providers/company/links", {"username": "owner", "uid": "u-1"})
    assert admin.patch("/identity-providers/company", {"clientId": "another"}).error == "IDENTITY_LINKED"
    assert admin.patch("/identity-providers/company", {"settings": {"agent_id": "2"}}).status == 200


def test_a_provider_of_the_environment_that_names_another_issuer_keeps_its_links_closed(
    admin: Api, owner: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMI_OIDC_URL", "https://sso.example.org")
    monkeypatch.setenv("FERMI_OIDC_CLIENT_ID", "fermi")
    link = {"username": "owner", "uid": "u-1"}
    assert admin.post("/identity-providers/sso/links", link).status == 201
    monkeypatch.setenv("FERMI_OIDC_URL", "https://another.example.org")
    refused = admin.post("/identity-providers/sso/links", {**link, "uid": "u-2"})
    assert (refused.status, refused.error) == (409, "IDENTITY_ISSUER_CHANGED")
    assert admin.delete("/identity-providers/sso/links").data == {"deleted": 1}
    assert admin.post("/identity-providers/sso/links", link).status == 201


def test_a_deleted_provider_leaves_no_link_to_one_that_gets_its_id(admin: Api, owner: Api) -> None:
    admin.post("/identity-providers", BODY)
    admin.post("/identity-providers/company/links", {"username": "owner", "uid": "u-1"})
    assert admin.delete("/identity-providers/company").status == 200
    admin.post("/identity-providers", BODY)
    assert admin.get("/identity-providers/company").data["linkCount"] == 0
    assert User.objects.filter(username="owner").exists()


def test_a_token_tries_no_provider_because_it_has_no_browser(admin: Api) -> None:
    admin.post("/identity-providers", BODY)
    assert admin.post("/identity-providers/company/trial", {}).error == "IDENTITY_TRIAL_BROWSER"


def test_providers_of_the_environment_are_offered_and_not_changed(
    admin: Api, anonymous: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMI_OIDC_URL", "https://sso.example.org")
    monkeypatch.setenv("FERMI_OIDC_CLIENT_ID", "fermi")
    monkeypatch.setenv("FERMI_OIDC_CLIENT_SECRET", "very secret")
    offered = anonymous.get("/auth/providers").data["providers"]
    assert offered == [{"id": "sso", "name": "SSO", "kind": "openid_connect"}]
    assert admin.get("/identity-providers/sso").data["readonly"] is True
    assert admin.delete("/identity-providers/sso").error == "IDENTITY_FROM_ENVIRONMENT"
    assert admin.post("/identity-providers", {**BODY, "id": "sso"}).error == "IDENTITY_ID_TAKEN"


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("{", "JSON"),
        ("/nowhere/providers.toml", "/nowhere"),
        ('{"a": 1}', "list"),
        ('[{"id": "Company"}]', "id"),
        ('[{"id": "company", "kind": "carrier-pigeon"}]', "kind"),
        ('[{"id": "company", "client_id": "x", "settings": {"server_url": "ftp://x"}}]', "settings.server_url"),
    ],
)
def test_a_wrong_setting_of_the_environment_is_named_and_stops_nothing(
    anonymous: Api, monkeypatch: pytest.MonkeyPatch, value: str, word: str
) -> None:
    monkeypatch.setenv("FERMI_IDENTITY_PROVIDERS", value)
    assert anonymous.get("/auth/providers").data["providers"] == []
    (error,) = environment.read_environment().errors
    assert "FERMI_IDENTITY_PROVIDERS" in error
    assert word in error
