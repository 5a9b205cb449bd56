from datetime import timedelta

import pytest

from apps.accounts import services
from apps.accounts.models import ApiToken, AuditEvent
from apps.common.clock import now
from tests.api.conftest import Api

pytestmark = pytest.mark.database


def test_a_new_token_is_shown_once_and_works(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop", "expiresInDays": 7})
    assert made.status == 201
    assert made.body["code"] == 200
    assert Api(token=made.data["token"]).get("/auth/me").data["username"] == "colleague"
    listed = colleague.get("/tokens", search="laptop").data["items"]
    assert [item["id"] for item in listed] == [made.data["id"]]
    assert "token" not in listed[0]


def test_only_a_hash_of_the_token_is_stored(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"})
    stored = ApiToken.objects.get(name="laptop")
    assert made.data["token"] not in str(vars(stored))


def test_a_revoked_token_is_refused(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    assert colleague.delete(f"/tokens/{made['id']}").status == 200
    answer = Api(token=made["token"]).get("/auth/me")
    assert (answer.status, answer.error) == (401, "TOKEN_INVALID")
    assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_an_expired_token_is_refused(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop", "expiresInDays": 1}).data
    ApiToken.objects.filter(name="laptop").update(expiry=now() - timedelta(seconds=1))
    assert Api(token=made["token"]).get("/auth/me").status == 401


def test_the_token_of_a_deactivated_user_is_refused(colleague: Api) -> None:
    colleague.user.is_active = False
    colleague.user.save()
    assert colleague.get("/auth/me").status == 401


def test_users_neither_see_nor_revoke_tokens_of_others(owner: Api, colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    assert made["id"] not in owner.get("/tokens").ids
    assert owner.delete(f"/tokens/{made['id']}").status == 404
    assert colleague.delete(f"/tokens/{made['id'][:4]}").status == 404


def test_making_and_revoking_are_audited_without_the_secret(colleague: Api) -> None:
    made = colleague.post("/tokens", {"name": "laptop"}).data
    colleague.delete(f"/tokens/{made['id']}")
    events = list(AuditEvent.objects.order_by("id"))
    assert [event.action for event in events] == ["token.create", "token.revoke"]
    assert made["token"] not in str([event.data for event in events])


def test_anonymous_is_told_to_sign_in(anonymous: Api) -> None:
    for answer in (anonymous.get("/tokens"), anonymous.post("/tokens", {"name": "x"}), anonymous.delete("/tokens/x")):
        assert (answer.status, answer.error) == (401, "NOT_AUTHENTICATED")


def test_one_query_authenticates_a_token(colleague: Api, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(2):  # who is asking; the page
        assert colleague.get("/tokens").status == 200


def test_tokens_per_user_are_limited(colleague: Api, owner: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MAX_TOKENS", 2)  # one of them asks here
    assert colleague.post("/tokens", {"name": "a"}).status == 201
    assert colleague.post("/tokens", {"name": "b"}).error == "TOKENS_TOO_MANY"
    assert owner.post("/tokens", {"name": "a"}).status == 201
    ApiToken.objects.filter(name="a", user=colleague.user).update(expiry=now() - timedelta(days=1))
    assert colleague.post("/tokens", {"name": "b"}).status == 201
