"""Many rows that are due at once, and work that takes longer than it was to: whatever comes between, each is done once,
and whoever has lost a row writes nothing more to it."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier, Event, Lock
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection

from apps.accounts.models import Project, User
from apps.catalog import preparation
from apps.catalog.models import Dataset, DatasetVersion
from apps.code import fetch as code_fetch
from apps.code.models import Fetch
from apps.common import claims, pass_claims
from apps.common.clock import now
from apps.common.worker_lanes import Lane
from apps.environments import reconcile as environments
from apps.files.models import File, PendingOperation
from apps.files.services import store_sync
from apps.training.core import wakeups
from apps.training.models import Attempt, Task
from apps.training.reconcile import actions, ports, reconciler
from apps.training.states import TaskState
from apps.training.states.deadlines import PASS_CLAIM_TIMEOUT
from fermi.engines.local.engine import LocalBackend
from fermi.tokenized_data import DataError
from tests.apps.training.test_ports import PYTHON, Lab
from tests.polling import until

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def broken(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What passes say of themselves when they raise."""
    said = [one.getMessage() for one in caplog.records if one.name.startswith("apps.training.reconcile")]
    return [one for one in said if "failed" in one]


@pytest.fixture(autouse=True)
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Messages to workers."""
    found: list[tuple[str, ...]] = []
    monkeypatch.setattr(wakeups, "_send", lambda *hint: found.append(hint))
    return found


@pytest.fixture
def lab(user: User, settings: Any, tmp_path: Any) -> Lab:
    settings.DATA_DIR = tmp_path
    return Lab(user, "slurm", PYTHON)


def on(lab: Lab, backend: str) -> None:
    lab.cluster.backend, lab.cluster.connection = backend, {"warm": False} if backend == "local" else PYTHON
    lab.cluster.save()


def during_the_pass(monkeypatch: pytest.MonkeyPatch, act: Callable[[Task], None]) -> None:
    """`act` is called once: while a pass that begins an attempt asks which ports are free."""
    look, acts = ports.find_ports, [act]

    def interrupted(task: Task, backend: Any) -> Any:
        there = look(task, backend)
        while acts:
            acts.pop()(task)
        return there

    monkeypatch.setattr(actions.ports, "find_ports", interrupted)
    monkeypatch.setattr(actions, "submit_attempt", lambda *_: timedelta(seconds=5))


def take_over(task: Task) -> pass_claims.PassClaim:
    """As much time passes as a claim lasts, and another pass begins."""
    row, past = Task.objects.get(pk=task.pk), PASS_CLAIM_TIMEOUT + timedelta(seconds=1)
    assert row.claimed_at is not None
    assert row.due_at is not None
    Task.objects.filter(pk=task.pk).update(claimed_at=row.claimed_at - past, due_at=row.due_at - past)
    claim = pass_claims.PassClaim(Task.objects.filter(pk=task.pk), PASS_CLAIM_TIMEOUT)
    assert claim.taken == 1
    return claim


def stored(task: Task) -> Any:
    return Task.objects.filter(pk=task.pk).values().get(), list(Attempt.objects.values()), list(task.events.values())


@pytest.mark.parametrize("backend", ["slurm", "local"])
def test_a_wakeup_during_a_pass_starts_no_second_pass(
    backend: str, lab: Lab, monkeypatch: pytest.MonkeyPatch, sent: list[Any], caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Any,
) -> None:  # fmt: skip
    """As when the watcher tells of what the pass itself has changed, or an attempt's port was taken away."""
    on(lab, backend)
    task = lab.task()

    def hint(task: Task) -> None:
        wakeups.enqueue_task(task.pk)
        reconciler.reconcile_tasks(task.pk)
        assert reconciler.reconcile_due_tasks() == 0

    during_the_pass(monkeypatch, hint)
    with django_capture_on_commit_callbacks(execute=True):
        assert reconciler.reconcile_due_tasks() == 1
    assert task.attempts.count() == task.events.filter(code="ATTEMPT_BEGAN").count() == 1
    task.refresh_from_db()
    assert (task.state, task.claimed_at) == (TaskState.STARTING, None)
    assert task.due_at is not None
    assert task.due_at <= now(), "what the hint told of is looked at in the next pass"
    assert sent[-1] == ("training.reconcile", task.pk), "at once"
    assert broken(caplog) == []


def test_a_pass_that_lost_its_claim_ends_silently(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task, seen = lab.task(), []

    def overtake(task: Task) -> None:
        take_over(task).release(Task.objects.filter(pk=task.pk), 1, now())
        reconciler.reconcile_due_tasks()
        seen.append(stored(task))

    during_the_pass(monkeypatch, overtake)
    assert reconciler.reconcile_due_tasks() == 1
    assert seen == [stored(task)], "as the second pass has left it"
    assert task.attempts.count() == task.events.filter(code="ATTEMPT_BEGAN").count() == 1
    assert broken(caplog) == []


@pytest.mark.parametrize("step", ["lease_environments", "submit_attempt"])
def test_a_pass_that_lost_its_claim_writes_nothing_at_any_point(
    step: str, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(lab, "local")
    task, seen, ours = lab.task(), [], getattr(actions, step)

    def overtaken(*args: Any) -> Any:
        take_over(task)
        seen.append(stored(task))
        return ours(*args)

    monkeypatch.setattr(actions, step, overtaken)
    monkeypatch.setattr(LocalBackend, "submit", lambda *_: None)
    reconciler.reconcile_tasks(task.pk)
    assert seen == [stored(task)]


def test_a_pass_that_raises_is_retried_later_or_at_the_next_wakeup(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    task, tries = lab.task(), []

    def raises(task: Task) -> None:
        tries.append(task.pk)
        raise RuntimeError("never thought of")

    monkeypatch.setattr(actions, "lease_environments", raises)
    assert reconciler.reconcile_due_tasks() == 1
    assert reconciler.reconcile_due_tasks() == 0
    wakeups.enqueue_task(task.pk)
    assert reconciler.reconcile_due_tasks() == 1
    assert tries == [task.pk] * 2


@pytest.mark.django_db(transaction=True)
def test_concurrent_sweeps_pass_each_due_row_once(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    threads, count, passes, lock = 4, 60, Counter[str](), Lock()
    together = Barrier(threads)
    for _ in range(count):
        lab.task()

    def lease(task: Task) -> timedelta:
        with lock:
            passes[task.pk] += 1
        assert Task.objects.exclude(claimed_at=None).count() <= threads, "nobody holds what it does not come to"
        return timedelta(minutes=5)

    def sweep() -> None:
        try:
            together.wait(60)
            reconciler.reconcile_due_tasks()
        finally:
            connection.close()

    monkeypatch.setattr(actions, "lease_environments", lease)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(sweep) for _ in range(threads)]:
            done.result()
    assert len(passes) == count
    assert set(passes.values()) == {1}
    assert broken(caplog) == []


# Work of other kinds --------------------------------------------------------------------------------------------------


def steal(row: Any) -> Any:
    """Somebody else has the row from here on; returns it as that one leaves it."""
    type(row).objects.filter(pk=row.pk).update(due_at=now() + timedelta(minutes=1))
    return type(row).objects.filter(pk=row.pk).values().get()


def test_a_claim_is_renewed_and_released(user: User) -> None:
    row = Fetch.objects.create(
        project=Project.objects.create(name="p"), created_by=user, source={}, created_at=now(), deadline_at=now(),
        due_at=now(),
    )  # fmt: skip
    other = Fetch.objects.get(pk=row.pk)
    claim = claims.claim_row(row, timedelta(seconds=30))
    assert claim is not None
    assert claims.claim_row(other, timedelta(seconds=30)) is None, "as it was read it is no more"
    first = row.due_at
    assert claim.renew()
    assert row.due_at > first
    with pytest.raises(RuntimeError), claim.fenced(due_at=None):
        raise RuntimeError("what follows cannot be done")
    assert claim.write(due_at=None), "the transaction took back what it had written"
    assert not claim.renew(), "what is over stays so"
    assert Fetch.objects.get(pk=row.pk).due_at is None


def test_a_lost_claim_prevents_writes(user: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    project = Project.objects.create(name="p")
    moment, left = now(), []
    fetch = Fetch.objects.create(
        project=project, created_by=user, source={}, created_at=moment, deadline_at=moment, due_at=moment
    )
    version = DatasetVersion.objects.create(
        dataset=Dataset.objects.create(name="d"), name="1", source="x", due_at=moment
    )
    file = File.objects.create(
        project=project, parent="", name="b", source="a", doing=PendingOperation.MOVE, due_at=moment, changed_at=moment
    )

    def overtaken(row: Any, *_: Any) -> Any:
        left.append((type(row), steal(row)))
        raise DataError("DATA_EMPTY", path="x")

    monkeypatch.setattr(code_fetch, "_take_snapshot", overtaken)
    monkeypatch.setattr(preparation, "_build_token_files", overtaken)
    monkeypatch.setattr(
        store_sync, "get_store", lambda: SimpleNamespace(move=lambda *_: left.append((File, steal(file))))
    )
    assert code_fetch.run_fetch(fetch.pk)
    assert preparation.prepare_version(version.pk)
    store_sync.apply_operation(file)
    assert [kind for kind, _ in left] == [Fetch, DatasetVersion, File]
    for kind, row in left:
        assert kind.objects.filter(pk=row["id"]).values().get() == row


# The environments' lane -----------------------------------------------------------------------------------------------


def test_environments_have_their_own_threads_and_a_hanging_one_blocks_no_other() -> None:
    hangs, rows, lock = Event(), [1, 2, 3], Lock()
    began: list[int] = []

    def sweep() -> int:
        with lock:
            row = rows.pop(0) if rows else 0
        if row:
            began.append(row)
        if row == 1:
            assert hangs.wait(60)
        return bool(row)

    lane = Lane("lane-of-a-test", sweep, threads=2, seconds=0.01)
    try:
        assert lane.ring()
        until(lambda: began == [1], what="the first hangs")
        assert lane.ring()
        until(lambda: began == [1, 2, 3], what="the others are done meanwhile")
    finally:
        hangs.set()
        lane.stop()


def test_a_worker_starts_the_lane_and_asks_for_due_rows(
    monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any
) -> None:
    from celery.signals import worker_ready

    from apps.environments import memory_surveys, standby, tasks, transitions
    from apps.environments.packages import installation, surveys

    assert tasks.lanes[0]._sweep is environments.reconcile_due
    began: list[str] = []
    for lane in tasks.lanes:
        monkeypatch.setattr(lane, "start", partial(began.append, lane.channel))
    tasks.start_lanes()
    assert began == [
        transitions.CHANNEL,
        surveys.CHANNEL,
        memory_surveys.CHANNEL,
        standby.CHANNEL,
        installation.CHANNEL,
    ]
    assert any(receiver[1]() is tasks.start_lanes for receiver in worker_ready.receivers)
    said: list[str] = []
    monkeypatch.setattr(transitions.wakeups, "publish_soon", lambda channel, _: said.append(channel))
    with django_capture_on_commit_callbacks(execute=True):
        transitions.wake_environment("env-x")
    assert said == [transitions.CHANNEL]
