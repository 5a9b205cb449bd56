"""Programs get access that a person granted in the browser: codes, tokens, devices, registration."""

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from allauth.idp.oidc.models import Client as OAuthClient
from allauth.idp.oidc.models import Token
from django.core.cache import cache
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, User
from apps.common.clock import now
from apps.common.row_bounds import MAX_ROWS
from apps.oauth.models import Grant, GrantToken
from apps.oauth.services.clients import CLI_CLIENT, REQUESTABLE
from fermi.mcp.tools import TOOLS
from tests.api.conftest import Api

pytestmark = pytest.mark.database

CLI_REDIRECT = "http://127.0.0.1:51234/callback"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
APP_REDIRECT = "https://app.example.org/callback"


@pytest.fixture(autouse=True)
def _empty_cache() -> None:
    cache.clear()


@dataclass
class Browser:
    """The console in a browser, signed in as one person."""

    user: User | None

    def __post_init__(self) -> None:
        self.client = Client(raise_request_exception=False)
        if self.user:
            self.client.force_login(self.user, backend="allauth.account.auth_backends.AuthenticationBackend")

    def post(self, path: str, **body: Any) -> Any:
        return self.client.post(f"/api/v1/oauth/{path}", body, content_type="application/json")

    def grant(self, query: str, scopes: list[str], **more: Any) -> dict[str, str]:
        """Return the parameters with which the browser comes back to the program."""
        answer = self.post("authorizations", query=query, approve=True, scopes=scopes, **more)
        assert answer.status_code == 200, answer.content
        return read_params(answer.json()["data"]["redirect"])


def read_params(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def make_request(**changes: str | None) -> tuple[str, str]:
    """Return the query string of a program's request, and the verifier that belongs to its challenge."""
    verifier = secrets.token_urlsafe(48)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    params = {
        "response_type": "code",
        "client_id": CLI_CLIENT,
        "redirect_uri": CLI_REDIRECT,
        "scope": "all",
        "state": "state-1",
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        **changes,
    }
    return urlencode({name: value for name, value in params.items() if value is not None}), verifier


def post_form(path: str, **form: str) -> Any:
    return Client(raise_request_exception=False).post(
        f"/oauth/{path}", urlencode(form), content_type="application/x-www-form-urlencoded"
    )


def redeem(code: str, verifier: str, **changes: str) -> Any:
    form = {"client_id": CLI_CLIENT, "redirect_uri": CLI_REDIRECT, "code": code, "code_verifier": verifier}
    return post_form("token", grant_type="authorization_code", **{**form, **changes})


def register(**changes: Any) -> Any:
    body = {
        "client_name": "Assistant",
        "redirect_uris": [APP_REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        **changes,
    }
    return Client(raise_request_exception=False).post("/oauth/clients", body, content_type="application/json")


def get_status(token: str, path: str = "/auth/me") -> int:
    return Client().get(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"}).status_code


@pytest.fixture
def browser(owner: Api) -> Browser:
    return Browser(owner.user)


@pytest.fixture
def app_client() -> str:
    return register().json()["client_id"]


def get_app_tokens(browser: Browser, client_id: str, scopes: list[str], **more: Any) -> dict[str, Any]:
    query, verifier = make_request(client_id=client_id, redirect_uri=APP_REDIRECT, scope=" ".join(scopes))
    code = browser.grant(query, scopes, **more)["code"]
    answer = redeem(code, verifier, client_id=client_id, redirect_uri=APP_REDIRECT)
    assert answer.status_code == 200, answer.content
    return answer.json()


def test_the_command_line_gets_a_token_with_all_rights_for_the_chosen_days(browser: Browser, owner: Api) -> None:
    query, verifier = make_request()
    back = browser.grant(query, ["all"], days=7)
    assert back["state"] == "state-1"
    assert back["iss"] == "http://testserver"
    answer = redeem(back["code"], verifier)
    assert answer.status_code == 200, answer.content
    body = answer.json()
    assert "no-store" in answer["Cache-Control"]
    assert body["access_token"].startswith("fermi_")
    assert "refresh_token" not in body
    assert 7 * 86400 - 60 <= body["expires_in"] <= 7 * 86400
    assert get_status(body["access_token"]) == 200
    stored = ApiToken.objects.get(user=owner.user, name="Fermi CLI")
    assert (stored.scopes, stored.projects) == (None, None)
    assert not Token.objects.filter(type=Token.Type.REFRESH_TOKEN).exists()


def test_what_the_person_grants_is_what_the_token_may_do(browser: Browser, app_client: str) -> None:
    tokens = get_app_tokens(browser, app_client, ["tasks:read"], projects=["project-one"])
    assert tokens["scope"] == "tasks:read"
    assert tokens["expires_in"] <= 3600
    assert get_status(tokens["access_token"], "/training-tasks") == 200
    assert get_status(tokens["access_token"], "/tokens") == 403
    stored = ApiToken.objects.get(name="Assistant")
    assert (stored.scopes, stored.projects) == (["tasks:read"], ["project-one"])


def test_the_person_may_grant_less_than_was_requested(browser: Browser, app_client: str) -> None:
    query, verifier = make_request(
        client_id=app_client, redirect_uri=APP_REDIRECT, scope="tasks:read tasks:write data:read"
    )
    shown = browser.post("authorizations/describe", query=query).json()["data"]
    assert shown["scopes"] == ["tasks:read", "tasks:write", "data:read"]
    assert (shown["client"], shown["firstParty"], shown["redirectHost"]) == ("Assistant", False, "app.example.org")
    code = browser.grant(query, ["data:read"])["code"]
    body = redeem(code, verifier, client_id=app_client, redirect_uri=APP_REDIRECT).json()
    assert body["scope"] == "data:read"
    assert ApiToken.objects.get(name="Assistant").scopes == ["data:read"]


def test_a_denial_is_sent_back_with_the_state(browser: Browser) -> None:
    query, _ = make_request()
    back = read_params(browser.post("authorizations", query=query, approve=False).json()["data"]["redirect"])
    assert back == {"error": "access_denied", "state": "state-1", "iss": "http://testserver"}
    assert AuditEvent.objects.filter(action="oauth.deny").count() == 1
    assert not Grant.objects.exists()


def test_a_code_that_is_used_twice_ends_what_came_of_it(browser: Browser) -> None:
    query, verifier = make_request()
    code = browser.grant(query, ["all"])["code"]
    token = redeem(code, verifier).json()["access_token"]
    answer = redeem(code, verifier)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert get_status(token) == 401
    assert AuditEvent.objects.filter(action="oauth.replay").count() == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "x" * 64},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:51235/callback"},
        {"code": "another"},
        {"client_id": "another"},
    ],
    ids=["verifier", "no-verifier", "redirect", "code", "client"],
)
def test_a_code_is_of_no_use_to_others(browser: Browser, changes: dict[str, str]) -> None:
    query, verifier = make_request()
    code = browser.grant(query, ["all"])["code"]
    answer = redeem(**{"code": code, "verifier": verifier} | ({"code": changes["code"]} if "code" in changes else {}),
                    **{name: value for name, value in changes.items() if name != "code"})  # fmt: skip
    assert answer.status_code in (400, 401)
    assert answer.json()["error"] in ("invalid_grant", "invalid_request", "invalid_client")
    assert not ApiToken.objects.filter(name="Fermi CLI").exists()
    assert redeem(code, verifier).status_code == 200


def test_another_registered_program_cannot_redeem_a_code(browser: Browser, app_client: str) -> None:
    query, verifier = make_request()
    code = browser.grant(query, ["all"])["code"]
    answer = redeem(code, verifier, client_id=app_client)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"client_id": "nobody"}, "client_id"),
        ({"redirect_uri": "http://evil.example.org/callback"}, "redirect"),
        ({"redirect_uri": "http://127.0.0.1.evil.example.org/callback"}, "redirect"),
        ({"redirect_uri": "http://127.0.0.1:80@evil.example.org/callback"}, "redirect"),
        ({"redirect_uri": "http://127.0.0.1:51234/callback/../other"}, "redirect"),
        ({"redirect_uri": "javascript:alert(1)"}, "redirect"),
        ({"redirect_uri": None}, "redirect"),
        ({"code_challenge_method": "plain"}, "code_challenge_method"),
        ({"code_challenge_method": None}, "code_challenge_method"),
        ({"code_challenge": None}, "code_challenge"),
        ({"response_type": "token"}, "response_type"),
        ({"response_type": "none"}, "response_type"),
        ({"response_mode": "fragment"}, "response_mode"),
        ({"scope": "worker"}, "scope"),
        ({"scope": "openid"}, "scope"),
        ({"request": "x"}, "request"),
        ({"resource": "https://elsewhere.example.org/mcp"}, "invalid_target"),
        ({"resource": "mcp"}, "resource"),
    ],
)
def test_a_request_that_is_not_valid_is_shown_and_leads_nowhere(
    browser: Browser, changes: dict[str, str | None], what: str
) -> None:
    query, _ = make_request(**changes)
    for path, body in (("authorizations/describe", {}), ("authorizations", {"approve": True, "scopes": ["all"]})):
        answer = browser.post(path, query=query, **body)
        assert (answer.status_code, answer.json()["error"]) == (400, "OAUTH_REQUEST_WRONG"), answer.content
        assert what in answer.json()["message"]
    assert not Grant.objects.exists()


@pytest.mark.parametrize("query", ["", "%", "a=1&a=2", "client_id=fermi-cli&client_id=x", "&" * 3000, "client_id=%00"])
def test_a_query_that_cannot_be_read_is_refused(browser: Browser, query: str) -> None:
    assert browser.post("authorizations/describe", query=query).status_code == 400


@pytest.mark.parametrize("scope", ["all", "tokens:write", "agents:write", "identity:write", "people:read"])
def test_programs_of_others_never_get_rights_to_give_themselves_more(
    browser: Browser, app_client: str, scope: str
) -> None:
    query, _ = make_request(client_id=app_client, redirect_uri=APP_REDIRECT, scope=scope)
    assert browser.post("authorizations/describe", query=query).json()["error"] == "OAUTH_REQUEST_WRONG"


def test_nobody_grants_more_than_was_requested_or_than_they_have(browser: Browser, app_client: str) -> None:
    query, _ = make_request(client_id=app_client, redirect_uri=APP_REDIRECT, scope="tasks:read")
    more = browser.post("authorizations", query=query, approve=True, scopes=["tasks:write"])
    assert (more.status_code, more.json()["error"]) == (400, "OAUTH_SCOPE_OTHER")
    other = browser.post("authorizations", query=query, approve=True, scopes=["tasks:read"], projects=["project-two"])
    assert (other.status_code, other.json()["error"]) == (400, "PROJECT_UNKNOWN")
    people, _ = make_request(scope="people:write tasks:read")
    assert browser.post("authorizations/describe", query=people).json()["data"]["scopes"] == ["tasks:read"]
    assert not Grant.objects.exists()


def test_only_the_console_grants(owner: Api, app_client: str) -> None:
    query, _ = make_request()
    body = {"query": query, "approve": True, "scopes": ["all"]}
    assert owner.post("/oauth/authorizations", body).status == 401
    assert owner.post("/oauth/devices", {"code": "BCDF-BCDF", "approve": True}).status == 401
    assert Browser(None).post("authorizations", **body).status_code == 401
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner.user, backend="allauth.account.auth_backends.AuthenticationBackend")
    refused = strict.post("/api/v1/oauth/authorizations", body, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]) == (403, "CSRF_FAILED")


def test_a_refresh_token_is_replaced_and_its_second_use_ends_everything(browser: Browser, app_client: str) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    form = {"grant_type": "refresh_token", "client_id": app_client}
    second = post_form("token", **form, refresh_token=first["refresh_token"]).json()
    assert second["scope"] == "tasks:read"
    assert second["refresh_token"] != first["refresh_token"]
    assert get_status(first["access_token"], "/training-tasks") == 401
    assert get_status(second["access_token"], "/training-tasks") == 200
    third = post_form("token", **form, refresh_token=second["refresh_token"]).json()
    again = post_form("token", **form, refresh_token=first["refresh_token"])
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert get_status(third["access_token"], "/training-tasks") == 401
    assert post_form("token", **form, refresh_token=third["refresh_token"]).status_code == 400
    assert not GrantToken.objects.exists()
    assert not Token.objects.exists()


def test_a_refresh_may_ask_for_less_and_not_for_more(browser: Browser, app_client: str) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read", "data:read"])
    form = {"grant_type": "refresh_token", "client_id": app_client, "refresh_token": first["refresh_token"]}
    more = post_form("token", **form, scope="tasks:read tasks:write")
    assert (more.status_code, more.json()["error"]) == (400, "invalid_scope")
    less = post_form("token", **form, scope="data:read")
    assert less.json()["scope"] == "data:read"
    assert ApiToken.objects.get(name="Assistant").scopes == ["data:read"]


def test_another_program_cannot_use_a_refresh_token(browser: Browser, app_client: str) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    other = register(client_name="Other").json()["client_id"]
    form = {"grant_type": "refresh_token", "refresh_token": first["refresh_token"]}
    assert post_form("token", **form, client_id=other).status_code == 400
    assert post_form("token", **form, client_id=app_client).status_code == 200


def test_a_grant_ends_on_its_day(browser: Browser, app_client: str) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"], days=1)
    Grant.objects.update(expires_at=now() - timedelta(seconds=1))
    form = {"grant_type": "refresh_token", "client_id": app_client, "refresh_token": first["refresh_token"]}
    assert post_form("token", **form).json()["error"] == "invalid_grant"


def test_a_code_expires(browser: Browser) -> None:
    query, verifier = make_request()
    code = browser.grant(query, ["all"])["code"]
    cache.clear()
    assert redeem(code, verifier).json()["error"] == "invalid_grant"


def test_who_was_deactivated_gets_no_token(browser: Browser, app_client: str, owner: Api) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    query, verifier = make_request()
    code = browser.grant(query, ["all"])["code"]
    User.objects.filter(pk=owner.user.pk).update(is_active=False)
    assert redeem(code, verifier).json()["error"] == "invalid_grant"
    form = {"grant_type": "refresh_token", "client_id": app_client, "refresh_token": first["refresh_token"]}
    assert post_form("token", **form).json()["error"] == "invalid_grant"
    assert get_status(first["access_token"]) == 401


@pytest.mark.parametrize("which", ["access_token", "refresh_token"])
def test_revoking_either_token_revokes_both(browser: Browser, app_client: str, which: str) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    assert post_form("revoke", token=first[which], client_id=app_client).status_code == 200
    assert get_status(first["access_token"], "/training-tasks") == 401
    assert not (Grant.objects.exists())
    assert not (Token.objects.exists())
    assert post_form("revoke", token=first[which], client_id=app_client).status_code == 200


def test_a_token_that_is_revoked_in_the_console_is_not_refreshed(browser: Browser, app_client: str, owner: Api) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    token = ApiToken.objects.get(name="Assistant").digest[:16]
    owner.delete(f"/tokens/{token}")
    form = {"grant_type": "refresh_token", "client_id": app_client, "refresh_token": first["refresh_token"]}
    assert post_form("token", **form).json()["error"] == "invalid_grant"


def test_each_person_sees_and_ends_their_own_grants(
    browser: Browser, app_client: str, owner: Api, colleague: Api, anonymous: Api
) -> None:
    first = get_app_tokens(browser, app_client, ["tasks:read"])
    [row] = owner.get("/oauth/grants").data["items"]
    assert (row["client"], row["scopes"], row["projects"]) == ("Assistant", ["tasks:read"], None)
    assert (row["lastUsedAt"], row["lastUsedFrom"]) == (None, "")
    assert get_status(first["access_token"], "/training-tasks") == 200
    [row] = owner.get("/oauth/grants").data["items"]
    assert row["lastUsedAt"]
    assert row["lastUsedFrom"] == "127.0.0.1"
    assert colleague.get("/oauth/grants").data["items"] == []
    assert colleague.delete(f"/oauth/grants/{row['id']}").status == 404
    assert anonymous.get("/oauth/grants").status == 401
    assert owner.delete(f"/oauth/grants/{row['id']}").status == 200
    assert get_status(first["access_token"], "/training-tasks") == 401
    assert AuditEvent.objects.filter(action="oauth.end", target=row["id"]).count() == 1


def test_grants_of_a_person_are_limited(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MAX_ROWS, "oauth-grants", 1)
    browser.grant(make_request()[0], ["all"])
    answer = browser.post("authorizations", query=make_request()[0], approve=True, scopes=["all"])
    assert (answer.status_code, answer.json()["error"]) == (409, "ROWS_FULL")


# Devices ---------------------------------------------------------------------------------------------------------


def begin_device(**changes: str) -> dict[str, Any]:
    answer = post_form("device/code", **{"client_id": CLI_CLIENT, "scope": "all", **changes})
    assert answer.status_code == 200, answer.content
    return answer.json()


def poll(device: dict[str, Any], **changes: str) -> Any:
    key = f"allauth.idp.oidc.device_code[{device['device_code']}]"
    if data := cache.get(key):
        cache.set(key, {**data, "last_poll_at": 0}, 600)
    form = {"client_id": CLI_CLIENT, "device_code": device["device_code"], **changes}
    return post_form("token", grant_type=DEVICE_GRANT, **form)


def test_a_device_gets_its_token_after_somebody_typed_its_code(browser: Browser, owner: Api) -> None:
    device = begin_device()
    assert device["verification_uri"] == "http://testserver/oauth/device"
    assert device["interval"] == 5
    assert poll(device).json()["error"] == "authorization_pending"
    typed = device["user_code"].replace("-", " ").lower()
    shown = browser.post("devices/describe", code=typed).json()["data"]
    assert (shown["client"], shown["scopes"], shown["redirectHost"]) == ("Fermi CLI", ["all"], "")
    assert browser.post("devices", code=typed, approve=True, scopes=["all"], days=1).json()["data"]["approved"]
    body = poll(device).json()
    assert get_status(body["access_token"]) == 200
    assert ApiToken.objects.get(name="Fermi CLI").user == owner.user
    again = poll(device)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert get_status(body["access_token"]) == 401


def test_a_device_that_asks_too_often_is_told_so(browser: Browser) -> None:
    device = begin_device()
    poll(device)
    form = {"client_id": CLI_CLIENT, "device_code": device["device_code"], "grant_type": DEVICE_GRANT}
    assert post_form("token", **form).json()["error"] == "slow_down"


def test_a_device_that_was_denied_learns_it(browser: Browser) -> None:
    device = begin_device()
    assert browser.post("devices", code=device["user_code"], approve=False).json()["data"] == {"approved": False}
    assert poll(device).json()["error"] == "access_denied"


def test_a_device_code_of_nobody_and_of_another_program_is_refused(browser: Browser, app_client: str) -> None:
    assert poll({"device_code": "made-up"}).json()["error"] == "invalid_grant"
    assert poll(begin_device(), client_id=app_client).status_code == 400


def test_codes_of_devices_cannot_be_tried_out(browser: Browser) -> None:
    answers = [browser.post("devices/describe", code=f"BCDF-GHJ{letter}") for letter in "BCDFGHJKLMNPQRSTVWXZB"]
    assert [answer.status_code for answer in answers] == [404] * 20 + [429]
    assert answers[-1].json()["error"] == "OAUTH_DEVICE_TRIES"


def test_a_code_answers_one_person_only(browser: Browser, colleague: Api) -> None:
    device = begin_device()
    browser.post("devices", code=device["user_code"], approve=True, scopes=["all"])
    late = Browser(colleague.user).post("devices", code=device["user_code"], approve=True, scopes=["all"])
    assert late.status_code == 404


# Registration and documents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"redirect_uris": ["http://app.example.org/callback"]},
        {"redirect_uris": ["javascript:alert(1)"]},
        {"redirect_uris": ["myapp://callback"]},
        {"redirect_uris": ["https://*.example.org/callback"]},
        {"redirect_uris": ["https://user@example.org/callback"]},
        {"redirect_uris": ["https://example.org/callback#x"]},
        {"redirect_uris": ["https://example.org/\ncallback"]},
        {"redirect_uris": ["https://example.org:port/"]},
        {"redirect_uris": [f"https://example.org/{number}" for number in range(11)]},
        {"redirect_uris": ["https://example.org/" + "x" * 500]},
        {"redirect_uris": []},
        {"redirect_uris": "https://example.org"},
        {"grant_types": ["client_credentials"]},
        {"grant_types": ["password"]},
        {"response_types": ["token"]},
        {"client_name": "x" * 101},
        {"client_name": "<b>"},
    ],
)
def test_a_program_that_is_not_admitted_is_not_registered(changes: dict[str, Any]) -> None:
    answer = register(**changes)
    assert answer.status_code == 400, answer.content
    assert answer.json()["error"] in ("invalid_client_metadata", "invalid_redirect_uri")
    assert not OAuthClient.objects.exclude(pk=CLI_CLIENT).exists()


def test_a_registered_program_may_request_what_is_not_privileged() -> None:
    answer = register(scope="tokens:write tasks:read", redirect_uris=["http://localhost:9999/callback"])
    assert answer.status_code == 201, answer.content
    assert answer.json()["scope"].split() == REQUESTABLE
    assert "client_secret" not in answer.json()
    assert AuditEvent.objects.filter(action="oauth.register").count() == 1


def test_registrations_are_limited_by_rate_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [register().status_code for _ in range(11)] == [201] * 10 + [429]
    cache.clear()
    monkeypatch.setattr("apps.oauth.services.clients.MAX_CLIENTS", 10)
    assert register().status_code == 400
    OAuthClient.objects.update(created_at=now() - timedelta(days=2))
    assert register().status_code == 201


def test_registration_can_be_switched_off(settings: Any) -> None:
    settings.IDP_OIDC_DCR_ENABLED = False
    assert register().status_code == 403
    assert "registration_endpoint" not in Client().get("/.well-known/oauth-authorization-server").json()


def test_the_documents_name_the_endpoints() -> None:
    server = Client().get("/.well-known/oauth-authorization-server").json()
    assert server["issuer"] == "http://testserver"
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["token_endpoint"] == "http://testserver/oauth/token"
    for path in ("", "/mcp"):
        resource = Client().get(f"/.well-known/oauth-protected-resource{path}").json()
        assert resource["resource"] == f"http://testserver{path}"
        assert resource["authorization_servers"] == ["http://testserver"]
    assert Client().get("/.well-known/oauth-protected-resource/other").status_code == 404
    missing = Client().get("/.well-known/openid-configuration")
    assert (missing.status_code, missing["Content-Type"]) == (404, "application/json")


def test_the_tools_request_only_what_they_need() -> None:
    """The official client of MCP requests all scopes that the resource's document names."""
    scopes = Client().get("/.well-known/oauth-protected-resource/mcp").json()["scopes_supported"]
    assert set(scopes) == {scope for tool in TOOLS.values() for scope in tool.scopes}
    assert set(scopes) < set(REQUESTABLE)


def test_a_token_is_for_this_platform_alone(browser: Browser, app_client: str) -> None:
    query, verifier = make_request(
        client_id=app_client, redirect_uri=APP_REDIRECT, scope="tasks:read", resource="http://testserver/mcp"
    )
    code = browser.grant(query, ["tasks:read"])["code"]
    form = {"client_id": app_client, "redirect_uri": APP_REDIRECT}
    elsewhere = redeem(code, verifier, **form, resource="https://elsewhere.example.org/mcp")
    assert (elsewhere.status_code, elsewhere.json()["error"]) == (400, "invalid_target")
    malformed = redeem(code, verifier, **form, resource="mcp")
    assert (malformed.status_code, malformed.json()["error"]) == (400, "invalid_target")
    assert redeem(code, verifier, **form, resource="http://testserver/mcp").status_code == 200


@pytest.mark.parametrize("kind", ["", "password", "client_credentials", "openid", "implicit"])
def test_other_grants_are_refused(kind: str) -> None:
    answer = post_form("token", grant_type=kind, client_id=CLI_CLIENT, username="owner", password="x")
    assert (answer.status_code, answer.json()["error"]) == (400, "unsupported_grant_type")


@pytest.mark.parametrize("path", ["token", "revoke", "device/code", "clients"])
def test_odd_input_is_never_an_error_of_the_server(path: str) -> None:
    client = Client(raise_request_exception=False)
    bodies = (b"", b"%", b"{", b"a=%00&client_id=%00", b"client_id=" + b"x" * 5000, b"client_id=%ff", b"\xff" * 100)
    for body in bodies:
        for kind in ("application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x"):
            answer = client.post(f"/oauth/{path}", body, content_type=kind)
            assert 400 <= answer.status_code < 500 or (path, answer.status_code) == ("revoke", 200), (body, kind)
    assert client.get(f"/oauth/{path}").status_code == 405
