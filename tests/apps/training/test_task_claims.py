"""What a task says while the process that took it may be dead: by its row alone, wherever tasks are read."""

import math
from datetime import timedelta

import pytest
from django.utils.timezone import localtime as local

from apps.accounts.models import User
from apps.common.clock import now
from apps.training.core import wakeups
from apps.training.models import Task
from apps.training.presenters import selectors, task_presenter
from apps.training.reconcile import actions, batch_pass, reconciler
from apps.training.states import TaskState
from apps.training.states.deadlines import PASS_CLAIM_TIMEOUT, PASS_SILENT_AFTER
from fermi.jobs.spec import Observation, Phase
from tests.apps.attempts import pulse_of
from tests.kills import KilledError

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture
def dead(task: Task, monkeypatch: pytest.MonkeyPatch) -> Task:
    """A task whose process was killed in the middle of its pass."""

    def killed(*_: object) -> None:
        raise KilledError

    Task.objects.filter(pk=task.pk).update(
        state=TaskState.QUEUED, reason="RESTARTING", reason_params={"next": 2, "cause": ""}
    )
    with monkeypatch.context() as patch:
        patch.setattr(actions, "lease_environments", killed)
        with pytest.raises(KilledError):
            reconciler.reconcile_tasks(task.pk)
    task.refresh_from_db()
    return task


def a_while_passes(task: Task, wait: timedelta) -> None:
    Task.objects.filter(pk=task.pk).update(claimed_at=task.claimed_at - wait, due_at=task.due_at - wait)
    task.refresh_from_db()


def read_claim_notice(task: Task, user: User) -> str | None:
    """In lists, and in the live stream."""
    [row] = selectors.query_tasks(user)
    pulse = pulse_of(user, task)
    assert pulse is not None
    reason = selectors.serialize_brief(row, "en")["reason"]
    assert pulse.status["reason"] == reason
    return reason and reason["code"]


def test_a_task_whose_process_was_killed_says_since_when_and_when_it_continues(dead: Task, user: User) -> None:
    assert read_claim_notice(dead, user) == "RESTARTING", "a pass may take a moment"
    a_while_passes(dead, PASS_SILENT_AFTER)
    assert read_claim_notice(dead, user) == "PROCESS_SILENT"
    assert dead.claimed_at is not None
    assert dead.due_at is not None
    assert timedelta() <= dead.due_at - dead.claimed_at - PASS_CLAIM_TIMEOUT < timedelta(seconds=1), (
        "who comes next comes then"
    )
    told = task_presenter.explain_task(vars(dead), "en")
    assert told is not None
    assert all(f"{moment:%H:%M:%S}" in told["message"] for moment in (local(dead.claimed_at), local(dead.due_at)))
    assert task_presenter.explain_task(vars(dead), "zh") != told


def test_the_live_stream_polls_again_when_a_claim_expires(dead: Task, user: User) -> None:
    """Nobody sends a message of a process that is dead."""
    before = pulse_of(user, dead)
    assert before is not None
    assert 0 < before.again <= PASS_SILENT_AFTER.total_seconds()
    a_while_passes(dead, PASS_SILENT_AFTER)
    after = pulse_of(user, dead)
    assert after is not None
    assert after.again == math.inf
    assert after.fingerprint != before.fingerprint


def test_after_a_takeover_nothing_is_waited_for(dead: Task, user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    a_while_passes(dead, PASS_CLAIM_TIMEOUT + timedelta(seconds=1))
    monkeypatch.setattr(actions, "lease_environments", lambda task: timedelta(seconds=5))
    assert reconciler.reconcile_due_tasks() == 1
    dead.refresh_from_db()
    assert dead.claimed_at is None
    assert read_claim_notice(dead, user) == "RESTARTING"


def test_a_pass_without_changes_releases_its_task(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that ends by itself while a hint pulls the task forward: the next pass has it at once."""
    quiet = Observation(Phase.RUNNING, left=True)
    monkeypatch.setattr(batch_pass, "observe_tasks", lambda tasks: {task.pk: quiet for task in tasks})
    for _ in range(2):  # the second one has no news at all
        wakeups.enqueue_task(task.pk)
        reconciler.reconcile_due_tasks()
        task.refresh_from_db()
        assert task.claimed_at is None
        assert task.due_at is not None
        assert task.due_at > now()


def test_an_ended_task_waits_for_no_process(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(state=TaskState.QUEUED, stop_requested_at=now())
    reconciler.reconcile_tasks(task.pk)
    task.refresh_from_db()
    assert (task.state, task.claimed_at) == (TaskState.STOPPED, None)
