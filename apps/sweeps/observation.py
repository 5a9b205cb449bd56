"""What a sweep's trials have come to, from what their tasks reported."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from apps.common.clock import now
from apps.common.sql import split_keys
from apps.sweeps.models import Trial
from apps.training import public as training
from fermi.sweeps import search
from fermi.sweeps.decision import OPEN_STATES, TrialFacts, TrialState
from fermi.sweeps.pruning import CurveState, add_points
from fermi.sweeps.search import TrialRecord
from fermi.sweeps.spec import ObjectiveRequest, SweepSpec

COUNT_INTERVAL = timedelta(seconds=30)
"""How often the GPU-hours of a running trial are counted, where the sweep's budget has a limit of them."""
MAX_READS = 20
"""Parts of a curve that one pass reads of a trial; the next pass goes on."""

_OUTCOMES = {
    TrialState.COMPLETE: search.COMPLETE,
    TrialState.PRUNED: search.PRUNED,
    TrialState.FAILED: search.FAILED,
    TrialState.STOPPED: search.FAILED,
}


def load_trials(sweep_id: str) -> list[Trial]:
    """Return the trials of a sweep by number; those that have not ended with their tasks."""
    trials = list(Trial.objects.filter(sweep=sweep_id).order_by("number"))
    keys = [trial.task_id for trial in trials if trial.state in OPEN_STATES and trial.task_id]
    tasks = {task.pk: task for part in split_keys(keys) for task in training.Task.objects.filter(pk__in=part)}
    for trial in trials:
        if trial.task_id in tasks:
            trial.task = tasks[trial.task_id]
    return trials


def build_facts(trial: Trial) -> TrialFacts:
    return TrialFacts(trial.number, TrialState(trial.state), _read_marks(trial), trial.rung, trial.value)


def build_record(trial: Trial) -> TrialRecord:
    """Return the trial as the search sees it. A paused one counts as pruned: its objective so far is known."""
    outcome = _OUTCOMES.get(TrialState(trial.state), search.OPEN)
    if trial.state == TrialState.PAUSED:
        outcome = search.PRUNED
    ended = trial.ended_at.timestamp() if trial.ended_at else 0.0
    step = trial.value_step or 0
    return TrialRecord(trial.number, trial.parameters, outcome, trial.value, step, ended, trial.search)


def find_best(spec: SweepSpec, trials: Sequence[Trial]) -> Trial | None:
    """Return the trial with the best objective; of equal ones the first. Trials that ended by themselves come before
    those that were ended early, whose curve is not whole."""
    for states in ({TrialState.COMPLETE}, set(TrialState) - {TrialState.FAILED}):
        rated = [trial for trial in trials if trial.value is not None and trial.state in states]
        if rated:
            sign = 1.0 if spec.objective.goal == "minimize" else -1.0
            return min(rated, key=lambda trial: (sign * (trial.value or 0.0), trial.number))
    return None


def observe_trial(spec: SweepSpec, trial: Trial, *, counts: bool) -> dict[str, Any]:
    """Return what has changed of an open trial, as columns. `counts`: its GPU-hours are counted while it runs, too."""
    if trial.state == TrialState.NEW:
        return {}
    task = trial.task if trial.task_id else None
    if task is None:
        return {
            "state": trial.ends or TrialState.FAILED,
            "ended_at": now(),
            **({} if trial.ends else {"reason": "TRIAL_TASK_DELETED", "reason_params": {}}),
        }
    is_final = task.state in training.FINAL_STATES  # before the curve is read: what comes later is read, too
    changes = _read_curve(spec, trial)
    if counts or is_final:
        changes |= _count_use(trial, task, is_final=is_final)
    if is_final:
        changes |= _conclude(spec, trial, task, changes)
    return {name: value for name, value in changes.items() if getattr(trial, name) != value}


def _read_curve(spec: SweepSpec, trial: Trial) -> dict[str, Any]:
    stored = trial.curve
    state = CurveState(stored.get("step", -1), stored.get("low"), stored.get("high"), stored.get("last"))
    marks, after, changed = _read_marks(trial), stored.get("after", 0), False
    for _ in range(MAX_READS):
        part = training.read_curve(str(trial.task_id), spec.objective.metric, after)
        state, marks = add_points(spec.pruning, spec.objective, state, marks, part.points)
        changed, after = changed or part.last != after, part.last
        if not part.more:
            break
    if not changed:
        return {}
    return {
        "curve": {"after": after, "step": state.step, "low": state.low, "high": state.high, "last": state.last},
        "marks": {str(step): value for step, value in marks.items()},
        "value": state.get_value(spec.objective),
        "value_step": max(state.step, 0),
    }


def _read_marks(trial: Trial) -> dict[int, float]:
    return {int(step): value for step, value in trial.marks.items()}


def _count_use(trial: Trial, task: training.Task, *, is_final: bool) -> dict[str, Any]:
    moment = now()
    if not is_final and trial.counted_at and moment - trial.counted_at < COUNT_INTERVAL:
        return {}
    report = training.report_task_usage(task)
    return {"gpu_hours": report["gpuHours"], "cost": report["cost"], "counted_at": moment}


def _conclude(spec: SweepSpec, trial: Trial, task: training.Task, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the end of a trial whose task has ended."""
    value, step = _find_objective(spec.objective, task.pk) or (
        changes.get("value", trial.value),
        changes.get("value_step", trial.value_step),
    )
    found = {"value": value, "value_step": step, "ended_at": task.ended_at or now()}
    if trial.state == TrialState.STOPPING and task.state != training.TaskState.SUCCEEDED:
        return {**found, "state": trial.ends or TrialState.STOPPED}
    if task.state == training.TaskState.SUCCEEDED:
        if value is None:
            params = {"metric": spec.objective.metric}
            return {**found, "state": TrialState.FAILED, "reason": "TRIAL_WITHOUT_METRIC", "reason_params": params}
        return {**found, "state": TrialState.COMPLETE, "reason": "", "reason_params": {}}
    state = TrialState.STOPPED if task.state == training.TaskState.STOPPED else TrialState.FAILED
    return {**found, "state": state, "reason": task.reason, "reason_params": task.reason_params}


def _find_objective(objective: ObjectiveRequest, task_id: str) -> tuple[float, int] | None:
    """Return the objective by the summary of the curve, which knows points that were thinned out, with its step."""
    summary = training.find_summary(task_id, objective.metric)
    if summary is None:
        return None
    return {"last": summary.last, "min": summary.low, "max": summary.high}[objective.statistic]
