"""Sweeps whose trials' tasks never run: what they would have reported, and passes over them."""

from typing import Any

from django.db.models import F

from apps.accounts.models import User
from apps.common.clock import now
from apps.sweeps import reconcile
from apps.sweeps.models import Sweep, Trial
from apps.sweeps.services import lifecycle
from apps.training.models import MetricPoint, Task
from apps.training.states import FINAL_STATES, TaskState

REQUEST: dict[str, Any] = {
    "taskName": "trial",
    "environmentIds": ["env-001"],
    "datasetId": None,
    "datasetVersionId": None,
    "entrypoint": {"script": "train.py", "args": ["${sweep.args}"]},
}
SWEEP: dict[str, Any] = {
    "name": "rates",
    "objective": {"metric": "loss"},
    "method": "random",
    "parameters": {"lr": {"min": 0.001, "max": 1.0, "scale": "log"}},
    "budget": {"trials": 6},
    "parallel": 2,
    "request": REQUEST,
}


def make_sweep(user: User, **changes: Any) -> Sweep:
    body = {**SWEEP, **changes}
    problems = lifecycle.preview_sweep(user, body).problems
    assert not problems, problems
    return lifecycle.create_sweep(user, body)


def run_pass(sweep: Sweep) -> Sweep:
    Sweep.objects.filter(pk=sweep.pk).exclude(due_at=None).update(due_at=now(), claimed_at=None)
    reconcile.reconcile_sweep(sweep.pk)
    sweep.refresh_from_db()
    return sweep


def list_states(sweep: Sweep) -> list[str]:
    return list(sweep.trials.order_by("number").values_list("state", flat=True))


def report(trial: Trial, *points: tuple[int, float], metric: str = "loss") -> None:
    assert trial.task_id
    for step, value in points:
        MetricPoint.objects.create(
            task_id=trial.task_id, attempt=1, rank=0, step=step, at=now(), values={metric: value}
        )


def end_task(task_id: str | None, state: TaskState = TaskState.SUCCEEDED, reason: str = "COMPLETED") -> None:
    Task.objects.filter(pk=task_id).update(state=state, reason=reason, due_at=None, ended_at=now())


def end_stopped_tasks() -> None:
    """As the reconciler of tasks would."""
    asked = Task.objects.filter(stop_requested_at__isnull=False).exclude(state__in=FINAL_STATES)
    asked.update(state=TaskState.STOPPED, reason="STOPPED_BY_USER", due_at=None, ended_at=F("stop_requested_at"))


def train(trial: Trial, steps: int, *, stride: int = 10) -> bool:
    """Have a trial's task train on from where it is, to its next comparison or its end; True where it ended. Its loss
    is its learning rate. A task that is paused or was asked to stop trains no more."""
    task = trial.task
    assert task
    task.refresh_from_db()
    if task.state in FINAL_STATES or task.paused_at or task.stop_requested_at:
        return False
    begin = MetricPoint.objects.filter(task=task).count() * stride
    if begin >= steps:
        end_task(task.pk)
        return True
    report(trial, (begin + stride, trial.parameters["lr"]))
    return False
