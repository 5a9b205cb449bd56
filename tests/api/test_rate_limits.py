"""How often the API may be called: by a token, by a signed-in user, and from an address without either."""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from django.test import Client

from apps.accounts.models import ApiToken
from apps.common import pubsub, rate_limits
from apps.common.clock import now
from tests import services
from tests.api.conftest import Api, make_user

pytestmark = pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[services.Redis]:
    program = shutil.which("redis-server")
    assert program
    server = services.Redis(program, tmp_path_factory.mktemp("redis") / "data")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def counted(server: services.Redis, settings: Any) -> Iterator[redis.Redis]:
    """A real server counts: 5 requests per minute for tokens and users, 3 for addresses."""
    settings.REDIS_URL, settings.RATE_LIMIT, settings.RATE_LIMIT_ANONYMOUS = server.url, 5, 3
    _forget_clients()
    client = pubsub.get_client()
    client.flushall()
    yield client
    _forget_clients()


def _forget_clients() -> None:
    pubsub.get_client.cache_clear()
    rate_limits._load_script.cache_clear()
    rate_limits._paused_until, rate_limits._is_away = 0.0, False


def use_up(api: Api, count: int = 5) -> None:
    for _ in range(count):
        assert api.get("/auth/me").status == 200


def test_a_token_is_refused_beyond_its_limit_and_told_when_to_come_back(owner: Api) -> None:
    use_up(owner)
    refused = owner.get("/auth/me")
    assert (refused.status, refused.error) == (429, "RATE_LIMITED")
    assert 1 <= int(refused.headers["Retry-After"]) <= 12, "a fifth of a minute, less what has passed"
    assert refused.headers["RateLimit"].startswith('"token";r=0;t=')


def test_each_answer_states_the_limit_and_what_is_left(owner: Api) -> None:
    for left in (4, 3):
        answer = owner.get("/auth/me")
        assert answer.headers["RateLimit-Policy"] == '"token";q=5;w=60'
        assert answer.headers["RateLimit"].startswith(f'"token";r={left};t=')
    assert owner.get("/projects/none").headers["RateLimit"].startswith('"token";r=2;')
    assert owner.post("/tokens", {"nonsense": 1}).headers["RateLimit"].startswith('"token";r=1;')


def test_an_answer_that_has_not_changed_states_it_as_well(owner: Api) -> None:
    sent = {"Authorization": f"Bearer {owner.token}"}
    etag = owner.client.get("/api/v1/auth/me", headers=sent).headers["ETag"]
    unchanged = owner.client.get("/api/v1/auth/me", headers={**sent, "If-None-Match": etag})
    assert unchanged.status_code == 304
    assert unchanged.headers["RateLimit"].startswith('"token";r=3;')


def test_two_tokens_of_a_user_have_a_limit_each(owner: Api) -> None:
    use_up(owner)
    _, other = ApiToken.objects.create(user=owner.user, expiry=None, name="other", last_used_at=now())
    use_up(Api(token=other))
    assert owner.get("/auth/me").status == 429


def test_all_sessions_of_a_user_share_a_limit_which_is_not_that_of_tokens(owner: Api) -> None:
    use_up(owner)
    browsers = [Client(), Client()]
    for browser in browsers:
        assert owner.user
        browser.force_login(owner.user)
    statuses = [browsers[number % 2].get("/api/v1/auth/me").status_code for number in range(6)]
    assert statuses == [200] * 5 + [429]
    assert browsers[0].get("/api/v1/auth/me").headers["RateLimit-Policy"] == '"user";q=5;w=60'


def test_requests_that_are_refused_for_want_of_a_scope_count(owner: Api) -> None:
    ApiToken.objects.filter(user=owner.user).update(scopes=["projects:read"])
    assert [owner.get("/tokens").status for _ in range(6)] == [403] * 5 + [429]


def test_an_expensive_operation_counts_as_several(owner: Api, settings: Any) -> None:
    settings.RATE_LIMIT = 15
    for left in (5, None):
        answer = owner.get("/runs/export", format="csv")
        assert (answer.status == 429) == (left is None), answer.body
    assert owner.get("/auth/me").status == 200, "what was refused took nothing"


def test_an_operation_that_costs_more_than_the_limit_can_be_called(owner: Api, settings: Any) -> None:
    settings.RATE_LIMIT = 2
    assert owner.get("/runs/export", format="csv").status == 200
    assert owner.get("/auth/me").status == 429


def test_wrong_tokens_are_counted_by_address_and_a_right_one_still_works_there(owner: Api) -> None:
    wrong = [Api(token=f"fermi_{number}" * 8) for number in range(4)]
    assert [api.get("/auth/me").status for api in wrong] == [401, 401, 401, 429]
    assert wrong[0].get("/auth/me").error == "SIGN_INS_TOO_MANY"
    assert owner.get("/auth/me").status == 200


def test_an_anonymous_client_is_told_its_limit(anonymous: Api) -> None:
    answers = [anonymous.get("/auth/me") for _ in range(4)]
    assert [answer.status for answer in answers] == [401, 401, 401, 429]
    assert answers[0].headers["RateLimit"].startswith('"address";r=2;')
    assert 1 <= int(answers[3].headers["Retry-After"]) <= 20


def test_the_page_for_signing_in_and_worker_endpoints_are_not_limited(anonymous: Api) -> None:
    assert {anonymous.get("/auth/sign-in").status for _ in range(8)} == {200}
    assert "RateLimit" not in anonymous.get("/auth/sign-in").headers


def test_the_bucket_fills_again_while_time_passes(owner: Api, counted: redis.Redis) -> None:
    use_up(owner)
    [key] = counted.keys("fermi:rate.token.*")
    full_at: Any = counted.get(key)
    counted.set(key, int(full_at) - 24_000_000)  # as if 24 s had passed: two requests
    use_up(owner, 2)
    assert owner.get("/auth/me").status == 429


def test_nothing_is_left_of_a_bucket_that_is_full(owner: Api, counted: redis.Redis) -> None:
    use_up(owner, 1)
    [key] = counted.keys("fermi:rate.token.*")
    assert 0 < counted.pttl(key) <= 12_001


def test_a_request_is_one_round_trip(owner: Api, counted: redis.Redis) -> None:
    use_up(owner, 1)
    before = counted.info("stats")["total_commands_processed"]
    use_up(owner, 1)
    script = 4  # EVALSHA, and TIME, GET, SET from within it
    info = 1
    assert counted.info("stats")["total_commands_processed"] - before <= script + info


def test_without_a_server_requests_pass_and_this_is_logged_once(
    owner: Api, settings: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.REDIS_URL = f"unix://{tmp_path}/nothing"
    _forget_clients()
    monkeypatch.setattr(rate_limits, "PAUSE_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING, "apps.common.rate_limits"):
        use_up(owner, 8)
    assert len([one for one in caplog.records if one.name == "apps.common.rate_limits"]) == 1
    assert "RateLimit" not in owner.get("/auth/me").headers


def test_a_limit_of_0_is_none(owner: Api, settings: Any) -> None:
    settings.RATE_LIMIT = 0
    use_up(owner, 8)


def test_the_limit_of_one_person_is_not_anothers(owner: Api, project: Any) -> None:
    use_up(owner)
    use_up(Api(make_user("lee", project)))
