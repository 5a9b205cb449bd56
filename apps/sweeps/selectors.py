"""Reads sweeps and their trials, as far as a user may see them."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, Max, Min, Q, QuerySet

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.sweeps.models import Sweep, Trial
from fermi.jobs.spec import Problem
from fermi.sweeps.decision import OPEN_STATES, TrialState
from fermi.sweeps.trial_request import lacks_parameters

MIN_COMPARED_TRIALS, MAX_COMPARED_TRIALS = 3, 100
"""Completed trials from which equal objectives are a sign; whose parameters are compared."""
ARGUMENTS_UNUSED = Problem("request.entrypoint.args", "SWEEP_ARGUMENTS_UNUSED")


def list_sweeps(user: User, filters: Mapping[str, Any]) -> QuerySet[Sweep]:
    """Return the sweeps of the user's projects that match `filters`, newest first."""
    rows = access.filter_visible(_query_sweeps(user), user)
    if states := filters.get("status"):
        rows = rows.filter(state__in=states)
    if project := filters.get("project"):
        rows = rows.filter(project=project)
    if word := filters.get("search"):
        rows = rows.filter(Q(name__icontains=word) | Q(pk__icontains=word))
    return rows


def get_sweep(user: User, sweep_id: str, role: Role = Role.VIEWER) -> Sweep:
    """Return a sweep. Raises ApiError 404 if the user may not see it, 403 without `role` in its project."""
    return access.get_object(_query_sweeps(user), user, sweep_id, role)


def list_trials(sweep: Sweep, filters: Mapping[str, Any]) -> QuerySet[Trial]:
    """Return the trials of a sweep that match `filters`."""
    rows = Trial.objects.filter(sweep=sweep).select_related("task")
    rows = rows.defer("task__spec", "task__request", "task__summary", "curve")
    if states := filters.get("status"):
        rows = rows.filter(state__in=states)
    return rows


def find_best_trial(sweep: Sweep) -> Trial | None:
    """Return the best trial with its task; None while no trial has an objective."""
    if sweep.best is None:
        return None
    return Trial.objects.filter(sweep=sweep, number=sweep.best).select_related("task__cluster").first()


def list_warnings(sweep: Sweep) -> list[Problem]:
    """Return signs that the script does not read the parameters: completed trials that have the same objective with
    other parameters, or, before there are enough of them, a command without parameters."""
    complete = Trial.objects.filter(sweep=sweep, state=TrialState.COMPLETE, value__isnull=False)
    found = complete.aggregate(count=Count("pk"), low=Min("value"), high=Max("value"))
    if found["count"] >= MIN_COMPARED_TRIALS:
        if found["low"] != found["high"] or not _have_other_parameters(complete):
            return []
        return [Problem("", "SWEEP_VALUES_EQUAL", {"count": found["count"], "value": f"{found['low']:.6g}"})]
    request, parameters = sweep.spec.get("request") or {}, sweep.spec.get("parameters") or {}
    return [ARGUMENTS_UNUSED] if lacks_parameters(request, parameters) else []


def _have_other_parameters(trials: QuerySet[Trial]) -> bool:
    first, *others = trials.values_list("parameters", flat=True)[:MAX_COMPARED_TRIALS]
    return any(one != first for one in others)


def _query_sweeps(user: User) -> QuerySet[Sweep]:
    def count(states: Any) -> Count:
        return Count("trials", filter=Q(trials__state__in=sorted(states)))

    return Sweep.objects.select_related("owner", "project").annotate(
        trial_count=Count("trials"),
        open_count=count(OPEN_STATES),
        paused_count=count({TrialState.PAUSED}),
        complete_count=count({TrialState.COMPLETE}),
        pruned_count=count({TrialState.PRUNED}),
        failed_count=count({TrialState.FAILED}),
        stopped_count=count({TrialState.STOPPED}),
        may_change=access.build_may_change_expression(user),
    )
