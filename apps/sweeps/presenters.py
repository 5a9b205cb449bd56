"""Sweeps and trials as the API shows them, in the reader's language."""

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts.models import User
from apps.common.texts import serialize_reason
from apps.sweeps import observation, selectors
from apps.sweeps.models import Sweep, Trial
from apps.sweeps.services.lifecycle import SweepPreview
from apps.training import public as training
from fermi.jobs.spec import Problem
from fermi.sweeps import search
from fermi.sweeps.decision import OPEN_STATES, SweepState, TrialState
from fermi.sweeps.spec import load_spec

_ACTIONS = {
    SweepState.RUNNING: ["pause", "stop"],
    SweepState.PAUSED: ["resume", "stop"],
    SweepState.STOPPING: [],
    SweepState.ENDED: ["delete"],
}


def serialize_sweep_item(sweep: Sweep) -> dict[str, Any]:
    """Return a sweep as in a list; it was loaded by `selectors`."""
    spec: Mapping[str, Any] = sweep.spec
    row: Any = sweep
    objective = spec.get("objective") or {}
    actions = list(_ACTIONS[SweepState(sweep.state)])
    if sweep.best is not None:
        actions.append("cloneBest")
    return {
        "id": sweep.pk,
        "name": sweep.name,
        "projectId": sweep.project_id,
        "projectName": sweep.project.name,
        "owner": sweep.owner.username,
        "status": sweep.state,
        "reason": serialize_reason(sweep.reason, sweep.reason_params),
        "method": spec.get("method") or "tpe",
        "metric": objective.get("metric"),
        "goal": objective.get("goal") or "minimize",
        "trials": {
            "total": row.trial_count,
            "running": row.open_count - row.paused_count,
            "paused": row.paused_count,
            "complete": row.complete_count,
            "pruned": row.pruned_count,
            "failed": row.failed_count,
            "stopped": row.stopped_count,
        },
        "best": sweep.best,
        "bestValue": sweep.best_value,
        "gpuHours": sweep.gpu_hours,
        "cost": sweep.cost,
        "createdAt": sweep.created_at,
        "endedAt": sweep.ended_at,
        "allowedActions": actions if row.may_change else [],
    }


def serialize_sweep(sweep: Sweep, user: User) -> dict[str, Any]:
    """Return a sweep with what it was created from, without what the user may not read of that, and its best trial."""
    request = training.redact_request(sweep.spec.get("request") or {}, sweep.project_id, user)
    best = selectors.find_best_trial(sweep)
    return {
        **serialize_sweep_item(sweep),
        "spec": {**sweep.spec, "request": request},
        "bestTrial": serialize_trial(best) if best else None,
        "warnings": [_serialize_warning(one) for one in selectors.list_warnings(sweep)],
    }


def serialize_trial(trial: Trial) -> dict[str, Any]:
    """Return a trial; it was loaded with its task."""
    task = trial.task
    reason = serialize_reason(trial.reason, trial.reason_params)
    if trial.state == TrialState.ACTIVE and task:
        row = {name: getattr(task, name) for name in training.REASON_COLUMNS}
        reason = training.explain_task(row) or reason
    ended = trial.ended_at or (task.ended_at if task else None)
    return {
        "number": trial.number,
        "status": trial.state,
        "taskId": trial.task_id,
        "taskStatus": task.state if task else None,
        "parameters": trial.parameters,
        "chosenBy": trial.search.get("by") or "random",
        "value": trial.value,
        "valueStep": trial.value_step,
        "step": (task.progress.get("step") if task else None),
        "rung": trial.rung,
        "marks": [{"step": int(step), "value": value} for step, value in sorted(
            trial.marks.items(), key=lambda item: int(item[0])
        )],
        "why": reason,
        "gpuHours": trial.gpu_hours,
        "cost": trial.cost,
        "createdAt": trial.created_at,
        "startedAt": task.started_at if task else None,
        "endedAt": ended,
    }  # fmt: skip


def serialize_preview(preview: SweepPreview) -> dict[str, Any]:
    """Return a preview; values of variables that look like secrets are masked."""
    request = preview.request
    return {
        "problems": [training.serialize_problem(problem) for problem in preview.problems],
        "warnings": [_serialize_warning(one) for one in preview.warnings],
        "count": preview.count,
        "parameters": list(preview.parameters),
        "commands": list(preview.commands),
        "request": None if request is None else training.redact_request(request, preview.project or "", None),
    }


def _serialize_warning(warning: Problem) -> dict[str, Any]:
    return {"field": warning.field, **training.serialize_warning(warning.code, warning.params)}


def serialize_file(sweep: Mapping[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    """Return the sweep that a file describes, and what of the file has no equal here."""
    return {"sweep": dict(sweep), "problems": [training.serialize_problem(problem) for problem in problems]}


def serialize_importance(sweep: Sweep) -> dict[str, Any]:
    """Return how much each parameter matters, as far as the completed trials tell."""
    trials: Sequence[Trial] = list(Trial.objects.filter(sweep=sweep).order_by("number"))
    records = [observation.build_record(trial) for trial in trials if trial.state not in OPEN_STATES]
    shares = search.compute_importance(load_spec(sweep.spec), records)
    complete = sum(one.outcome == search.COMPLETE for one in records)
    return {"trials": complete, "items": [{"name": name, "share": share} for name, share in shares.items()]}
