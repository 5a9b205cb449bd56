"""Many tasks at once: those that run on cost no statement each, and while watchers look at them, no look either."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.common.clock import now
from apps.training.core import findings, wakeups
from apps.training.core import observation_store as seen_last
from apps.training.models import Attempt, Task, Watch
from apps.training.reconcile import batch_pass, reconciler
from apps.training.reconcile.engine_watch import WatcherHeartbeats
from apps.training.states import TaskState
from apps.training.states.deadlines import RECONCILE_INTERVALS, WATCHED_RECONCILE_INTERVAL
from fermi.diagnosis import Finding, Level, loss_anomalies
from fermi.jobs.spec import Cause, Observation, Phase, RankStatus
from tests.apps.attempts import begin_attempt

pytestmark = [pytest.mark.database, pytest.mark.django_db]

RUNS = Observation(Phase.RUNNING, left=True, ranks=tuple(RankStatus(rank, 0, "running", pid=rank) for rank in range(3)))
CHANGED = Observation(Phase.RUNNING, left=True, ranks=(RankStatus(0, 0, "running", pid=9), *RUNS.ranks[1:]))


class Engine:
    """What it says of each task; RUNS without a word."""

    def __init__(self) -> None:
        self.says: dict[str, Observation] = {}
        self.looks = 0

    def observed(self, tasks: Any) -> dict[str, Observation]:
        tasks = list(tasks)
        self.looks += len(tasks)
        return {task.pk: self.says.get(task.pk, RUNS) for task in tasks}


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()
    monkeypatch.setattr(batch_pass, "observe_tasks", engine.observed)
    monkeypatch.setattr(wakeups, "enqueue_task", lambda name, *args: None)
    return engine


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    heard: list[str] = []
    monkeypatch.setattr(seen_last, "publish_soon", lambda channel, _: heard.append(channel))
    return heard


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [0.0]
    monkeypatch.setattr(reconciler, "_watcher_heartbeats", WatcherHeartbeats(lambda: moment[0]))
    return moment


def watchers_look(*, at: float) -> None:
    Watch.objects.update_or_create(pk=1, defaults={"members": {"w": 1}, "looked": {"w": at}})


def many(task: Task, count: int) -> list[str]:
    """All of them were looked at before, and are due."""
    Task.objects.filter(pk=task.pk).update(spec={"grace_seconds": 1})
    for number in range(count):
        other = Task.objects.get(pk=task.pk)
        other.pk = f"task-{number:03}"
        other.save(force_insert=True)
        begin_attempt(other, 1)
    for _ in range(2):
        due()
        reconciler.reconcile_due_tasks()
    due()
    return list(Task.objects.values_list("pk", flat=True))


def due() -> None:
    Task.objects.update(due_at=now(), claimed_at=None)


def test_sweep_statements_do_not_grow_with_tasks(task: Task) -> None:
    ids = many(task, 30)
    reconciler.reconcile_due_tasks()
    asked = []
    for keys in (ids[:2], ids):
        Task.objects.filter(pk__in=keys).update(due_at=now())
        with CaptureQueriesContext(connection) as queries:
            assert reconciler.reconcile_due_tasks() == len(keys)
        asked.append(len(queries))
    assert asked[0] == asked[1]


@pytest.mark.django_db(transaction=True)
def test_a_changed_observation_is_stored_and_published_in_the_same_pass(
    task: Task, engine: Engine, published: list[str]
) -> None:
    ids = many(task, 9)
    published.clear()
    engine.says = dict.fromkeys(ids[:4], CHANGED)
    reconciler.reconcile_tasks(*ids)
    assert sorted(published) == sorted(f"task:{pk}" for pk in ids[:4])
    for attempt in Attempt.objects.all():
        seen = engine.says.get(attempt.task_id, RUNS)
        assert (attempt.seen, attempt.seen_mark) == (
            seen_last.serialize_observation(seen),
            seen_last.compute_digest(seen),
        )
    assert not Task.objects.filter(due_at__lte=now()).exists()
    assert not Task.objects.exclude(claimed_at=None).exists()


def test_a_failed_task_among_many_gets_its_own_pass(task: Task, engine: Engine) -> None:
    ids = many(task, 5)
    cause = Cause("RANK_FAILED", {"rank": 0, "exitCode": 1, "nodeRank": 0, "node": "e"})
    engine.says[ids[0]] = Observation(Phase.FAILED, left=True, ranks=RUNS.ranks, cause=cause)
    reconciler.reconcile_tasks(*ids)
    ended = Attempt.objects.exclude(outcome="").values_list("task", "outcome")
    assert list(ended) == [(ids[0], "RANK_FAILED")]


def test_a_stop_among_many_is_carried_out(task: Task) -> None:
    ids = many(task, 5)
    Task.objects.filter(pk=ids[0]).update(stop_requested_at=now())
    reconciler.reconcile_tasks(*ids)
    assert Task.objects.exclude(state=TaskState.RUNNING).values_list("pk", flat=True).get() == ids[0]


def test_a_bad_loss_among_many_ends_its_attempt(task: Task) -> None:
    ids = many(task, 5)
    Task.objects.filter(pk=ids[0]).update(spec={"on_bad_loss": "stop", "grace_seconds": 1})
    findings.record_findings(ids[0], 1, [Finding(loss_anomalies.NOT_FINITE, Level.FAIL, {"step": 3, "metric": "loss"})])
    due()
    reconciler.reconcile_tasks(*ids)
    assert list(Attempt.objects.exclude(outcome="").values_list("task", "outcome")) == [(ids[0], "BAD_LOSS")]


def test_an_unreadable_task_does_not_block_others(
    task: Task, engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ids = many(task, 5)
    decide = batch_pass.decide_action

    def stumble(facts: Any, seen: Observation) -> Any:
        if seen is CHANGED:
            raise RuntimeError("never thought of")
        return decide(facts, seen)

    monkeypatch.setattr(batch_pass, "decide_action", stumble)
    monkeypatch.setattr(reconciler, "decide_action", stumble)
    engine.says[ids[0]] = CHANGED
    reconciler.reconcile_tasks(*ids)
    late = Task.objects.filter(due_at__gt=now() + RECONCILE_INTERVALS[TaskState.RUNNING], claimed_at=None)
    assert late.values_list("pk", flat=True).get() == ids[0], "its pass is tried again after a while, or by a hint"
    assert "is tried again" in caplog.text


# Who looks -----------------------------------------------------------------------------------------------------------


def test_without_watchers_each_task_is_observed_at_the_usual_interval(task: Task) -> None:
    many(task, 9)
    reconciler.reconcile_due_tasks()
    assert not Task.objects.filter(due_at__gt=now() + RECONCILE_INTERVALS[TaskState.RUNNING]).exists()


def test_watched_tasks_become_due_later_and_spread_out(task: Task, clock: list[float]) -> None:
    many(task, 9)
    watchers_look(at=1.0)
    reconciler.reconcile_due_tasks()
    moments = set(Task.objects.values_list("due_at", flat=True))
    assert len(moments) > 1
    assert all(
        now() + WATCHED_RECONCILE_INTERVAL / 3 < moment < now() + WATCHED_RECONCILE_INTERVAL
        for moment in moments
        if moment
    )


def test_a_task_whose_watcher_stopped_is_due_at_once(task: Task, clock: list[float], engine: Engine) -> None:
    many(task, 9)
    watchers_look(at=1.0)
    reconciler.reconcile_due_tasks()
    engine.looks = 0
    clock[0] = RECONCILE_INTERVALS[TaskState.RUNNING].total_seconds()
    assert reconciler.reconcile_due_tasks() == 0
    clock[0] += 1
    assert reconciler.reconcile_due_tasks() == 10
    assert engine.looks == 10


def test_a_watcher_that_only_sends_heartbeats_is_not_relied_on() -> None:
    moment = [0.0]
    heard, patience = WatcherHeartbeats(lambda: moment[0]), timedelta(seconds=15)
    assert not heard.have_all_looked({}, {}, patience), "nobody watches"
    assert not heard.have_all_looked({"a": 1}, {}, patience), "it has not looked yet"
    assert heard.have_all_looked({"a": 1}, {"a": 7.0}, patience)
    moment[0] = 16.0
    assert not heard.have_all_looked({"a": 2}, {"a": 7.0}, patience)
    assert heard.have_all_looked({"a": 2}, {"a": 8.0}, patience)
    assert not heard.have_all_looked({"a": 2, "b": 1}, {"a": 8.0}, patience), "part of what runs is b's"


def test_a_task_near_its_time_limit_is_due_soon(task: Task, clock: list[float]) -> None:
    many(task, 0)
    watchers_look(at=1.0)
    Task.objects.update(deadline_at=now() + WATCHED_RECONCILE_INTERVAL / 2)
    reconciler.reconcile_due_tasks()
    assert not Task.objects.filter(due_at__gt=now() + RECONCILE_INTERVALS[TaskState.RUNNING]).exists()


@pytest.mark.parametrize(
    "rank",
    [RankStatus(0, 0, "exited", exit_code=0, ended_at=1.0), RankStatus(0, 0, "waiting"),
     RankStatus(0, 0, "running", still_since=1.0)],
    ids=["ended", "not begun", "still"],
)  # fmt: skip
def test_a_task_that_time_alone_may_change_is_due_soon(
    task: Task, clock: list[float], engine: Engine, rank: RankStatus
) -> None:
    engine.says[task.pk] = Observation(Phase.RUNNING, left=True, ranks=(rank, *RUNS.ranks[1:]))
    many(task, 0)
    watchers_look(at=1.0)
    reconciler.reconcile_due_tasks()
    assert not Task.objects.filter(due_at__gt=now() + RECONCILE_INTERVALS[TaskState.RUNNING]).exists()


# Marks ---------------------------------------------------------------------------------------------------------------


def test_stored_observations_equal_the_observed_ones() -> None:
    full = RankStatus(1, 0, "exited", 7, -9, 12.5, True, 3.0, {"type": "E"}, {"since": 1.0}, {"by": "kernel"}, 1.0, 2.0)
    seen = Observation(Phase.FAILED, False, (full, RUNS.ranks[0]), Cause("A", {"b": 1}), Cause("C"))
    kept = seen_last.serialize_observation(seen)
    assert [RankStatus(**rank) for rank in kept["ranks"]] == list(seen.ranks)
    assert {**kept, "ranks": []} == {
        "phase": "failed", "left": False, "ranks": [], "cause": {"code": "A", "params": {"b": 1}},
        "waiting": {"code": "C", "params": {}},
    }  # fmt: skip


def test_any_difference_changes_the_fingerprint() -> None:
    others = [
        RUNS, CHANGED, Observation(Phase.RUNNING, left=True), Observation(Phase.RUNNING, ranks=RUNS.ranks),
        Observation(Phase.RUNNING, True, RUNS.ranks, waiting=Cause("A")),
        Observation(Phase.RUNNING, True, RUNS.ranks, cause=Cause("A")),
        Observation(Phase.RUNNING, True, RUNS.ranks, cause=Cause("A", {"n": 10**30})),
    ]  # fmt: skip
    assert len({seen_last.compute_digest(seen) for seen in others}) == len(others)
    assert seen_last.compute_digest(Observation(Phase.RUNNING, True, tuple(RUNS.ranks))) == seen_last.compute_digest(
        RUNS
    )
