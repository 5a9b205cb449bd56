"""What the ends of a task's attempts mean for its next one: when it begins, and whether it costs a restart."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.accounts.models import Project, User
from apps.clusters import paths, selectors
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment
from apps.common import disks
from apps.common.clock import now
from apps.common.ids import new_id
from apps.training.core import checkpoint_choice, checkpoints, task_store, transitions, wakeups
from apps.training.models import Attempt, Checkpoint, Event, MetricPoint, Task
from apps.training.presenters import task_presenter
from apps.training.reconcile import actions, reconciler, restarts
from apps.training.states import TaskState, deadlines
from apps.training.states.deadlines import MAX_BACKOFF
from apps.training.states.decisions import ReconcileAction, ReconcileDecision
from apps.training.states.reasons import CAUSES, TaskReason
from fermi import messages
from fermi.jobs.spec import Cause, Entrypoint, JobSpec
from fermi.planning import plugins

pytestmark = [pytest.mark.database, pytest.mark.django_db]


@pytest.fixture
def task(user: User, settings, tmp_path) -> Task:
    """Queued, on a worker of another host, so that nothing runs here."""
    settings.DATA_DIR = tmp_path
    project = Project.objects.create(name="p")
    cluster = Cluster.objects.create(name="c", backend="agent")
    environment = DevEnvironment.objects.create(
        id="gn5", name="gn5", project=project, cluster=cluster, zone=AvailabilityZone.objects.create(name="z"),
        gpu_type="A100", gpu_count=1, host="gn5", engine={"workers": ["gn5-0"], "gpus": [0], "address": "gn5"},
    )  # fmt: skip
    job = JobSpec(
        "task-x", "pytorch-ddp", tuple(selectors.build_nodes([environment])), "gn5", entrypoint=Entrypoint("train.py"),
        checkpoint_dir=str(tmp_path / "checkpoints" / "task-x"),
    )  # fmt: skip
    task = Task.objects.create(
        id="task-x", project=project, owner=user, cluster=cluster, name="t", framework=job.framework, request={},
        state=TaskState.QUEUED, state_since=now(), due_at=now(), created_at=now(), **task_store.build_job_columns(job),
    )  # fmt: skip
    task_store.store_nodes(task, job)
    return task


def have_ended(task: Task, outcomes: Sequence[str], lasted: timedelta = timedelta(seconds=2)) -> None:
    """As many attempts, the newest of which has ended this moment."""
    moment = now()
    for number, outcome in enumerate(outcomes, 1):
        Attempt.objects.create(
            task=task, number=number, master_port=29500 + number, outcome=outcome, created_at=moment - lasted,
            ended_at=moment,
        )  # fmt: skip
    Task.objects.filter(pk=task.pk).update(attempt=len(outcomes))


def a_while_passes(task: Task, seconds: float) -> None:
    """As if all had been so much earlier."""
    for attempt in task.attempts.all():
        attempt.created_at -= timedelta(seconds=seconds)
        attempt.ended_at -= timedelta(seconds=seconds)
        attempt.save()


def attempt_after_a_pass(task: Task) -> int:
    reconciler.reconcile_tasks(task.pk)
    task.refresh_from_db()
    return task.attempt


def test_the_end_of_another_task_does_not_shorten_the_backoff(task: Task) -> None:
    have_ended(task, ["RANK_FAILED"] * 4)
    assert attempt_after_a_pass(task) == 4
    for hint in (wakeups.enqueue_waiting_tasks, lambda: wakeups.enqueue_task(task.pk)):
        hint()
        assert attempt_after_a_pass(task) == 4, "it began although it is backing off"
        assert task.due_at is not None
        assert task.due_at > now()
    a_while_passes(task, 8)
    wakeups.enqueue_waiting_tasks()
    assert attempt_after_a_pass(task) == 5


def ends_meanwhile(task: Task) -> None:
    """Another task, through the reconciler: it waits for the same environment, and is stopped."""
    other = Task.objects.get(pk=task.pk)
    other.pk, other.name, other.state, other.attempt = new_id("task"), "other", TaskState.QUEUED, 0
    other.stop_requested_at = other.due_at = now()
    other.save(force_insert=True)
    reconciler.reconcile_tasks(other.pk)
    other.refresh_from_db()
    assert other.state == TaskState.STOPPED


def crashes(task: Task) -> None:
    """Until it backs off. Nobody knows its worker, so each attempt fails at once."""
    for _ in range(20):
        wakeups.enqueue_task(task.pk)
        reconciler.reconcile_tasks(task.pk)
        task.refresh_from_db()
        if task.state == TaskState.QUEUED and restarts.compute_start_time(task.attempts.all()):
            return
    raise AssertionError(f"{task.state} {task.reason}")


def test_backoff_grows_although_other_tasks_end(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """As stored: between the end of an attempt and the beginning of the next one; in minutes, so that no machine is too
    slow."""
    monkeypatch.setattr(restarts, "compute_backoff", lambda quick: 60 * deadlines.compute_backoff(quick))
    Task.objects.filter(pk=task.pk).update(max_restarts=10)
    waits = [60.0 * seconds for seconds in (1, 3, 7, 15, 31)]
    for number, seconds in enumerate(waits, 2):
        crashes(task)
        for _ in range(2):
            assert task.attempt == number
            ends_meanwhile(task)
            assert attempt_after_a_pass(task) == number, "another task's end cut the wait short"
            a_while_passes(task, seconds / 2)
        ends_meanwhile(task)
        assert attempt_after_a_pass(task) == number + 1, "its time had come"
    begun, ended = zip(*task.attempts.order_by("number").values_list("created_at", "ended_at"), strict=True)
    gaps = [(later - before).total_seconds() for before, later in zip(ended[1:], begun[2:], strict=False)]
    assert all(gap >= least for gap, least in zip(gaps, waits, strict=True)), gaps


def test_after_a_full_disk_the_next_attempt_waits_for_space(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """With less it would only end in the same way."""
    have_ended(task, ["DISK_FULL"])
    about = {"path": "/scratch", "free": 0, "total": 1 << 30, "rank": 0, "node": "gn5"}
    task.attempts.update(outcome_params=about)
    free = restarts.MIN_FREE_BYTES - 1
    monkeypatch.setattr(
        disks, "read_free_space", lambda path: {"free": free, "total": 1 << 30} if path == "/scratch" else None
    )
    assert attempt_after_a_pass(task) == 1
    assert (task.state, task.reason, task.reason_params["free"]) == (TaskState.QUEUED, "DISK_FULL", free)
    free += 1
    wakeups.enqueue_task(task.pk)
    assert attempt_after_a_pass(task) > 1


@pytest.mark.parametrize("code", ["DISK_RESERVE_REACHED", "DISK_WITHOUT_ROOM"])
def test_after_the_reserved_disk_space_was_reached_the_next_attempt_waits_for_more(
    task: Task, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    have_ended(task, [code])
    about = {"path": "/scratch", "freeMiB": 3, "totalMiB": 1024, "reserveMiB": 51, "node": "gn5", "rank": 0}
    task.attempts.update(outcome_params={**about, "task": "task-x", "wrote": "1 GiB", "seconds": 9})
    free = 50 << 20
    monkeypatch.setattr(
        disks, "read_free_space", lambda path: {"free": free, "total": 1 << 30} if path == "/scratch" else None
    )
    assert attempt_after_a_pass(task) == 1
    assert (task.state, task.reason, task.reason_params["freeMiB"]) == (TaskState.QUEUED, code, 50)
    free = 52 << 20
    wakeups.enqueue_task(task.pk)
    assert attempt_after_a_pass(task) > 1


def test_a_disk_that_is_not_visible_is_not_waited_for(task: Task) -> None:
    have_ended(task, ["DISK_FULL"])
    task.attempts.update(outcome_params={"path": "/nowhere/here", "free": 0, "total": 1})
    assert attempt_after_a_pass(task) > 1


def test_a_stop_ends_a_task_in_backoff_at_once(task: Task) -> None:
    have_ended(task, ["RANK_FAILED"] * 4)
    Task.objects.filter(pk=task.pk).update(stop_requested_at=now())
    wakeups.enqueue_task(task.pk)
    reconciler.reconcile_tasks(task.pk)
    task.refresh_from_db()
    assert task.state == TaskState.STOPPED


def test_only_consecutive_quick_failures_cause_backoff(task: Task) -> None:
    have_ended(task, ["RANK_FAILED"] * 9, lasted=timedelta(hours=2))
    assert restarts.compute_start_time(task.attempts.all()) is None
    last = task.attempts.get(number=9)
    last.created_at = now() - timedelta(seconds=2)
    last.save()
    assert restarts.compute_start_time(task.attempts.all()) is None, "the first quick one is followed at once"


@pytest.mark.parametrize(("quick", "seconds"), [(1, 0), (2, 1), (3, 3), (4, 7), (5, 15), (6, 31), (7, 60), (2000, 60)])
def test_each_further_quick_failure_doubles_the_backoff(quick: int, seconds: int) -> None:
    moment = now()
    ended = [Attempt(number=n, created_at=moment, ended_at=moment) for n in range(1, quick + 1)]
    assert restarts.compute_start_time(ended) == (moment + timedelta(seconds=seconds) if seconds else None)
    assert timedelta(seconds=seconds) <= MAX_BACKOFF


def test_a_lost_host_replaces_a_ranks_error_as_the_outcome(task: Task) -> None:
    have_ended(task, ["RANK_FAILED"])
    Task.objects.filter(pk=task.pk).update(state=TaskState.RUNNING)
    task.refresh_from_db()
    attempt, late = task.attempts.get(), task.attempts.get()
    lost = ReconcileDecision(
        ReconcileAction.RECORD, cause=Cause("WORKER_LOST", {"worker": "w", "node": "gn5", "rank": 0})
    )
    actions.record_outcome(task, attempt, lost)
    assert task.attempts.get().outcome == task.reason == "WORKER_LOST"
    with pytest.raises(transitions.StaleTaskError):
        actions.record_outcome(task, late, lost)


@pytest.mark.parametrize("engine", plugins.BACKENDS)
def test_external_ends_cost_no_restart_up_to_a_limit(engine: str) -> None:
    declared = CAUSES | plugins.get_causes(engine)
    failed, killed = declared["RANK_FAILED"], declared["RANK_KILLED"]
    for cause in (one for one in declared.values() if one.free):
        assert cause.retry
        assert restarts.count_charged_ends([cause] * cause.free) == 0
        assert restarts.count_charged_ends([cause] * (cause.free + 2)) == 2, "it could go on for ever"
        assert restarts.count_charged_ends([failed, cause, killed]) == 2


def saved(task: Task, attempt: int, step: int) -> str:
    path = Path(task.spec["checkpoint_dir"], f"step-{step}")
    path.mkdir(parents=True, exist_ok=True)
    Checkpoint.objects.update_or_create(
        task=task, path=str(path), defaults={"attempt": attempt, "step": step, "at": now()}
    )
    return str(path)


def step(task: Task, attempt: int, number: int) -> None:
    MetricPoint.objects.create(task=task, attempt=attempt, rank=0, step=number, at=now(), values={"loss": 1.0})


def failed_from(task: Task, number: int, resume_from: str, outcome: str = "RANK_FAILED", **params: Any) -> None:
    Attempt.objects.create(
        task=task, number=number, master_port=29500 + number, resume_from=resume_from, outcome=outcome,
        outcome_params=params, created_at=now(), ended_at=now(),
    )  # fmt: skip


@pytest.fixture
def here(task: Task, settings: Any) -> Task:
    """On this machine, where it can be seen which checkpoints are there."""
    Cluster.objects.filter(pk=task.cluster_id).update(backend="local")
    task.cluster.refresh_from_db()
    failed_from(task, 1, "")
    step(task, 1, 20)
    return task


def test_a_checkpoint_without_progress_is_not_used_again(here: Task) -> None:
    first, second = saved(here, 1, 10), saved(here, 1, 20)
    assert checkpoint_choice.choose_resume_path(here) == (second, [])
    failed_from(here, 2, second)
    assert checkpoint_choice.choose_resume_path(here) == (first, [second])
    failed_from(here, 3, first)
    step(here, 3, 11)
    assert checkpoint_choice.choose_resume_path(here) == (first, [second]), (
        "it brought a step, and the newer one is as bad as it was"
    )
    saved(here, 3, 20)
    assert checkpoint_choice.choose_resume_path(here) == (second, []), "the script has written it anew"
    third = saved(here, 3, 30)
    assert checkpoint_choice.choose_resume_path(here) == (third, [])


def test_a_recipes_automatic_choice_of_checkpoint_is_overridden_too(here: Task) -> None:
    Task.objects.filter(pk=here.pk).update(spec={**here.spec, "entrypoint": None})
    here.refresh_from_db()
    first, second = saved(here, 1, 10), saved(here, 1, 20)
    assert checkpoint_choice.choose_resume_path(here) == ("auto", [])
    failed_from(here, 2, "auto")
    assert checkpoint_choice.choose_resume_path(here) == (first, [second])
    Event.objects.create(
        task=here, attempt=2, at=now(), kind="script", code="SCRIPT_RESUMED", params={"step": 10, "path": first}
    )
    assert checkpoint_choice.choose_resume_path(here) == (second, []), "the script says that it was the older one"


def test_inside_environments_the_newest_downloaded_checkpoint_is_used(here: Task) -> None:
    """What was announced may have been lost with its environment, before it was brought here."""
    Task.objects.filter(pk=here.pk).update(inside=True)
    here.refresh_from_db()
    first, second = saved(here, 1, 10), saved(here, 1, 20)
    assert checkpoint_choice.choose_resume_path(here) == (second, [])
    Path(second).rmdir()
    assert checkpoint_choice.choose_resume_path(here) == (first, [])
    Path(first).rmdir()
    assert checkpoint_choice.choose_resume_path(here) == (second, []), "it may be in the environment still"


def begun_after(task: Task, step: int) -> list[tuple[str, Any]]:
    """What the attempt that begins after one of so many steps is said to have to do again."""
    have_ended(task, ["RANK_FAILED"])
    Task.objects.filter(pk=task.pk).update(progress={"step": step}, max_restarts=3)
    assert attempt_after_a_pass(task) == 2
    rows = Event.objects.filter(task=task, code="RESUMED_WITHOUT_CHECKPOINT")
    return [(row.code, row.params["lost"]) for row in rows]


def test_an_attempt_without_a_checkpoint_says_so(task: Task) -> None:
    assert begun_after(task, 2101) == [("RESUMED_WITHOUT_CHECKPOINT", 2101)]
    for lang in messages.LANGUAGES:
        assert "2101" in messages.render_text("RESUMED_WITHOUT_CHECKPOINT", lang, lost=2101)[0]


def test_an_attempt_with_a_checkpoint_or_nothing_to_redo_says_nothing(task: Task) -> None:
    Checkpoint.objects.create(task=task, attempt=1, step=2000, path=task.spec["checkpoint_dir"] + "/p", at=now())
    assert begun_after(task, 2101) == []


@pytest.mark.parametrize("outcome", ["WORKER_LOST", "MASTER_PORT_TAKEN", "PREEMPTED"])
def test_external_ends_do_not_discredit_a_checkpoint(here: Task, outcome: str) -> None:
    saved(here, 1, 10)
    newest = saved(here, 1, 20)
    failed_from(here, 2, newest, outcome)
    assert checkpoint_choice.choose_resume_path(here) == (newest, [])


def test_a_deleted_checkpoint_is_skipped_and_the_last_one_used(here: Task) -> None:
    first, second, third = (saved(here, 1, number) for number in (10, 20, 30))
    failed_from(here, 2, third)
    Path(second).rmdir()
    assert checkpoint_choice.choose_resume_path(here) == (first, [third])
    assert checkpoint_choice.find_newest_checkpoint(here) == first
    failed_from(here, 3, first)
    assert checkpoint_choice.choose_resume_path(here) == (third, []), "there is no other"


def test_a_claimed_checkpoint_outside_the_tasks_folders_is_ignored(here: Task, settings: Any) -> None:
    """An attempt may read what it resumes from, so the word of the one before must not decide what that is."""
    own = saved(here, 1, 10)
    data = settings.DATA_DIR
    for step, path in enumerate(
        (f"{data}/checkpoints/task-y/step-9", f"{data}/token", f"{data}/checkpoints/task-x/../task-y/step-9"), start=20
    ):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        Checkpoint.objects.create(task=here, path=path, attempt=1, step=step, at=now())
    assert checkpoint_choice.choose_resume_path(here) == (own, [])
    assert checkpoint_choice.find_newest_checkpoint(here) == own
    shared = saved_at(here, f"{data}/workspace/step-40", 40)
    assert checkpoint_choice.choose_resume_path(here) == (shared, []), "workspace is everybody's"


@pytest.mark.parametrize(("fails", "most_rows", "queries"), [(False, 20, 3), (True, 500, 6)])
def test_the_checkpoint_is_found_without_reading_each_one(
    here: Task, monkeypatch: pytest.MonkeyPatch, fails: bool, most_rows: int, queries: int
) -> None:
    folder = here.spec["checkpoint_dir"]
    rows = [Checkpoint(task=here, attempt=1, step=step, path=f"{folder}/step-{step}", at=now()) for step in range(499)]
    Checkpoint.objects.bulk_create(rows)
    newest = saved(here, 1, 500)
    if fails:
        failed_from(here, 2, f"{folder}/step-498")
    here.attempt = 2
    looked = mock.Mock(wraps=paths.normalize_path)
    resolved = mock.Mock(wraps=checkpoints._list_names)
    monkeypatch.setattr(paths, "normalize_path", looked)
    monkeypatch.setattr(checkpoints, "_list_names", resolved)
    with CaptureQueriesContext(connection) as asked:
        point = checkpoint_choice.find_resume_point(here)
    assert point
    assert point.path == newest
    assert looked.call_count <= most_rows
    assert resolved.call_count == 4, "each of the platform's own folders, once"
    assert len(asked) <= queries, [one["sql"] for one in asked]


def saved_at(task: Task, path: str, step: int) -> str:
    Path(path).mkdir(parents=True)
    Checkpoint.objects.create(task=task, path=path, attempt=1, step=step, at=now())
    return path


def test_equal_failures_at_the_same_step_are_counted(task: Task) -> None:
    for number in (1, 2, 3, 4):
        failed_from(task, number, "", rank=1, exitCode=1)
    attempts = list(task.attempts.all())
    assert restarts.describe_repetition(attempts, attempts[3], {1: 5, 2: 7, 3: 7, 4: 7}) == {"again": 3, "step": 7}
    assert restarts.describe_repetition(attempts, attempts[3], {1: 7, 2: 7, 3: 7, 4: 8}) == {}
    assert restarts.describe_repetition(attempts, attempts[0], {1: 7}) == {}
    assert restarts.describe_repetition(attempts, attempts[3], {}) == {}, "nobody knows at which step"
    attempts[2].outcome_params = {"rank": 0, "exitCode": 1}
    assert restarts.describe_repetition(attempts, attempts[3], {3: 7, 4: 7}) == {}


def test_the_second_equal_failure_is_an_event_and_part_of_the_reason(here: Task) -> None:
    Attempt.objects.filter(task=here).update(outcome_params={"rank": 0, "node": "gn5", "exitCode": 1})
    failed_from(here, 2, "", rank=0, node="gn5", exitCode=1)
    step(here, 2, 20)
    spec = {**here.spec, "on_crash_loop": "restart"}
    Task.objects.filter(pk=here.pk).update(state=TaskState.RUNNING, attempt=2, spec=spec)
    here.refresh_from_db()
    actions.close_attempt(here, here.attempts.get(number=2), ReconcileDecision(ReconcileAction.CLOSE, TaskState.FAILED))
    event = Event.objects.get(code="SAME_FAILURE")
    told = task_presenter.serialize_event({"code": event.code, "params": event.params}, "en")["message"]
    assert told == "The same failure 2 times in a row, at step 20: Rank 0 on gn5 ended with exit code 1."
    before = {**event.params, "again": 2}  # as rows were written that are kept
    del before["outcome"], before["times"]
    told = task_presenter.serialize_event({"code": event.code, "params": before}, "en")["message"]
    assert told == "Rank 0 failed in the same way 2 times in a row, at step 20."
    assert "2 times in a row at step 20" in messages.render_text(here.reason, "en", **here.reason_params)[0]


def test_a_stop_that_killed_ranks_names_them(here: Task) -> None:
    ranks = [{"rank": 0, "exit_code": 143}, {"rank": 1, "exit_code": -9}, {"rank": 2, "exit_code": -9}]
    Attempt.objects.filter(task=here).update(outcome=TaskReason.STOPPED_BY_USER, seen={"ranks": ranks})
    Task.objects.filter(pk=here.pk).update(state=TaskState.STOPPING, attempt=1)
    here.refresh_from_db()
    actions.close_attempt(here, here.attempts.get(), ReconcileDecision(ReconcileAction.CLOSE, TaskState.STOPPED))
    assert here.reason == TaskReason.STOPPED_AND_KILLED
    said = messages.render_text(here.reason, "en", **here.reason_params)[0]
    assert "Rank 1, 2 had not ended" in said
