"""The Idempotency-Key: one task, however often and however concurrently a request is sent."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from apps.clusters.models import DevEnvironment
from apps.training.models import Event, Task
from tests.api.conftest import Answer, Api
from tests.api.test_tasks_create import DOCUMENT, changed

pytestmark = [pytest.mark.database, pytest.mark.usefixtures("environments", "dataset", "model")]

SINGLE = changed(distributedConfig=None, environmentIds=["env-001"])


def test_the_order_of_keys_in_a_request_does_not_matter(colleague: Api) -> None:
    first = colleague.post("/training-tasks", SINGLE, Idempotency_Key="k1").data["taskId"]
    reordered = dict(reversed(SINGLE.items()))
    assert colleague.post("/training-tasks", reordered, Idempotency_Key="k1").data["taskId"] == first


def test_without_an_idempotency_key_each_request_creates_a_task(colleague: Api) -> None:
    assert len({colleague.post("/training-tasks", SINGLE).data["taskId"] for _ in range(2)}) == 2


def test_a_key_returns_its_task_even_if_the_request_would_now_be_refused(colleague: Api) -> None:
    first = colleague.post("/training-tasks", SINGLE, Idempotency_Key="k1").data["taskId"]
    DevEnvironment.objects.filter(pk="env-001").update(cordoned=True)
    assert colleague.post("/training-tasks", SINGLE, Idempotency_Key="k1").data["taskId"] == first


def test_a_refused_request_does_not_use_up_its_key(colleague: Api) -> None:
    assert colleague.post("/training-tasks", changed(taskName=""), Idempotency_Key="k1").status == 400
    assert colleague.post("/training-tasks", SINGLE, Idempotency_Key="k1").status == 201


def test_a_conflict_names_the_task_of_the_key(colleague: Api) -> None:
    first = colleague.post("/training-tasks", SINGLE, Idempotency_Key="k1").data["taskId"]
    answer = colleague.post("/training-tasks", DOCUMENT, Idempotency_Key="k1")
    assert (answer.status, answer.problems) == (409, {"Idempotency-Key": "IDEMPOTENCY_CONFLICT"})
    assert first in answer.body["errors"][0]["message"] + answer.body["errors"][0]["hint"]


def test_a_key_that_is_too_long_is_refused(colleague: Api) -> None:
    answer = colleague.post("/training-tasks", SINGLE, Idempotency_Key="k" * 201)
    assert answer.problems == {"Idempotency-Key": "IDEMPOTENCY_KEY_TOO_LONG"}


@pytest.mark.django_db(transaction=True)
def test_concurrent_requests_with_one_key_create_one_task(colleague: Api) -> None:
    start = threading.Barrier(6)

    def send(number: int) -> Answer:
        start.wait()
        try:
            return colleague.post("/training-tasks", SINGLE if number < 4 else DOCUMENT, Idempotency_Key="k1")
        finally:
            connection.close()

    for _ in range(3):
        Task.objects.all().delete()
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(send, range(6)))
        made = {answer.data["taskId"] for answer in answers if answer.status == 201}
        assert len(made) == 1
        assert {answer.error for answer in answers if answer.status != 201} == {"IDEMPOTENCY_CONFLICT"}
        assert (Task.objects.count(), Event.objects.filter(code="TASK_CREATED").count()) == (1, 1)
