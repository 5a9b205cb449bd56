"""Creates, previews, pauses, resumes, stops and deletes sweeps, and runs the best trial again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common import pass_claims, wakeups
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.sweeps import selectors
from apps.sweeps.models import Sweep, Trial
from apps.training import public as training
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem
from fermi.sweeps import search
from fermi.sweeps.decision import SweepState
from fermi.sweeps.space import Value, count_grid
from fermi.sweeps.spec import MAX_TRIALS, SweepSpec, load_spec, parse_sweep
from fermi.sweeps.trial_request import build_trial_request, format_command, lacks_parameters

PREVIEWED_TRIALS = 10
PREVIEW_SWEEP = "sweep-preview"
MAX_COMMAND_LENGTH = 4_000
"""Characters of a command that a preview shows."""


@dataclass(frozen=True, slots=True)
class SweepPreview:
    """What a sweep would do. `count`: how many trials there are at most, None where only other parts of the budget end
    it; `parameters`: of the first trials, as long as there are no results; `commands`: how those start an own script;
    `request`: of the first trial's task."""

    problems: Sequence[Problem]
    warnings: Sequence[Problem] = ()
    count: int | None = None
    parameters: Sequence[dict[str, Value]] = ()
    commands: Sequence[str] = ()
    request: Mapping[str, Any] | None = None
    project: str | None = None


def preview_sweep(user: User, body: Mapping[str, Any]) -> SweepPreview:
    """Return what the sweep would do, with all its problems; nothing is stored."""
    spec, problems = parse_sweep(body)
    if any(problem.field.startswith(("parameters", "method", "request")) for problem in problems):
        return SweepPreview(problems)  # no trial can be built
    if spec.ends_at is not None and spec.ends_at <= now().timestamp():
        problems.append(Problem("budget.endsAt", "SWEEP_END_PAST", {"until": spec.ends_at}))
    first = search.suggest_parameters(spec, (), 0, PREVIEW_SWEEP)
    request = _build_request(spec, PREVIEW_SWEEP, 0, first.parameters if first else {})
    draft = training.draft_request(user, request, training.PREVIEW_TASK_ID)
    names = {one.name for one in spec.space}
    problems += [replace(one, field=_locate(one.field, names)) for one in draft.problems]
    warnings = [replace(one, field=_locate(one.field, names)) for one in draft.warnings]
    if lacks_parameters(spec.request, names):
        warnings.append(selectors.ARGUMENTS_UNUSED)
    project = draft.choice.project
    chosen = _list_first(spec)
    return SweepPreview(
        problems,
        warnings,
        _count_trials(spec),
        chosen,
        _list_commands(spec, chosen),
        request,
        project.pk if project else None,
    )


def create_sweep(user: User, body: Mapping[str, Any]) -> Sweep:
    """Create a sweep and return it; its first trials start at once. Raises ProblemsError with all problems, and
    ApiError 403 without the role to create tasks."""
    preview = preview_sweep(user, body)
    if preview.problems:
        raise ProblemsError(preview.problems)
    assert preview.project  # a request without problems has one
    access.require_role(user, preview.project, Role.MEMBER)
    check_row_limit("sweeps", Sweep.objects.filter(project=preview.project))
    spec, _ = parse_sweep(body)
    moment = now()
    with transaction.atomic():
        sweep = Sweep.objects.create(
            project_id=preview.project,
            owner=user,
            name=spec.name,
            spec=dict(body),
            created_at=moment,
            due_at=moment,
        )
        audit.record_event(user, "sweep.create", sweep.pk, project=sweep.project_id, name=sweep.name)
        wakeups.enqueue_after_commit("sweeps.sweep")
    return sweep


def pause_sweep(user: User, sweep_id: str) -> Sweep:
    """Start no further trial; those that run go on. Asking again changes nothing. Raises ApiError 409 if the sweep has
    ended or is stopping."""
    return _change(user, sweep_id, "pause", {SweepState.RUNNING}, SweepState.PAUSED, "SWEEP_PAUSED")


def resume_sweep(user: User, sweep_id: str) -> Sweep:
    """Start trials again. Asking again changes nothing. Raises ApiError 409 if the sweep has ended or is stopping."""
    return _change(user, sweep_id, "resume", {SweepState.PAUSED}, SweepState.RUNNING, "")


def stop_sweep(user: User, sweep_id: str) -> Sweep:
    """Stop the sweep and the trials that run. Asking again changes nothing; a sweep that has ended stays as it is."""
    sweep = selectors.get_sweep(user, sweep_id, Role.MEMBER)
    if sweep.state in (SweepState.STOPPING, SweepState.ENDED):
        return sweep
    steps = {SweepState.RUNNING, SweepState.PAUSED}
    return _change(user, sweep_id, "stop", steps, SweepState.STOPPING, "SWEEP_STOPPED")


def delete_sweep(user: User, sweep_id: str) -> None:
    """Delete a sweep that has ended. The tasks of its trials stay. Raises ApiError 409 if it has not ended."""
    sweep = selectors.get_sweep(user, sweep_id, Role.MEMBER)
    with transaction.atomic():
        if not Sweep.objects.filter(pk=sweep.pk, state=SweepState.ENDED).exists():
            raise ApiError(409, "SWEEP_NOT_ENDED", status=sweep.state)
        audit.record_event(user, "sweep.delete", sweep.pk, project=sweep.project_id, name=sweep.name)
        Sweep.objects.filter(pk=sweep.pk).delete()


def clone_best(
    user: User,
    sweep_id: str,
    *,
    name: str | None = None,
    hyperparameters: Mapping[str, Any] | None = None,
    args: Sequence[str] = (),
    resume: bool = True,
) -> training.Task:
    """Create a task with the parameters of the best trial and return it. `hyperparameters` replace those of the trial,
    `args` follow the script's others; with `resume` it goes on from the trial's newest checkpoint. Raises ApiError 409
    if no trial has an objective yet, and ProblemsError."""
    sweep = selectors.get_sweep(user, sweep_id, Role.MEMBER)
    trial = selectors.find_best_trial(sweep)
    if trial is None:
        raise ApiError(409, "SWEEP_WITHOUT_BEST")
    spec = load_spec(sweep.spec)
    known = {one.name for one in spec.space}
    changes = dict(hyperparameters or {})
    chosen = {**trial.parameters, **{key: value for key, value in changes.items() if key in known}}
    request = _build_request(spec, sweep.pk, trial.number, chosen, sweep.code)
    request["hyperparameters"] = {**request["hyperparameters"], **changes}
    request["taskName"] = name or f"{sweep.name} best"[:100]
    if args and isinstance(entry := request.get("entrypoint"), Mapping):
        part = "command" if entry.get("command") else "args"
        request["entrypoint"] = {**entry, part: [*(entry.get(part) or ()), *args]}
    if resume and trial.task and (path := _find_checkpoint(trial.task)):
        request["resumeFrom"] = path
    task = training.submit_request(user, request)
    audit.record_event(user, "sweep.clone-best", sweep.pk, project=sweep.project_id, task=task.pk)
    return task


def _build_request(
    spec: SweepSpec,
    sweep: str,
    number: int,
    chosen: Mapping[str, Value],
    code: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    request = {**spec.request, **({"code": code} if code else {})}
    return build_trial_request(request, [one.name for one in spec.space], sweep, spec.name, number, chosen)


def _find_checkpoint(task: training.Task) -> str | None:
    try:
        return training.find_newest_checkpoint(task)
    except BackendError:
        return None


def _locate(field: str, names: set[str]) -> str:
    """Return where in the sweep's body a field of the trial's request comes from."""
    first, _, rest = field.partition(".")
    if first == "hyperparameters" and rest in names:
        return f"parameters.{rest}"
    return f"request.{field}" if field else "request"


def _count_trials(spec: SweepSpec) -> int | None:
    if spec.method == "grid":
        return min(count_grid(spec.space, MAX_TRIALS + 1), spec.max_trials)
    return spec.budget.trials


def _list_commands(spec: SweepSpec, chosen: Sequence[Mapping[str, Value]]) -> list[str]:
    """Return how trials with these parameters start an own script; nothing without one."""
    requests = [_build_request(spec, PREVIEW_SWEEP, number, one) for number, one in enumerate(chosen)]
    commands = [format_command(request)[:MAX_COMMAND_LENGTH] for request in requests]
    return commands if any(commands) else []


def _list_first(spec: SweepSpec) -> list[dict[str, Value]]:
    """Return the parameters of the first trials, which start without any result."""
    found: list[dict[str, Value]] = []
    records: list[search.TrialRecord] = []
    for number in count():
        if number >= min(PREVIEWED_TRIALS, spec.max_trials):
            break
        chosen = search.suggest_parameters(spec, records, number, PREVIEW_SWEEP)
        if chosen is None:
            break
        found.append(chosen.parameters)
        records.append(search.TrialRecord(number, chosen.parameters, search.OPEN, search=chosen.search))
    return found


def _change(user: User, sweep_id: str, action: str, states: set[SweepState], to: SweepState, reason: str) -> Sweep:
    """Change a sweep's state, and have it handled at once. Whoever resumes or stops the sweep of a person who has left
    is its owner from then on."""
    sweep = selectors.get_sweep(user, sweep_id, Role.MEMBER)
    if sweep.state not in {*states, to}:
        raise ApiError(409, "SWEEP_ACTION_NOT_ALLOWED", action=action, status=sweep.state)
    params = {"by": user.username} if reason else {}
    with transaction.atomic():
        rows = Sweep.objects.filter(pk=sweep.pk, state__in=states)
        values: dict[str, Any] = {"state": to, "reason": reason, "reason_params": params}
        if to == SweepState.RUNNING:
            values["judged_from"] = Trial.objects.filter(sweep=sweep).count()
        if to != SweepState.PAUSED and not access.may_act(sweep.owner, sweep.project_id):
            values["owner"] = user
        if rows.update(**values):
            audit.record_event(user, f"sweep.{action}", sweep.pk, project=sweep.project_id)
            pass_claims.update_rows(Sweep.objects.filter(pk=sweep.pk, due_at__gt=now()), due_at=now())
            wakeups.enqueue_after_commit("sweeps.sweep")
    return selectors.get_sweep(user, sweep_id)
