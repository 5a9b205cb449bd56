"""A person who signs out at the provider is signed out here."""

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, User
from apps.common import rate_limits
from apps.identity.models import IdentityProvider, ProviderSession, UsedLogoutToken
from apps.identity.oidc import description, signed_token
from apps.identity.provider_sessions import delete_expired_rows, delete_expired_tokens
from tests.api.test_identity_sign_in import is_signed_in, make_provider, sign_in
from tests.fakes.openid import OpenIdServer, serve_openid

pytestmark = pytest.mark.database

FORM = "application/x-www-form-urlencoded"
EVENT = "http://schemas.openid.net/event/backchannel-logout"


@pytest.fixture
def server() -> Iterator[OpenIdServer]:
    signed_token.cache.clear()
    description.clear_cache()
    with serve_openid() as running:
        yield running


@pytest.fixture
def provider(db: None, server: OpenIdServer) -> IdentityProvider:
    return make_provider("sso", server)


@pytest.fixture
def browser(client: Client, server: OpenIdServer, provider: IdentityProvider) -> Client:
    sign_in(client, server)
    assert is_signed_in(client)
    return client


def send(token: str, provider_id: str = "sso", **options: Any) -> Any:
    body = options.pop("body", urlencode({"logout_token": token}))
    options.setdefault("content_type", FORM)
    answer = Client(enforce_csrf_checks=True).post(f"/auth/backchannel-logout/{provider_id}", body, **options)
    assert answer["Cache-Control"] == "no-store"
    return answer


def get_refusal(answer: Any) -> str:
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"] == "invalid_request"
    return str(answer.json()["error_description"].partition(":")[0])


def test_the_session_that_the_token_names_ends_and_no_other(browser: Client, server: OpenIdServer) -> None:
    sid = server.sid
    second = Client()
    sign_in(second, server)
    assert send(server.make_logout_token(sid=sid)).status_code == 200
    assert not is_signed_in(browser)
    assert is_signed_in(second)
    event = AuditEvent.objects.get(action="session.end")
    assert (event.target, event.data["sessions"], event.data["reason"]) == ("ada", 1, "signed out at the provider")


def test_all_sessions_of_a_person_end_where_the_token_names_no_session(browser: Client, server: OpenIdServer) -> None:
    second, other = Client(), Client()
    sign_in(second, server)
    server.claims |= {"sub": "u-2", "preferred_username": "grace"}
    sign_in(other, server)
    assert send(server.make_logout_token(sub="u-1", sid=None)).status_code == 200
    assert [is_signed_in(one) for one in (browser, second, other)] == [False, False, True]


def test_a_session_that_the_token_names_alone_ends(browser: Client, server: OpenIdServer) -> None:
    assert send(server.make_logout_token(sub=None)).status_code == 200
    assert not is_signed_in(browser)


def test_a_session_is_found_after_its_key_has_changed(browser: Client, server: OpenIdServer) -> None:
    before = browser.session.session_key
    session = browser.session
    session.cycle_key()
    browser.cookies["sessionid"] = str(session.session_key)
    assert is_signed_in(browser)
    assert session.session_key != before
    send(server.make_logout_token())
    assert not is_signed_in(browser)


def test_sessions_that_began_otherwise_and_tokens_stay(browser: Client, server: OpenIdServer) -> None:
    user = User.objects.get()
    by_link = Client()
    by_link.force_login(user)
    ApiToken.objects.create(user=user)
    send(server.make_logout_token(sid=None))
    assert not is_signed_in(browser)
    assert is_signed_in(by_link)
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize("claims", [{"sid": "unknown"}, {"sub": "unknown", "sid": None}, {"sub": "unknown"}])
def test_a_logout_of_nobody_is_answered_and_ends_nothing(
    browser: Client, server: OpenIdServer, claims: dict[str, Any]
) -> None:
    assert send(server.make_logout_token(**claims)).status_code == 200
    assert is_signed_in(browser)


NOW = time.time()


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"aud": "another-client"}, "IDENTITY_AUDIENCE"),
        ({"iss": "https://elsewhere.example.org"}, "IDENTITY_ISSUER_OTHER"),
        ({"nonce": "n"}, "IDENTITY_LOGOUT_NONCE"),
        ({"events": None}, "IDENTITY_TOKEN_BROKEN"),
        ({"events": {"urn:other": {}}}, "IDENTITY_LOGOUT_EVENT"),
        ({"events": {EVENT: "yes"}}, "IDENTITY_LOGOUT_EVENT"),
        ({"events": [EVENT]}, "IDENTITY_LOGOUT_EVENT"),
        ({"exp": int(NOW) - 60}, "IDENTITY_TOKEN_EXPIRED"),
        ({"iat": int(NOW) - 600}, "IDENTITY_TOKEN_EXPIRED"),
        ({"iat": int(NOW) - 600, "exp": None}, "IDENTITY_TOKEN_EXPIRED"),
        ({"iat": int(NOW) + 86_400}, "IDENTITY_TOKEN_EARLY"),
        ({"iat": None}, "IDENTITY_TOKEN_BROKEN"),
        ({"iat": "1"}, "IDENTITY_TOKEN_BROKEN"),
        ({"jti": None}, "IDENTITY_TOKEN_BROKEN"),
        ({"jti": ""}, "IDENTITY_TOKEN_BROKEN"),
        ({"sub": None, "sid": None}, "IDENTITY_LOGOUT_SUBJECT"),
        ({"sub": "x" * 300}, "IDENTITY_TOKEN_BROKEN"),
        ({"sid": ["x"]}, "IDENTITY_TOKEN_BROKEN"),
        ({"kind": "at+jwt"}, "IDENTITY_LOGOUT_EVENT"),
    ],
)
def test_a_token_that_is_no_logout_token_for_this_platform_is_refused(
    browser: Client, server: OpenIdServer, claims: dict[str, Any], code: str
) -> None:
    assert get_refusal(send(server.make_logout_token(**claims))) == code
    assert is_signed_in(browser)
    assert not UsedLogoutToken.objects.exists()


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_without_the_providers_own_signature_is_refused(
    browser: Client, server: OpenIdServer, algorithm: str
) -> None:
    server.algorithm = algorithm
    assert get_refusal(send(server.make_logout_token())) == "IDENTITY_ALGORITHM"
    assert is_signed_in(browser)


def test_a_token_counts_once(browser: Client, server: OpenIdServer) -> None:
    token = server.make_logout_token()
    assert send(token).status_code == 200
    sign_in(browser, server)
    assert get_refusal(send(token)) == "IDENTITY_LOGOUT_REPLAYED"
    assert is_signed_in(browser)


def test_a_token_of_another_provider_is_refused(browser: Client, server: OpenIdServer) -> None:
    with serve_openid() as other:
        make_provider("other", other)
        forged = other.make_logout_token(iss=server.url, sub="u-1", sid=server.sid)
        assert get_refusal(send(forged)) == "IDENTITY_SIGNATURE"
        assert get_refusal(send(server.make_logout_token(), "other")) == "IDENTITY_SIGNATURE"
        own = other.make_logout_token(sub="u-1", sid=server.sid)
        assert send(own, "other").status_code == 200, "its own sessions, of which there are none"
    assert is_signed_in(browser)


def test_an_id_token_is_no_logout_token(browser: Client, server: OpenIdServer) -> None:
    token = server.answer_with_tokens(jti="x", nonce="n")["id_token"]
    assert get_refusal(send(token)) == "IDENTITY_TOKEN_BROKEN"
    assert is_signed_in(browser)


def test_new_keys_of_the_provider_are_fetched_and_forged_ones_cause_no_requests(
    browser: Client, server: OpenIdServer
) -> None:
    server.rotate_key()
    assert send(server.make_logout_token()).status_code == 200
    before = server.key_requests
    with serve_openid() as other:
        for _ in range(3):
            assert get_refusal(send(other.make_logout_token(iss=server.url))) == "IDENTITY_SIGNATURE"
    assert server.key_requests == before


@pytest.mark.parametrize(
    "options",
    [
        {"body": ""},
        {"body": "logout_token="},
        {"body": "logout_token=a&logout_token=b"},
        {"body": '{"logout_token": "x"}', "content_type": "application/json"},
        {"body": "logout_token=" + "x" * 200_000},
        {"body": b"logout_token=\xff\xfe"},
        {"body": "logout_token=a.b.c"},
    ],
)
def test_a_request_without_a_token_is_refused(browser: Client, server: OpenIdServer, options: dict[str, Any]) -> None:
    code = get_refusal(send("", **options))
    assert code in ("IDENTITY_LOGOUT_FORM", "IDENTITY_TOKEN_MISSING", "IDENTITY_TOKEN_BROKEN")
    assert is_signed_in(browser)


def test_only_post_is_answered(browser: Client, server: OpenIdServer) -> None:
    path = "/auth/backchannel-logout/sso?" + urlencode({"logout_token": server.make_logout_token()})
    assert Client().get(path).status_code == 405
    assert is_signed_in(browser)


def test_an_unknown_provider_is_refused(browser: Client, server: OpenIdServer) -> None:
    assert get_refusal(send(server.make_logout_token(), "nowhere")) == "IDENTITY_PROVIDER_UNKNOWN"


def test_a_disabled_providers_logout_counts(browser: Client, server: OpenIdServer) -> None:
    IdentityProvider.objects.update(enabled=False)
    assert send(server.make_logout_token()).status_code == 200
    assert not is_signed_in(browser)


def test_a_provider_that_does_not_answer_is_asked_once(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    fetch = description.fetch_json

    def note_and_fetch(url: str) -> dict[str, Any]:
        asked.append(url)
        return fetch(url)

    monkeypatch.setattr(description, "fetch_json", note_and_fetch)
    IdentityProvider.objects.update(settings={"server_url": "http://127.0.0.1:9"})
    for _ in range(3):
        assert get_refusal(send(server.make_logout_token())) == "IDENTITY_PROVIDER_SILENT"
    assert len(asked) == 1
    assert is_signed_in(browser)


def test_an_address_that_sends_too_many_is_refused(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = rate_limits.RateState("logout", 120, False, 0, 2.5, 30.0)
    monkeypatch.setattr(rate_limits, "count_request", lambda *args, **values: refused)
    answer = send(server.make_logout_token())
    assert (answer.status_code, answer["Retry-After"]) == (429, "3")
    assert ProviderSession.objects.exists()


def test_what_is_stored_of_sessions_goes_with_them(browser: Client, server: OpenIdServer, settings: Any) -> None:
    assert ProviderSession.objects.count() == 1
    sign_in(browser, server)
    assert ProviderSession.objects.count() == 1, "a second sign-in of the same browser replaces the first"
    settings.SESSION_COOKIE_AGE = -1
    delete_expired_rows()
    assert ProviderSession.objects.count() == 1, "its session is still valid"
    browser.session.delete()
    delete_expired_rows()
    assert not ProviderSession.objects.exists()


def test_signing_out_here_deletes_what_was_stored(browser: Client) -> None:
    browser.delete("/_allauth/browser/v1/auth/session")
    assert not is_signed_in(browser)
    assert not ProviderSession.objects.exists()


def test_tokens_are_remembered_until_their_age_refuses_them(browser: Client, server: OpenIdServer) -> None:
    send(server.make_logout_token())
    delete_expired_tokens()
    assert UsedLogoutToken.objects.count() == 1
    UsedLogoutToken.objects.update(expires_at="2020-01-01T00:00:00Z")
    delete_expired_tokens()
    assert not UsedLogoutToken.objects.exists()


def test_signing_out_here_leads_to_the_providers_page_where_it_is_set_so(
    browser: Client, server: OpenIdServer, provider: IdentityProvider
) -> None:
    def sign_out() -> str | None:
        answer = browser.post("/api/v1/auth/sign-out", {}, content_type="application/json")
        assert answer.status_code == 200, answer.content
        assert not is_signed_in(browser)
        url: str | None = answer.json()["data"]["url"]
        return url

    assert sign_out() is None
    IdentityProvider.objects.update(settings={**provider.settings, "sign_out_there": True})
    sign_in(browser, server)
    parts = urlsplit(str(sign_out()))
    assert f"{parts.scheme}://{parts.netloc}{parts.path}" == f"{server.url}/end-session"
    assert parse_qs(parts.query) == {
        "client_id": ["fermi"],
        "logout_hint": ["u-1"],
        "post_logout_redirect_uri": ["http://testserver/sign-in"],
    }
    assert not ProviderSession.objects.exists()
    browser.force_login(User.objects.get())
    assert sign_out() is None, "this session did not begin by the provider"


def test_who_signs_out_while_the_provider_is_silent_is_signed_out_here(browser: Client, server: OpenIdServer) -> None:
    IdentityProvider.objects.update(settings={"server_url": "http://127.0.0.1:9", "sign_out_there": True})
    answer = browser.post("/api/v1/auth/sign-out", {}, content_type="application/json")
    assert (answer.status_code, answer.json()["data"]) == (200, {"url": None})
    assert not is_signed_in(browser)


@pytest.mark.parametrize("address", [None, 7, "http://evil.example.org/out", "javascript:alert(1)"])
def test_no_browser_is_sent_to_what_is_no_address_of_a_provider(
    browser: Client, server: OpenIdServer, monkeypatch: pytest.MonkeyPatch, address: Any
) -> None:
    described = server.describe() | {"end_session_endpoint": address}
    monkeypatch.setattr(server, "describe", lambda: described)
    IdentityProvider.objects.update(settings={"server_url": server.url, "sign_out_there": True})
    answer = browser.post("/api/v1/auth/sign-out", {}, content_type="application/json")
    assert answer.json()["data"] == {"url": None}


def test_a_token_does_not_end_by_signing_out(browser: Client) -> None:
    _, token = ApiToken.objects.create(user=User.objects.get())
    headers = {"Authorization": f"Bearer {token}"}
    answer = Client().post("/api/v1/auth/sign-out", {}, content_type="application/json", headers=headers)
    assert answer.json()["data"] == {"url": None}
    assert Client().get("/api/v1/auth/me", headers=headers).status_code == 200


def test_signing_out_needs_a_sign_in(client: Client, db: None) -> None:
    assert client.post("/api/v1/auth/sign-out", {}, content_type="application/json").status_code == 401
