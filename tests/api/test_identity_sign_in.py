import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.test import Client
from django.utils.html import escape

from apps.accounts.encryption import encrypt_value
from apps.accounts.models import AuditEvent, User
from apps.common.clock import now
from apps.common.texts import render_text
from apps.identity.models import IdentityProvider
from apps.identity.oidc import signed_token
from tests.fakes.openid import OpenIdServer, serve_openid

pytestmark = pytest.mark.database


@pytest.fixture
def server() -> Iterator[OpenIdServer]:
    signed_token.cache.clear()
    with serve_openid() as running:
        yield running


@pytest.fixture
def provider(db: None, server: OpenIdServer) -> IdentityProvider:
    return make_provider("sso", server)


def make_provider(provider_id: str, server: OpenIdServer, **settings: Any) -> IdentityProvider:
    return IdentityProvider.objects.create(
        id=provider_id,
        kind="openid_connect",
        name="Company",
        client_id=server.client_id,
        secret=encrypt_value(server.secret),
        settings={"server_url": server.url, **settings},
        created_at=now(),
        updated_at=now(),
    )


def start(client: Client, provider_id: str = "sso", next_path: str = "/tasks?page=2") -> str:
    answer = client.post(
        f"/api/v1/auth/providers/{provider_id}/start", {"next": next_path}, content_type="application/json"
    )
    assert answer.status_code == 200, answer.content
    return str(answer.json()["data"]["url"])


def return_to(client: Client, params: dict[str, str], provider_id: str = "sso") -> str:
    """Return where the platform sends a browser that came back with these parameters."""
    answer = client.get(f"/auth/oidc/{provider_id}/login/callback/?{urlencode(params)}")
    assert answer.status_code == 302, answer.content
    return answer["Location"]


def sign_in(client: Client, server: OpenIdServer, **options: Any) -> str:
    return return_to(client, server.authorize(start(client, **options)))


def get_refusal(location: str) -> str:
    parts = urlsplit(location)
    assert parts.path == "/sign-in", location
    return parse_qs(parts.query)["error"][0]


def is_signed_in(client: Client) -> bool:
    return client.get("/api/v1/auth/me").status_code == 200


def test_a_new_person_gets_an_account_without_a_role(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    server.claims |= {"email": "ada@example.org", "email_verified": True, "groups": ["ml"]}
    assert sign_in(client, server) == "/tasks?page=2"
    me = client.get("/api/v1/auth/me").json()["data"]
    assert (me["username"], me["projects"], me["isAdministrator"]) == ("ada", [], False)
    account = SocialAccount.objects.get()
    assert (account.provider, account.uid) == ("sso", "u-1")
    assert account.extra_data["id_token"]["groups"] == ["ml"]
    assert not account.user.has_usable_password()


def test_a_sign_in_is_in_the_audit_trail_with_its_provider(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    event = AuditEvent.objects.get(action="user.sign-in")
    assert (event.actor, event.target, event.data) == (User.objects.get(), User.objects.get().username, {"by": "sso"})


def test_gitlab_is_not_asked_for_a_scope_that_it_refuses(client: Client, server: OpenIdServer) -> None:
    for kind, asked in (("keycloak", True), ("gitlab", False)):
        provider = make_provider(kind, server, scopes=["offline_access", "read_user"])
        IdentityProvider.objects.filter(pk=provider.pk).update(kind=kind)
        scope = parse_qs(urlsplit(start(client, provider_id=kind)).query)["scope"][0].split()
        assert ("offline_access" in scope, "read_user" in scope) == (asked, True)


def test_the_same_person_gets_the_same_account(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    server.claims["preferred_username"] = "ada.l"
    assert sign_in(Client(), server) == "/tasks?page=2"
    assert User.objects.filter(socialaccount__uid="u-1").count() == User.objects.count() == 1


def test_no_secret_and_no_token_is_in_allauths_tables(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    assert not SocialApp.objects.exists()
    assert not SocialToken.objects.exists()
    assert server.secret not in provider.secret


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"nonce": "another"}, "IDENTITY_NONCE"),
        ({"nonce": None}, "IDENTITY_NONCE"),
        ({"aud": "another-client"}, "IDENTITY_AUDIENCE"),
        ({"aud": ["fermi", "another-client"]}, "IDENTITY_AUDIENCE"),
        ({"azp": "another-client"}, "IDENTITY_AUDIENCE"),
        ({"iss": "https://elsewhere.example.org"}, "IDENTITY_ISSUER_OTHER"),
        ({"exp": 1_600_000_000}, "IDENTITY_TOKEN_EXPIRED"),
        ({"exp": None}, "IDENTITY_TOKEN_BROKEN"),
        ({"sub": None}, "IDENTITY_TOKEN_BROKEN"),
    ],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(
    client: Client, server: OpenIdServer, provider: IdentityProvider, claims: dict[str, Any], code: str
) -> None:
    server.claims |= claims
    assert get_refusal(sign_in(client, server)) == code
    assert not is_signed_in(client)
    assert not User.objects.exists()


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "u\x00"},
        {"sub": "\ud800"},
        {"preferred_username": "a\x00b"},
        {"name": "\ud800"},
        {"groups": ["ml", "\x00"]},
        {"\x00": "name of a claim"},
        {"deep": json.loads("[" * 60 + "]" * 60)},
    ],
)
def test_claims_that_cannot_be_stored_let_nobody_in(
    client: Client, server: OpenIdServer, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    server.claims |= claims
    assert get_refusal(sign_in(client, server)) == "IDENTITY_ANSWER"
    assert not User.objects.exists()


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_without_the_providers_own_signature_is_refused(
    client: Client, server: OpenIdServer, provider: IdentityProvider, algorithm: str
) -> None:
    server.algorithm = algorithm
    assert get_refusal(sign_in(client, server)) == "IDENTITY_ALGORITHM"


def test_clocks_may_differ_by_half_a_minute_and_no_more(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    seconds = int(now().timestamp())
    server.claims |= {"exp": seconds - 15, "iat": seconds + 15}
    assert sign_in(client, server) == "/tasks?page=2"
    server.claims |= {"exp": seconds + 600, "iat": seconds + 300}
    assert get_refusal(sign_in(Client(), server)) == "IDENTITY_TOKEN_EARLY"


def test_keys_that_were_rotated_are_fetched_once_more(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    server.rotate_key()
    assert sign_in(Client(), server) == "/tasks?page=2"
    assert server.key_requests == 2


def test_a_signature_of_an_unknown_key_is_refused(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    published = server.list_keys()
    server.list_keys = lambda: published  # type: ignore[method-assign]
    server.rotate_key()
    assert get_refusal(sign_in(client, server)) == "IDENTITY_SIGNATURE"


def test_an_answer_counts_once(client: Client, server: OpenIdServer, provider: IdentityProvider) -> None:
    params = server.authorize(start(client))
    return_to(client, params)
    assert get_refusal(return_to(client, params)) == "IDENTITY_STATE_UNKNOWN"


def test_an_answer_counts_in_the_browser_that_began_alone(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    params = server.authorize(start(client))
    assert get_refusal(return_to(Client(), params)) == "IDENTITY_STATE_UNKNOWN"


def test_an_answer_of_one_provider_does_not_count_at_another(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    with serve_openid() as other:
        make_provider("other", other)
        params = server.authorize(start(client))
        assert get_refusal(return_to(client, params, "other")) == "IDENTITY_STATE_UNKNOWN"
        assert other.codes == {}
        assert not is_signed_in(client)


def test_a_code_that_names_another_issuer_goes_to_nobody(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    server.names_issuer = True
    params = server.authorize(start(client)) | {"iss": "https://elsewhere.example.org"}
    assert get_refusal(return_to(client, params)) == "IDENTITY_ISSUER_OTHER"
    assert params["code"] in server.codes
    params = server.authorize(start(client))
    del params["iss"]
    assert get_refusal(return_to(client, params)) == "IDENTITY_ISSUER_OTHER"
    assert sign_in(client, server) == "/tasks?page=2"


@pytest.mark.parametrize(
    "path", ["https://evil.example.org/", "//evil.example.org", "/\\evil.example.org", "javascript:alert(1)", "/a\nb"]
)
def test_nobody_is_sent_to_another_site_afterwards(
    client: Client, server: OpenIdServer, provider: IdentityProvider, path: str
) -> None:
    assert sign_in(client, server, next_path=path) == "/"


def test_what_the_provider_refuses_is_shown(client: Client, server: OpenIdServer, provider: IdentityProvider) -> None:
    state = server.authorize(start(client))["state"]
    assert get_refusal(return_to(client, {"error": "access_denied", "state": state})) == "IDENTITY_CANCELLED"
    server.secret = "changed"
    assert get_refusal(sign_in(client, server)) == "IDENTITY_CODE_REFUSED"


def test_a_provider_that_does_not_answer_is_named_on_the_sign_in_page(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    IdentityProvider.objects.update(settings={"server_url": "http://127.0.0.1:9"})
    assert get_refusal(start(client)) == "IDENTITY_PROVIDER_SILENT"


def test_userinfo_about_another_person_is_refused(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    server.userinfo = {"sub": "u-2"}
    assert get_refusal(sign_in(client, server)) == "IDENTITY_USERINFO_OTHER"


@pytest.mark.parametrize("verified", [True, False])
def test_an_address_alone_opens_no_account(
    client: Client, server: OpenIdServer, provider: IdentityProvider, verified: bool
) -> None:
    User.objects.create_user("grace", email="grace@example.org")
    server.claims |= {"email": "grace@example.org", "email_verified": verified}
    assert get_refusal(sign_in(client, server)) == "IDENTITY_EMAIL_TAKEN"
    assert not SocialAccount.objects.exists()


def test_a_verified_address_opens_an_account_where_the_provider_is_set_so(client: Client, server: OpenIdServer) -> None:
    make_provider("sso", server, link_by_verified_email=True)
    user = User.objects.create_user("grace", email="grace@example.org")
    server.claims |= {"email": "grace@example.org", "email_verified": False}
    assert get_refusal(sign_in(client, server)) == "IDENTITY_EMAIL_TAKEN"
    server.claims["email_verified"] = True
    assert sign_in(client, server) == "/tasks?page=2"
    assert SocialAccount.objects.get().user == user


def test_an_administrators_account_is_never_opened_by_an_address(client: Client, server: OpenIdServer) -> None:
    make_provider("sso", server, link_by_verified_email=True)
    User.objects.create_superuser("root", email="root@example.org")
    server.claims |= {"email": "root@example.org", "email_verified": True}
    assert get_refusal(sign_in(client, server)) == "IDENTITY_EMAIL_TAKEN"


def test_a_provider_may_let_in_only_people_with_an_account(client: Client, server: OpenIdServer) -> None:
    make_provider("sso", server, create_users=False)
    assert get_refusal(sign_in(client, server)) == "IDENTITY_USER_UNKNOWN"
    user = User.objects.create_user("ada")
    SocialAccount.objects.create(user=user, provider="sso", uid="u-1")
    assert sign_in(client, server) == "/tasks?page=2"


def test_a_provider_may_let_in_only_verified_addresses_of_some_domains(client: Client, server: OpenIdServer) -> None:
    make_provider("sso", server, allowed_domains=["example.org"])
    for email, verified in (("ada@elsewhere.net", True), ("ada@example.org", False)):
        server.claims |= {"email": email, "email_verified": verified}
        assert get_refusal(sign_in(client, server)) == "IDENTITY_DOMAIN"
    server.claims["email_verified"] = True
    assert sign_in(client, server) == "/tasks?page=2"
    assert EmailAddress.objects.get().verified


def test_an_address_of_a_domain_at_google_is_no_membership_of_its_organisation(
    client: Client, server: OpenIdServer
) -> None:
    make_provider("sso", server, allowed_domains=["example.org"])
    IdentityProvider.objects.update(kind="google")
    server.claims |= {"email": "ada@example.org", "email_verified": True}
    server.userinfo = {"hd": "example.org"}
    for organisation in (None, "elsewhere.net"):
        server.claims["hd"] = organisation
        assert get_refusal(sign_in(client, server)) == "IDENTITY_DOMAIN"
    server.claims["hd"] = "example.org"
    assert sign_in(client, server) == "/tasks?page=2"


def test_the_issuer_of_many_tenants_is_no_issuer(client: Client, server: OpenIdServer) -> None:
    make_provider("sso", server)
    described = {**server.describe(), "issuer": "https://login.microsoftonline.com/{tenantid}/v2.0"}
    server.describe = lambda: described  # type: ignore[method-assign]
    assert get_refusal(start(client)) == "IDENTITY_DISCOVERY"


def test_an_account_that_is_switched_off_stays_closed(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    sign_in(client, server)
    User.objects.update(is_active=False)
    assert get_refusal(sign_in(Client(), server)) == "IDENTITY_USER_INACTIVE"


def test_a_disabled_provider_neither_begins_nor_ends_a_sign_in(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    params = server.authorize(start(client))
    IdentityProvider.objects.update(enabled=False)
    assert get_refusal(return_to(client, params)) == "IDENTITY_PROVIDER_UNKNOWN"
    assert client.post("/api/v1/auth/providers/sso/start", {}, content_type="application/json").status_code == 404
    assert client.get("/api/v1/auth/providers").json()["data"]["providers"] == []


def test_a_trial_shows_the_claims_and_changes_nothing(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    root = User.objects.create_superuser("root")
    client.force_login(root)
    IdentityProvider.objects.update(enabled=False)
    url = client.post("/api/v1/identity-providers/sso/trial", {}, content_type="application/json").json()["data"]["url"]
    page = client.get(f"/auth/oidc/sso/login/callback/?{urlencode(server.authorize(url))}")
    assert page.status_code == 200
    assert "preferred_username" in page.content.decode()
    assert client.get("/api/v1/auth/me").json()["data"]["username"] == "root"
    assert User.objects.count() == 1
    assert not SocialAccount.objects.exists()


def test_a_trial_names_the_groups_that_the_provider_left_out(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    client.force_login(User.objects.create_superuser("root"))
    server.claims |= {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": "https://x"}}}
    url = client.post("/api/v1/identity-providers/sso/trial", {}, content_type="application/json").json()["data"]["url"]
    page = client.get(f"/auth/oidc/sso/login/callback/?{urlencode(server.authorize(url))}").content.decode()
    for text in render_text("IDENTITY_CLAIMS_LEFT_OUT", {"claims": "groups"}):
        assert escape(text) in page


def test_a_token_from_elsewhere_signs_nobody_in(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    body = {"provider": "sso", "process": "login", "token": {"client_id": "fermi", "id_token": "x.y.z"}}
    answer = client.post("/_allauth/browser/v1/auth/provider/token", body, content_type="application/json")
    assert answer.status_code == 400
    assert not is_signed_in(client)


def test_passwords_can_be_switched_off_while_links_and_providers_work(
    client: Client, server: OpenIdServer, provider: IdentityProvider, settings: Any
) -> None:
    User.objects.create_user("grace", password="correct horse")
    settings.LOCAL_ACCOUNTS = False
    body = {"username": "grace", "password": "correct horse"}
    answer = client.post("/_allauth/browser/v1/auth/login", body, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["code"] == "local_accounts_off"
    assert client.get("/api/v1/auth/providers").json()["data"] == {
        "localAccounts": False,
        "passwords": False,
        "providers": [{"id": "sso", "name": "Company", "kind": "openid_connect"}],
        "refusal": None,
    }
    assert sign_in(client, server) == "/tasks?page=2"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("auth/signup", {"username": "new", "password": "correct horse battery"}),
        ("auth/password/request", {"email": "grace@example.org"}),
        ("account/password/change", {"new_password": "correct horse battery"}),
    ],
)
def test_no_password_is_made_where_passwords_are_switched_off(
    client: Client, db: None, settings: Any, path: str, body: dict[str, str]
) -> None:
    settings.LOCAL_ACCOUNTS, settings.SIGNUP = False, True
    grace = User.objects.create_user("grace", email="grace@example.org")
    if path.startswith("account"):
        client.force_login(grace)
    answer = client.post(f"/_allauth/browser/v1/{path}", body, content_type="application/json")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "local_accounts_off")
    assert not any(one.has_usable_password() for one in User.objects.all())


def test_the_sign_in_page_learns_why_a_sign_in_was_refused(client: Client, db: None) -> None:
    refusal = client.get("/api/v1/auth/providers", {"error": "IDENTITY_NONCE"}).json()["data"]["refusal"]
    assert refusal["error"] == "IDENTITY_NONCE"
    assert refusal["message"]
    for written in ("FORBIDDEN", "IDENTITY_NO_SUCH_CODE", "<b>"):
        assert client.get("/api/v1/auth/providers", {"error": written}).json()["data"]["refusal"] is None


def test_a_provider_of_the_environment_opens_no_account_that_another_issuer_knew(
    client: Client, db: None, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERMI_OIDC_URL", server.url)
    monkeypatch.setenv("FERMI_OIDC_CLIENT_ID", server.client_id)
    monkeypatch.setenv("FERMI_OIDC_CLIENT_SECRET", server.secret)
    assert sign_in(client, server) == "/tasks?page=2"
    before = SocialAccount.objects.get().extra_data
    with serve_openid() as other:
        monkeypatch.setenv("FERMI_OIDC_URL", other.url)
        other.claims["groups"] = ["administrators"]
        assert get_refusal(sign_in(Client(), other)) == "IDENTITY_ISSUER_CHANGED"
    assert SocialAccount.objects.get().extra_data == before
    monkeypatch.setenv("FERMI_OIDC_URL", server.url)
    assert sign_in(Client(), server) == "/tasks?page=2"


def test_an_account_with_a_second_factor_is_not_signed_in_by_the_provider_alone(
    client: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    user = User.objects.create_user("ada")
    SocialAccount.objects.create(user=user, provider="sso", uid="u-1")
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": "JBSWY3DPEHPK3PXP"})
    assert sign_in(client, server) == "/tasks?page=2"
    assert not is_signed_in(client)
    flows = client.get("/_allauth/browser/v1/auth/session").json()["data"]["flows"]
    assert [flow["is_pending"] for flow in flows if flow["id"] == "mfa_authenticate"] == [True]
