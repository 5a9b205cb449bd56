from typing import Any

import httpx
import pytest

from fermi.client import (
    ConflictError,
    Fermi,
    FermiError,
    ForbiddenError,
    InvalidRequestError,
    NotAuthenticatedError,
    NotFoundError,
    Problem,
    ServerError,
    ThrottledError,
    UnexpectedAnswerError,
    UnreachableError,
    transport,
)
from tests.fakes.api import DROP, FakeApi, Reply, data, refused

TASK = {"taskId": "task-1", "status": "initializing"}
REQUEST = {"taskName": "t", "datasetId": "d", "datasetVersionId": "v", "modelId": "m", "launchMode": "existing"}


def test_data_is_unwrapped_from_its_envelope(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/training-tasks/task-1", data(TASK))
    assert fermi.tasks.get("task-1") == TASK


def test_every_call_sends_token_and_language(api: FakeApi) -> None:
    api.on("GET", "/auth/me", data({}))
    with Fermi(api.url, "secret", lang="en") as fermi:
        fermi.me()
    headers = api.requests[0].headers
    assert (headers["Authorization"], headers["Accept-Language"]) == ("Bearer secret", "en")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, NotAuthenticatedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (405, InvalidRequestError),
        (409, ConflictError),
        (429, ThrottledError),
        (500, ServerError),
    ],
)
def test_each_error_status_has_its_class(api: FakeApi, status: int, kind: type[FermiError]) -> None:
    api.on("GET", "/auth/me", refused(status, "CODE", ("", "CODE", "text", "advice")))
    with Fermi(api.url, "secret", retries=0) as fermi, pytest.raises(FermiError) as caught:
        fermi.me()
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.code, caught.value.request_id) == (status, "CODE", "req-1")


def test_an_error_has_all_problems(api: FakeApi, fermi: Fermi) -> None:
    problems = [
        ("taskName", "NAME_REQUIRED", "a task needs a name", "type one"),
        ("distributedConfig.masterNode", "MASTER_REQUIRED", "no master", "choose one"),
    ]
    api.on("POST", "/training-tasks", refused(400, "INVALID_REQUEST", *problems))
    with pytest.raises(InvalidRequestError) as caught:
        fermi.tasks.create(REQUEST)
    assert caught.value.errors == tuple(Problem(*problem) for problem in problems)


def test_a_creation_without_an_answer_is_repeated_with_the_same_key(api: FakeApi, fermi: Fermi) -> None:
    api.on("POST", "/training-tasks", DROP, data(TASK, 201))
    assert fermi.tasks.create(REQUEST) == TASK
    first, second = api.list_requests("POST", "/training-tasks")
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert first.body == second.body == REQUEST


def test_two_creations_have_two_keys(api: FakeApi, fermi: Fermi) -> None:
    api.on("POST", "/training-tasks", data(TASK, 201))
    fermi.tasks.create(REQUEST)
    fermi.tasks.create(REQUEST)
    first, second = api.list_requests("POST", "/training-tasks")
    assert first.headers["Idempotency-Key"] != second.headers["Idempotency-Key"]


def test_a_read_is_retried_until_the_platform_is_back(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/auth/me", refused(503, "DATABASE_UNAVAILABLE"), DROP, Reply(b"bad gateway", 502), data({"a": 1}))
    assert fermi.me() == {"a": 1}


def test_calls_that_are_not_idempotent_are_not_repeated(api: FakeApi, fermi: Fermi) -> None:
    api.on("POST", "/training-tasks/task-1/retry", DROP, data(TASK))
    with pytest.raises(UnreachableError):
        fermi.tasks.retry("task-1")
    assert len(api.requests) == 1


def test_a_throttled_call_is_repeated(api: FakeApi, fermi: Fermi) -> None:
    api.on("POST", "/training-tasks/task-1/retry", refused(429, "THROTTLED", Retry_After="0.01"), data(TASK, 201))
    assert fermi.tasks.retry("task-1") == TASK


def test_a_call_beyond_the_rate_limit_is_repeated_more_often_than_other_calls(api: FakeApi, monkeypatch: Any) -> None:
    monkeypatch.setattr(transport, "MIN_PAUSE_S", 0.001)
    limited = [refused(429, "RATE_LIMITED", Retry_After="0.001")] * 7
    api.on("POST", "/training-tasks/task-1/retry", *limited, data(TASK, 201))
    with Fermi(api.url, "secret", retries=2) as fermi:
        assert fermi.tasks.retry("task-1") == TASK


def test_a_call_beyond_the_rate_limit_is_given_up_after_a_while(api: FakeApi, monkeypatch: Any) -> None:
    monkeypatch.setattr(transport, "RATE_LIMITED_SECONDS", 0.0)
    api.on("GET", "/auth/me", *[refused(429, "RATE_LIMITED", Retry_After="0.001")] * 9)
    with Fermi(api.url, "secret", retries=2) as fermi, pytest.raises(ThrottledError) as caught:
        fermi.me()
    assert (caught.value.code, len(api.requests)) == ("RATE_LIMITED", 3)


def test_a_client_without_retries_does_not_wait_for_the_rate_limit(api: FakeApi) -> None:
    api.on("GET", "/auth/me", refused(429, "RATE_LIMITED", Retry_After="1"))
    with Fermi(api.url, "secret", retries=0) as fermi, pytest.raises(ThrottledError):
        fermi.me()
    assert len(api.requests) == 1


def test_a_long_throttle_is_raised(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/auth/me", refused(429, "THROTTLED", Retry_After="3600"))
    with pytest.raises(ThrottledError) as caught:
        fermi.me()
    assert caught.value.retry_after == 3600
    assert len(api.requests) == 1


def test_a_refusal_is_not_retried(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/auth/me", refused(403, "FORBIDDEN"))
    with pytest.raises(ForbiddenError):
        fermi.me()
    assert len(api.requests) == 1


def test_a_deletion_without_an_answer_succeeds_when_the_object_is_gone(api: FakeApi, fermi: Fermi) -> None:
    api.on("DELETE", "/training-tasks/task-1", DROP, refused(404, "NOT_FOUND"))
    fermi.tasks.delete("task-1")


def test_deleting_a_missing_object_is_an_error(api: FakeApi, fermi: Fermi) -> None:
    api.on("DELETE", "/training-tasks/task-1", refused(404, "NOT_FOUND"))
    with pytest.raises(NotFoundError):
        fermi.tasks.delete("task-1")


def test_an_address_without_a_listener_is_unreachable(api: FakeApi) -> None:
    url = api.url
    api.close()
    with Fermi(url, retries=1) as fermi, pytest.raises(UnreachableError) as caught:
        fermi.me()
    assert isinstance(caught.value.__cause__, httpx.ConnectError)


def test_an_answer_without_an_envelope_is_an_error(api: FakeApi, fermi: Fermi) -> None:
    api.on("GET", "/auth/me", Reply(b"<html>welcome</html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(UnexpectedAnswerError):
        fermi.me()


def test_a_proxys_error_page_is_a_server_error(api: FakeApi) -> None:
    api.on("GET", "/auth/me", Reply(b"<html>bad gateway</html>", 502, {"Content-Type": "text/html"}))
    with Fermi(api.url, retries=0) as fermi, pytest.raises(ServerError) as caught:
        fermi.me()
    assert caught.value.status == 502


def test_ids_are_escaped_in_paths(api: FakeApi, fermi: Fermi) -> None:
    with pytest.raises(NotFoundError):
        fermi.tasks.get("../../admin?x")
    assert api.requests[0].path == "/training-tasks/..%2F..%2Fadmin%3Fx"
