"""Sign-in by Feishu, DingTalk and WeCom, at servers on loopback that answer as theirs do."""

import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest
from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialAccount
from django.test import Client

from apps.accounts.encryption import encrypt_value
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.texts import render_text
from apps.identity import http
from apps.identity.models import IdentityProvider
from tests.api.conftest import Api
from tests.api.test_identity_sign_in import get_refusal, is_signed_in, start
from tests.fakes.vendors import VendorServer, serve_vendors

pytestmark = pytest.mark.database

SETTINGS: dict[str, dict[str, Any]] = {
    "feishu": {"tenant_key": "firm"},
    "lark": {"tenant_key": "firm"},
    "dingtalk": {"corp_id": "firm"},
    "wecom": {"agent_id": "1000002"},
}
KINDS = pytest.mark.parametrize("kind", SETTINGS)


@pytest.fixture
def server() -> Iterator[VendorServer]:
    with serve_vendors() as running:
        yield running


def make_provider(kind: str, server: VendorServer, **settings: Any) -> IdentityProvider:
    return IdentityProvider.objects.create(
        id="firm",
        kind=kind,
        name="Firm",
        client_id=server.client_id,
        secret=encrypt_value(server.secret),
        settings={**SETTINGS[kind], "server_url": server.url, "authorize_url": f"{server.url}/sign-in", **settings},
        created_at=now(),
        updated_at=now(),
    )


def return_to(client: Client, params: dict[str, str]) -> str:
    answer = client.get(f"/auth/vendors/firm/login/callback/?{urlencode(params)}")
    assert answer.status_code == 302, answer.content
    return answer["Location"]


def sign_in(client: Client, server: VendorServer) -> str:
    return return_to(client, server.authorize(start(client, "firm")))


@KINDS
def test_a_new_person_gets_an_account_and_comes_back_to_it(
    client: Client, db: None, server: VendorServer, kind: str
) -> None:
    make_provider(kind, server)
    assert sign_in(client, server) == "/tasks?page=2"
    assert is_signed_in(client)
    server.name = "Renamed"
    assert sign_in(Client(), server) == "/tasks?page=2"
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid) == ("firm", "p-1")
    assert "138" not in str(account.extra_data)
    assert User.objects.count() == 1
    assert not EmailAddress.objects.exists()


@KINDS
def test_people_of_another_organisation_are_refused(client: Client, db: None, server: VendorServer, kind: str) -> None:
    make_provider(kind, server)
    server.tenant, server.member = "another", False
    assert get_refusal(sign_in(client, server)) == "IDENTITY_TENANT_OTHER"
    assert not is_signed_in(client)
    assert not User.objects.exists()


@pytest.mark.parametrize("kind", ["feishu", "dingtalk"])
def test_an_answer_that_names_no_organisation_is_refused(
    client: Client, db: None, server: VendorServer, kind: str
) -> None:
    make_provider(kind, server)
    server.tenant = ""
    assert get_refusal(sign_in(client, server)) == "IDENTITY_TENANT_OTHER"


@KINDS
def test_a_code_counts_once_and_in_the_browser_that_began_alone(
    client: Client, db: None, server: VendorServer, kind: str
) -> None:
    make_provider(kind, server)
    params = server.authorize(start(client, "firm"))
    assert get_refusal(return_to(Client(), params)) == "IDENTITY_STATE_UNKNOWN"
    assert return_to(client, params) == "/tasks?page=2"
    assert get_refusal(return_to(client, params)) == "IDENTITY_STATE_UNKNOWN"
    again = {**params, "state": server.authorize(start(client, "firm"))["state"]}
    assert get_refusal(return_to(client, again)) == "IDENTITY_CODE_REFUSED"


@KINDS
def test_a_wrong_secret_is_refused_and_is_not_in_the_log(
    client: Client, db: None, server: VendorServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_provider(kind, server)
    sent, server.secret = server.secret, "changed"
    with caplog.at_level(logging.INFO):
        code = get_refusal(sign_in(client, server))
    assert code == ("IDENTITY_CLIENT_REFUSED" if kind == "wecom" else "IDENTITY_CODE_REFUSED")
    assert sent not in caplog.text


@KINDS
def test_a_vendor_that_does_not_answer_leaves_no_secret_in_the_log(
    client: Client, db: None, server: VendorServer, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    make_provider(kind, server, server_url="http://127.0.0.1:9")
    assert get_refusal(sign_in(client, server)) == "IDENTITY_PROVIDER_SILENT"
    assert "127.0.0.1" in caplog.text
    assert server.secret not in caplog.text
    assert "corpsecret" not in caplog.text


@KINDS
def test_an_answer_without_end_is_refused(client: Client, db: None, server: VendorServer, kind: str) -> None:
    make_provider(kind, server)
    server.filler = http.MAX_ANSWER_BYTES
    assert get_refusal(sign_in(client, server)) == "IDENTITY_PROVIDER_SILENT"


def test_an_answer_that_comes_byte_by_byte_is_given_up(client: Client, db: None, monkeypatch: Any) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_SECONDS", 0.2)
    with serve_vendors(pause=0.02) as server:
        make_provider("wecom", server)
        assert get_refusal(sign_in(client, server)) == "IDENTITY_PROVIDER_SILENT"


@KINDS
def test_who_goes_back_at_the_vendor_is_told_so(client: Client, db: None, server: VendorServer, kind: str) -> None:
    make_provider(kind, server)
    state = server.authorize(start(client, "firm"))["state"]
    params = {"state": state, **({} if kind == "wecom" else {"error": "access_denied"})}
    assert get_refusal(return_to(client, params)) == "IDENTITY_CANCELLED"


@pytest.mark.parametrize(
    ("kind", "groups"),
    [
        ("feishu", ["department:od-1", "department:od-2", "group:g-1", "group:g-2"]),
        ("dingtalk", ["department:2", "department:3", "role:507113"]),
        ("wecom", ["department:1", "department:7"]),
    ],
)
def test_departments_become_groups_where_the_provider_is_set_so(
    client: Client, db: None, server: VendorServer, kind: str, groups: list[str]
) -> None:
    make_provider(kind, server, fetch_groups=True)
    server.groups = ["g-1", "g-2"]
    assert sign_in(client, server) == "/tasks?page=2"
    assert SocialAccount.objects.get().extra_data["userinfo"]["groups"] == groups


@pytest.mark.parametrize("kind", ["feishu", "dingtalk", "wecom"])
def test_nobody_signs_in_whose_groups_cannot_be_read(client: Client, db: None, server: VendorServer, kind: str) -> None:
    make_provider(kind, server, fetch_groups=True)
    server.visible = False
    assert get_refusal(sign_in(client, server)) == "IDENTITY_GROUPS"
    assert not User.objects.exists()


def test_an_external_contact_of_dingtalk_is_refused(client: Client, db: None, server: VendorServer) -> None:
    make_provider("dingtalk", server, fetch_groups=True)
    server.member = False
    assert get_refusal(sign_in(client, server)) == "IDENTITY_TENANT_OTHER"


@pytest.mark.parametrize("kind", ["feishu", "wecom"])
def test_a_disabled_member_is_refused(client: Client, db: None, server: VendorServer, kind: str) -> None:
    make_provider(kind, server, fetch_groups=True)
    server.active = False
    assert get_refusal(sign_in(client, server)) == "IDENTITY_USER_INACTIVE"


@KINDS
def test_a_trial_shows_the_claims_and_changes_nothing(
    client: Client, db: None, server: VendorServer, kind: str
) -> None:
    make_provider(kind, server)
    IdentityProvider.objects.update(enabled=False)
    client.force_login(User.objects.create_superuser("root"))
    url = client.post("/api/v1/identity-providers/firm/trial", {}, content_type="application/json").json()["data"][
        "url"
    ]
    page = client.get(f"/auth/vendors/firm/login/callback/?{urlencode(server.authorize(url))}")
    assert "p-1" in page.content.decode()
    assert User.objects.count() == 1
    assert not SocialAccount.objects.exists()
    assert client.post("/api/v1/auth/providers/firm/start", {}, content_type="application/json").status_code == 404


@KINDS
def test_an_administrator_sets_it_up_with_the_organisation_that_may_sign_in(admin: Api, kind: str) -> None:
    body = {"id": "firm", "kind": kind, "name": "Firm", "clientId": "client", "secret": "s", "settings": {}}
    (required,) = SETTINGS[kind]
    assert f"settings.{required}" in admin.post("/identity-providers", body).problems
    made = admin.post("/identity-providers", {**body, "settings": SETTINGS[kind]})
    assert made.status == 201
    assert made.data["callbackUrl"].endswith("/auth/vendors/firm/login/callback/")
    wrong = {**SETTINGS[kind], "link_by_verified_email": True}
    answer = admin.patch("/identity-providers/firm", {"settings": wrong})
    assert "settings.link_by_verified_email" in answer.problems


def test_the_addresses_of_one_way_of_signing_in_do_not_serve_another(
    client: Client, db: None, server: VendorServer
) -> None:
    make_provider("feishu", server)
    params = server.authorize(start(client, "firm"))
    answer = client.get(f"/auth/oidc/firm/login/callback/?{urlencode(params)}")
    assert get_refusal(answer["Location"]) == "IDENTITY_PROVIDER_UNKNOWN"
    assert not is_signed_in(client)


def test_a_trial_names_the_organisation_that_is_to_be_entered(client: Client, db: None, server: VendorServer) -> None:
    make_provider("feishu", server, tenant_key="unknown")
    client.force_login(User.objects.create_superuser("root"))
    url = client.post("/api/v1/identity-providers/firm/trial", {}, content_type="application/json").json()["data"][
        "url"
    ]
    page = client.get(f"/auth/vendors/firm/login/callback/?{urlencode(server.authorize(url))}").content.decode()
    assert "firm" in page
    assert render_text("IDENTITY_TENANT_OTHER")[0] in page
    assert not SocialAccount.objects.exists()
