"""Pipelines exchange ID tokens of a real issuer on loopback for tokens of a service account."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from django.test import Client

from apps.accounts.models import ApiToken, AuditEvent, Membership, User
from apps.common.clock import now
from apps.common.row_bounds import MAX_ROWS
from apps.identity.exchange import issuers, retention
from apps.identity.exchange.models import Rule, UsedToken
from apps.identity.oidc import signed_token
from tests.api.conftest import Answer, Api
from tests.fakes.openid import OpenIdServer, serve_openid

pytestmark = pytest.mark.database

PATH = "/projects/project-one/exchange-rules"
AUDIENCE = "https://fermi.example.org"
ACCOUNT = "ci@project-one"
CLAIMS = {
    "sub": "repo:acme/model:ref:refs/heads/main",
    "aud": AUDIENCE,
    "repository": "acme/model",
    "ref": "refs/heads/main",
    "event_name": "push",
    "run_id": "77",
}


@pytest.fixture
def server(settings: Any) -> Iterator[OpenIdServer]:
    signed_token.cache.clear()
    issuers.descriptions.clear()
    issuers.failures.clear()
    with serve_openid() as running:
        settings.EXCHANGE_ISSUERS = [running.url]
        yield running


@pytest.fixture
def rule(owner: Api, server: OpenIdServer) -> str:
    """A rule of the service account `ci` for pushes to the main branch of acme/model."""
    assert owner.post("/projects/project-one/service-accounts", {"name": "ci"}).status == 201
    return make_rule(owner, server)


def make_body(server: OpenIdServer, **changes: Any) -> dict[str, Any]:
    return {
        "name": "main",
        "serviceAccount": "ci",
        "issuer": server.url,
        "audience": AUDIENCE,
        "conditions": {"repository": "acme/model", "ref": "refs/heads/main"},
        "scopes": ["tasks:write", "projects:read"],
        "minutes": 10,
        **changes,
    }


def make_rule(owner: Api, server: OpenIdServer, **changes: Any) -> str:
    return str(owner.post(PATH, make_body(server, **changes)).data["id"])


def exchange(token: str, account: str = ACCOUNT, **more: Any) -> Answer:
    return Api().post("/token-exchange", {"subject_token": token, "service_account": account, **more})


def get_refusal(answer: Answer) -> str:
    assert answer.status in (400, 403), answer.body
    assert not ApiToken.objects.exclude(name="tests").exists()
    return answer.error


def test_a_pipeline_gets_a_token_of_the_service_account(owner: Api, server: OpenIdServer, rule: str) -> None:
    made = exchange(server.sign_pipeline_token(CLAIMS)).data
    assert made["access_token"].startswith("fermi_")
    assert (made["token_type"], made["expires_in"], made["scope"]) == ("Bearer", 600, "projects:read tasks:write")
    account = Api(token=made["access_token"])
    assert account.get("/auth/me").data["username"] == ACCOUNT
    assert account.get("/training-tasks").status == 200
    assert account.get("/sweeps").error == "SCOPE_MISSING"
    token = ApiToken.objects.get(user__username=ACCOUNT)
    assert token.projects == ["project-one"]
    assert timedelta(minutes=9) < token.expiry - now() <= timedelta(minutes=10)
    event = AuditEvent.objects.get(action="token.exchange")
    assert (event.actor_id, event.project_id, event.target) == (token.user_id, "project-one", token.digest[:16])
    assert event.data["claims"]["sub"] == CLAIMS["sub"]
    assert event.data["rule"] == rule
    assert made["access_token"] not in json.dumps(event.data)
    assert owner.get(PATH).data["items"][0]["lastUsedAt"]


def test_a_form_is_accepted_as_clients_of_rfc_8693_send_it(server: OpenIdServer, rule: str) -> None:
    form = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": server.sign_pipeline_token(CLAIMS),
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "service_account": ACCOUNT,
        "scope": "tasks:read",
    }
    answer = Client().post("/api/v1/token-exchange", urlencode(form), "application/x-www-form-urlencoded")
    assert answer.status_code == 200, answer.content
    assert answer.json()["data"]["scope"] == "tasks:read"


def test_fewer_scopes_are_given_and_never_more(server: OpenIdServer, rule: str) -> None:
    assert (
        get_refusal(exchange(server.sign_pipeline_token(CLAIMS), scope="tasks:read secrets:read")) == "EXCHANGE_SCOPE"
    )
    assert exchange(server.sign_pipeline_token(CLAIMS), scope="tasks:read").data["scope"] == "tasks:read"


def test_each_id_token_counts_once(server: OpenIdServer, rule: str) -> None:
    token = server.sign_pipeline_token(CLAIMS)
    assert exchange(token).status == 200
    assert exchange(token).error == "EXCHANGE_REPLAY"
    head, _, signature = token.rpartition(".")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = alphabet[alphabet.index(signature[-1]) ^ 1]  # the last bits of base64url are padding
    assert exchange(f"{head}.{signature[:-1]}{twin}").error in ("EXCHANGE_REPLAY", "EXCHANGE_TOKEN_BROKEN")
    assert ApiToken.objects.filter(user__username=ACCOUNT).count() == 1


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"aud": "https://other.example.org"}, "aud"),
        ({"aud": [f"{AUDIENCE}/"]}, "aud"),
        ({"repository": "acme/other"}, "repository"),
        ({"repository": "acme/model-fork"}, "repository"),
        ({"repository": "ACME/model"}, "repository"),
        ({"repository": ["acme/model"]}, "repository"),
        ({"repository": None}, "repository"),
        ({"ref": "refs/heads/main2"}, "ref"),
    ],
)
def test_a_claim_that_is_not_as_required_is_named_without_the_rules_value(
    owner: Api, server: OpenIdServer, rule: str, changes: dict[str, Any], claim: str
) -> None:
    answer = exchange(server.sign_pipeline_token({**CLAIMS, **changes}))
    assert get_refusal(answer) == "EXCHANGE_CLAIM"
    assert claim in answer.body["message"]
    if claim == "ref":
        assert "refs/heads/main2" in answer.body["message"]
    if claim == "repository" and changes["repository"] == "acme/other":
        assert "acme/model" not in json.dumps(answer.body)
    event = AuditEvent.objects.get(action="token.exchange-refused")
    assert (event.target, event.project_id, event.data["claim"]) == (ACCOUNT, "project-one", claim)
    assert event.data["expected"] == {"aud": AUDIENCE, "ref": "refs/heads/main"}.get(claim, "acme/model")


@pytest.mark.parametrize(
    ("changes", "claim"),
    [
        ({"event_name": "pull_request", "sub": "repo:acme/model:pull_request"}, "event_name"),
        ({"event_name": "pull_request_target"}, "event_name"),
        ({"event_name": None, "sub": "repo:acme/model:pull_request"}, "sub"),
        ({"event_name": None, "pipeline_source": "merge_request_event"}, "pipeline_source"),
    ],
)
def test_a_proposed_change_gets_no_token_unless_the_rule_says_so(
    owner: Api, server: OpenIdServer, rule: str, changes: dict[str, Any], claim: str
) -> None:
    answer = exchange(server.sign_pipeline_token({**CLAIMS, **changes}))
    assert get_refusal(answer) == "EXCHANGE_PROPOSAL"
    assert claim in answer.body["message"]
    if claim != "sub":
        make_rule(owner, server, conditions={"repository": "acme/model", claim: changes[claim]})
        assert exchange(server.sign_pipeline_token({**CLAIMS, **changes})).status == 200


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"exp": 60}, "EXCHANGE_EXPIRED"),
        ({"nbf": 4_000_000_000}, "EXCHANGE_EARLY"),
        ({"iat": 4_000_000_000, "exp": 4_000_000_060}, "EXCHANGE_EARLY"),
        ({"exp": 4_000_000_000}, "EXCHANGE_LIFETIME"),
        ({"exp": None}, "EXCHANGE_TOKEN_BROKEN"),
        ({"iat": None}, "EXCHANGE_TOKEN_BROKEN"),
        ({"aud": None}, "EXCHANGE_TOKEN_BROKEN"),
        ({"sub": None}, "EXCHANGE_TOKEN_BROKEN"),
        ({"iss": None}, "EXCHANGE_TOKEN_BROKEN"),
        ({"exp": "soon"}, "EXCHANGE_TOKEN_BROKEN"),
        ({"exp": str(int(time.time()) + 3000)}, "EXCHANGE_TOKEN_BROKEN"),
        ({"exp": float("inf")}, "EXCHANGE_TOKEN_BROKEN"),
        ({"iat": "1"}, "EXCHANGE_TOKEN_BROKEN"),
    ],
)
def test_an_id_token_that_is_not_valid_now_is_refused(
    server: OpenIdServer, rule: str, changes: dict[str, Any], code: str
) -> None:
    assert get_refusal(exchange(server.sign_pipeline_token({**CLAIMS, **changes}))) == code


def test_a_signature_that_is_not_the_issuers_is_refused(server: OpenIdServer, rule: str) -> None:
    public = server.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS, "none"))) == "EXCHANGE_ALGORITHM"
    signed = f"{encode({'alg': 'HS256', 'kid': server.kid})}.{server.sign_pipeline_token(CLAIMS).split('.')[1]}"
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed.encode(), public)
    assert get_refusal(exchange(f"{signed}.{jwt.utils.base64url_encode(signature).decode()}")) == "EXCHANGE_ALGORITHM"
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS, "RS512"))) == "EXCHANGE_ALGORITHM"
    other = rsa.generate_private_key(65537, 2048)
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS, key=other))) == "EXCHANGE_SIGNATURE"
    curve = ec.generate_private_key(ec.SECP256R1())
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS, "ES256", key=curve))) == "EXCHANGE_SIGNATURE"
    head, _, signed = server.sign_pipeline_token(CLAIMS).split(".")
    assert get_refusal(exchange(f"{head}.{encode({**CLAIMS, 'iss': server.url})}.{signed}")) == "EXCHANGE_SIGNATURE"


def encode(part: dict[str, Any]) -> str:
    """Return a part of a token."""
    return str(jwt.utils.base64url_encode(json.dumps(part).encode()).decode())


def test_a_changed_key_is_fetched_once_a_minute(server: OpenIdServer, rule: str) -> None:
    assert exchange(server.sign_pipeline_token(CLAIMS)).status == 200
    server.rotate_key()
    assert exchange(server.sign_pipeline_token(CLAIMS)).status == 200
    before = server.key_requests
    for kid in ("a", "b", "c"):
        assert exchange(server.sign_pipeline_token(CLAIMS, kid=kid)).error == "EXCHANGE_SIGNATURE"
    assert server.key_requests == before


@pytest.mark.parametrize("issuer", ["https://evil.example.org", "{url}/", "{url}/x", "https://gitlab.com", "", 5])
def test_an_issuer_that_no_rule_names_exactly_gets_no_request(server: OpenIdServer, rule: str, issuer: Any) -> None:
    named = issuer.format(url=server.url) if isinstance(issuer, str) else issuer
    signed = server.sign_pipeline_token(CLAIMS).rpartition(".")[2]
    answer = exchange(f"{encode({'alg': 'RS256', 'kid': server.kid})}.{encode({**CLAIMS, 'iss': named})}.{signed}")
    assert get_refusal(answer) in ("EXCHANGE_ISSUER", "EXCHANGE_TOKEN_BROKEN")
    assert server.key_requests == 0


def test_an_issuer_that_the_operator_no_longer_allows_is_refused(
    server: OpenIdServer, rule: str, settings: Any
) -> None:
    settings.EXCHANGE_ISSUERS = []
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_ISSUER"


def test_a_description_that_names_another_issuer_is_refused(
    server: OpenIdServer, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "describe", lambda: {"issuer": "https://other.example.org", "jwks_uri": server.url})
    answer = exchange(server.sign_pipeline_token(CLAIMS))
    assert (answer.status, answer.error) == (503, "EXCHANGE_ISSUER_SILENT")


def test_an_issuer_that_does_not_answer_is_asked_again_later(
    server: OpenIdServer, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = []
    monkeypatch.setattr(server, "describe", lambda: requests.append(1))  # the server answers 400
    for _ in range(3):
        assert exchange(server.sign_pipeline_token(CLAIMS)).error == "EXCHANGE_ISSUER_SILENT"
    assert len(requests) == 1
    monkeypatch.undo()
    monkeypatch.setattr(issuers, "FAILURE_SECONDS", 0.0)
    assert exchange(server.sign_pipeline_token(CLAIMS)).status == 200


NESTED = jwt.utils.base64url_encode(b"[" * 9_000).decode() + ".e30.AA"


@pytest.mark.parametrize("token", ["x", "a.b.c", "..", "é.é.é", "x" * 47_000, "eyJhbGciOiJSUzI1NiJ9.W10.AA", NESTED])
def test_what_is_no_token_is_refused(server: OpenIdServer, rule: str, token: str) -> None:
    assert get_refusal(exchange(token)) == "EXCHANGE_TOKEN_BROKEN"


def test_an_issuer_that_no_text_can_be_is_refused(server: OpenIdServer, rule: str) -> None:
    """Half of a surrogate pair, which JSON can name, and which neither a database nor an answer can hold."""
    for issuer in ("\ud800", "a\x00b"):
        token = server.sign_pipeline_token({**CLAIMS, "iss": issuer})
        assert get_refusal(exchange(token)) == "EXCHANGE_TOKEN_BROKEN"
    assert get_refusal(exchange(server.sign_pipeline_token({**CLAIMS, "actor": "a\x00"}))) == "EXCHANGE_TOKEN_BROKEN"


def test_too_large_requests_are_refused_and_the_id_token_is_never_repeated(server: OpenIdServer, rule: str) -> None:
    answer = exchange("x" * 49_000)
    assert answer.status == 400
    assert answer.problems == {"subject_token": "FIELD_LENGTH"}
    assert exchange("x" * 70_000).error == "BODY_TOO_LARGE"
    wrong = Api().post("/token-exchange", {"subject_token": ["secret-value"], "service_account": ACCOUNT})
    assert wrong.status == 400
    assert "secret-value" not in json.dumps(wrong.body)
    many = Client().post("/api/v1/token-exchange", "a=1&" * 30, "application/x-www-form-urlencoded")
    assert many.status_code == 400


def test_a_service_account_without_a_rule_and_an_unknown_one_are_refused_alike(
    owner: Api, server: OpenIdServer, rule: str
) -> None:
    assert owner.post("/projects/project-one/service-accounts", {"name": "other"}).status == 201
    refusals = [
        exchange(server.sign_pipeline_token(CLAIMS), account)
        for account in ("other@project-one", "ci@project-9", "owner")
    ]
    assert {get_refusal(one) for one in refusals} == {"EXCHANGE_REFUSED"}


def test_a_disabled_rule_gives_nothing(owner: Api, server: OpenIdServer, rule: str) -> None:
    assert owner.patch(f"{PATH}/{rule}", {"enabled": False}).data["enabled"] is False
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_ISSUER"
    make_rule(owner, server, name="another", conditions={"repository": "acme/model", "ref": "refs/heads/dev"})
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_CLAIM"


def test_a_deleted_service_account_loses_its_rules_for_ever(owner: Api, server: OpenIdServer, rule: str) -> None:
    assert exchange(server.sign_pipeline_token(CLAIMS)).status == 200
    assert owner.delete("/projects/project-one/service-accounts/ci").status == 200
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_ISSUER"
    assert owner.post("/projects/project-one/service-accounts", {"name": "ci"}).status == 201
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_ISSUER"
    assert owner.get(PATH).data["items"] == []


def test_an_inactive_account_and_a_deleted_project_give_nothing(
    owner: Api, admin: Api, server: OpenIdServer, rule: str
) -> None:
    User.objects.filter(username=ACCOUNT).update(is_active=False)
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_REFUSED"
    User.objects.filter(username=ACCOUNT).update(is_active=True)
    Membership.objects.filter(user=owner.user).delete()
    assert admin.delete("/projects/project-one").status == 200
    assert not Rule.objects.exists()
    assert get_refusal(exchange(server.sign_pipeline_token(CLAIMS))) == "EXCHANGE_ISSUER"


def test_refusals_are_recorded_once_a_minute_per_account(server: OpenIdServer, rule: str) -> None:
    for _ in range(4):
        assert exchange(server.sign_pipeline_token({**CLAIMS, "ref": "x"})).error == "EXCHANGE_CLAIM"
    assert AuditEvent.objects.filter(action="token.exchange-refused").count() == 1


def test_the_oldest_rule_that_accepts_the_token_and_gives_the_scopes_counts(
    owner: Api, server: OpenIdServer, rule: str
) -> None:
    wide = make_rule(owner, server, name="wide", scopes=["runs:read"], conditions={"repository": "acme/*"}, minutes=5)
    assert exchange(server.sign_pipeline_token(CLAIMS)).data["expires_in"] == 600
    made = exchange(server.sign_pipeline_token(CLAIMS), scope="runs:read").data
    assert (made["expires_in"], made["scope"]) == (300, "runs:read")
    assert exchange(server.sign_pipeline_token({**CLAIMS, "ref": "refs/heads/dev"})).data["scope"] == "runs:read"
    assert Rule.objects.get(pk=wide).last_used_at


def test_the_claim_is_named_of_the_rule_that_fits_best(owner: Api, server: OpenIdServer, rule: str) -> None:
    make_rule(owner, server, name="other", conditions={"a": "b", "repository": "acme/other", "ref": "refs/heads/main"})
    answer = exchange(server.sign_pipeline_token({**CLAIMS, "ref": "refs/heads/dev"}))
    assert "refs/heads/dev" in answer.body["message"]
    answer = exchange(server.sign_pipeline_token({**CLAIMS, "repository": "acme/other", "a": "c"}))
    assert "其 a 为 c" in answer.body["message"]


def test_what_has_ended_is_deleted(server: OpenIdServer, rule: str) -> None:
    assert exchange(server.sign_pipeline_token(CLAIMS)).status == 200
    assert retention.delete_expired() == 0
    UsedToken.objects.update(expires_at=now() - timedelta(seconds=1))
    ApiToken.objects.filter(user__username=ACCOUNT).update(expiry=now() - timedelta(days=2))
    assert retention.delete_expired() == 2
    assert ApiToken.objects.filter(name="tests").exists()


def test_exchanges_are_limited_per_address(server: OpenIdServer, rule: str, settings: Any) -> None:
    settings.RATE_LIMIT_ANONYMOUS = 2
    client = Client(REMOTE_ADDR=f"198.51.100.{time.time_ns() % 250 + 1}", raise_request_exception=False)
    answers = [client.post("/api/v1/token-exchange", {}, "application/json") for _ in range(4)]
    assert {one.status_code for one in answers} <= {400, 429}
    if "RateLimit" in answers[0].headers:  # without a broker nothing is counted
        assert answers[-1].status_code == 429


def test_only_maintainers_of_the_project_manage_rules(
    owner: Api, colleague: Api, viewer: Api, stranger: Api, anonymous: Api, admin: Api, server: OpenIdServer, rule: str
) -> None:
    for who, status in ((colleague, 403), (viewer, 403), (stranger, 404), (anonymous, 401)):
        assert who.get(PATH).status == status
        assert who.post(PATH, make_body(server)).status == status
        assert who.patch(f"{PATH}/{rule}", {"minutes": 60}).status == status
        assert who.delete(f"{PATH}/{rule}").status == status
    assert stranger.patch(f"/projects/project-two/exchange-rules/{rule}", {"minutes": 60}).status == 404
    assert stranger.delete(f"/projects/project-two/exchange-rules/{rule}").status == 404
    assert admin.patch(f"{PATH}/{rule}", {"minutes": 60}).data["minutes"] == 60
    assert colleague.get("/exchange-issuers").data == {"issuers": [server.url]}
    assert owner.delete(f"{PATH}/{rule}").status == 200
    assert [one.action for one in AuditEvent.objects.filter(target=rule).order_by("pk")] == [
        "exchange-rule.create",
        "exchange-rule.change",
        "exchange-rule.delete",
    ]


def test_rules_are_listed_and_found_by_name_or_account(owner: Api, server: OpenIdServer, rule: str) -> None:
    make_rule(owner, server, name="nightly")
    assert [one["name"] for one in owner.get(PATH).data["items"]] == ["main", "nightly"]
    assert [one["name"] for one in owner.get(PATH, search="night").data["items"]] == ["nightly"]
    assert [one["name"] for one in owner.get(PATH, search="ci@", ordering="-name").data["items"]] == ["nightly", "main"]
    first = owner.get(PATH).data["items"][0]
    assert (first["serviceAccount"], first["username"], first["createdBy"]) == ("ci", ACCOUNT, "owner")
    assert (first["minutes"], first["enabled"], first["lastUsedAt"]) == (10, True, None)


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"conditions": {}}, "conditions", "EXCHANGE_RULE_BROAD"),
        ({"conditions": {"ref": "refs/heads/main"}}, "conditions", "EXCHANGE_RULE_BROAD"),
        ({"conditions": {"repository": "acme*"}}, "conditions", "EXCHANGE_RULE_BROAD"),
        ({"conditions": {"repository_id": "12*"}}, "conditions", "EXCHANGE_RULE_BROAD"),
        ({"conditions": {"sub": "repo:*"}}, "conditions", "EXCHANGE_RULE_BROAD"),
        ({"conditions": {"repository": "*"}}, "conditions.repository", "EXCHANGE_RULE_PATTERN"),
        ({"conditions": {"repository": "a*/b"}}, "conditions.repository", "EXCHANGE_RULE_PATTERN"),
        ({"conditions": {"repository": "a/b", "aud": "x"}}, "conditions", "EXCHANGE_RULE_CLAIM"),
        ({"conditions": {"repository": "a/b", "x y": "x"}}, "conditions", "EXCHANGE_RULE_CLAIM"),
        ({"conditions": {"repository": "a/b"} | {f"c{n}": "x" for n in range(10)}}, "conditions", "EXCHANGE_RULE_LONG"),
        ({"issuer": "https://gitlab.com"}, "issuer", "EXCHANGE_RULE_ISSUER"),
        ({"scopes": ["tasks:fly"]}, "scopes", "SCOPE_UNKNOWN"),
        ({"scopes": []}, "scopes", "FIELD_LENGTH"),
        ({"minutes": 61}, "minutes", "FIELD_RANGE"),
        ({"serviceAccount": "nobody"}, "serviceAccount", "EXCHANGE_RULE_ACCOUNT"),
        ({"serviceAccount": "owner"}, "serviceAccount", "EXCHANGE_RULE_ACCOUNT"),
    ],
)
def test_a_rule_that_is_too_broad_or_impossible_is_refused(
    owner: Api, server: OpenIdServer, rule: str, changes: dict[str, Any], field: str, code: str
) -> None:
    answer = owner.post(PATH, make_body(server, **changes))
    assert answer.status == 400
    assert answer.problems == {field: code}
    if "serviceAccount" not in changes:
        assert owner.patch(f"{PATH}/{rule}", changes).problems == {field: code}


def test_rules_of_a_project_are_limited(
    owner: Api, server: OpenIdServer, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MAX_ROWS, "exchange-rules", 1)
    assert owner.post(PATH, make_body(server)).error == "ROWS_FULL"


def test_a_narrow_token_and_a_service_account_make_no_rules(owner: Api, server: OpenIdServer, rule: str) -> None:
    narrow = owner.post("/tokens", {"name": "narrow", "scopes": ["tokens:write", "projects:read"]}).data["token"]
    api = Api(token=narrow)
    assert api.get(PATH).status == 200
    assert api.post(PATH, make_body(server)).error == "EXCHANGE_RULE_TOKEN"
    assert api.patch(f"{PATH}/{rule}", {"enabled": True}).error == "EXCHANGE_RULE_TOKEN"
    assert owner.patch("/projects/project-one/service-accounts/ci", {"role": "maintainer"}).status == 200
    token = owner.post("/projects/project-one/service-accounts/ci/tokens", {"name": "robot"}).data["token"]
    robot = Api(token=token)
    assert robot.post(PATH, make_body(server)).status == 403
    assert robot.patch(f"{PATH}/{rule}", {"minutes": 60}).status == 403
    assert robot.delete(f"{PATH}/{rule}").status == 403
    assert api.delete(f"{PATH}/{rule}").status == 200
