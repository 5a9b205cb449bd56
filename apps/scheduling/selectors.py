"""What the scheduler needs to know of projects: limits, usage, and reservations."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db.models import F, FloatField, Sum

from apps.accounts.models import Project as ProjectRow
from apps.accounts.models import Role, User
from apps.clusters.models import DevEnvironment
from apps.common import clock_jumps
from apps.common.clock import now as clock
from apps.common.sql import CompiledInstances
from apps.scheduling import pricing
from apps.scheduling.models import AtBudget, Limits, Reservation, Share, Usage, UserLimits
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.jobs.spec import Problem
from fermi.scheduler.ledger import PART_NAMES, TimeParts
from fermi.scheduler.snapshot import EnvironmentInfo, Priority, Project, Quota, RunningTask, decay_usage
from fermi.scheduler.snapshot import Reservation as Window

SECONDS_PER_HOUR = 3600.0
DEFAULT_PRIORITIES = frozenset({Priority.LOW, Priority.NORMAL, Priority.HIGH})
"""Priorities for members of a project that has no list of its own."""

_GPU_HOURS = F("gpus") * sum((F(part) for part in PART_NAMES[1:]), F(PART_NAMES[0])) / SECONDS_PER_HOUR
SUM_GPU_HOURS = Sum(_GPU_HOURS, output_field=FloatField())
SUM_COST = Sum(_GPU_HOURS * F("per_gpu_hour"), output_field=FloatField())
SUM_WAITED = Sum(F("gpus") * F("waited"), output_field=FloatField())
PART_SUMS: Mapping[str, Any] = {
    f"of_{part}": Sum(F("gpus") * F(part), output_field=FloatField()) for part in PART_NAMES
}
"""Aggregates over rows of the ledger; the last two in GPU-seconds, by the names that `build_parts` reads."""


def build_parts(sums: Mapping[str, Any]) -> TimeParts:
    """Return the parts of the time from the aggregates in PART_SUMS."""
    return TimeParts(**{part: sums[f"of_{part}"] or 0.0 for part in PART_NAMES})


@dataclass(slots=True)
class MonthlySpend:
    """Use of this month (UTC) so far, including what is held now: GPU-hours by user name, and their cost."""

    hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    cost: float = 0.0


def get_month_start(moment: datetime) -> datetime:
    """Return the beginning of the month (UTC) that `moment` is in."""
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def format_month(moment: datetime) -> str:
    """Return the month (UTC) of a moment, as `Limits.budget_warned` stores it."""
    return f"{moment:%Y-%m}"


def read_projects(
    now: datetime, running: Iterable[RunningTask], places: Iterable[EnvironmentInfo]
) -> dict[str, Project]:
    """Return all projects by id, in six queries at most. The month's cost is computed for projects with a monthly limit
    only."""
    limits = {row.project_id: row for row in Limits.objects.all()}
    shares = {row.project_id: row for row in Share.objects.all()}
    users: defaultdict[str, dict[str, Quota]] = defaultdict(dict)
    for row in UserLimits.objects.select_related("user"):
        users[row.project_id][row.user.username] = build_quota(row)
    by_month = {key for key, row in limits.items() if (row.gpu_hours, row.user_gpu_hours, row.budget) != (None,) * 3}
    by_month |= {key for key, known in users.items() if any(one.gpu_hours is not None for one in known.values())}
    spent = sum_spend(now, running, places, by_month) if by_month else {}
    found = {}
    for key, name in ProjectRow.objects.values_list("id", "name"):
        own = limits.get(key), users.get(key, {}), spent.get(key, MonthlySpend())
        found[key] = _build_full_project(key, name, compute_share(shares.get(key), now), *own)
    return found


_LIMITS_QUERY = CompiledInstances(Limits, lambda project: Limits.objects.filter(pk=project))


def get_limits(project: ProjectRow) -> Limits | None:
    return _LIMITS_QUERY.first(project=project.pk)


def build_project(project: ProjectRow, row: Limits | None) -> Project:
    """Return the project with its limits alone: without its usage and the limits of single users."""
    return Project(id=project.pk, name=project.name, **_build_limit_fields(row))


def compute_share(share: Share | None, at: datetime) -> float:
    """Return the GPU-seconds that count at that moment."""
    return decay_usage(share.used, (at - share.as_of).total_seconds()) if share else 0.0


def build_quota(row: UserLimits) -> Quota:
    """Return a member's limits as the scheduler takes them."""
    return Quota(row.most_gpus, row.most_tasks, row.gpu_hours)


def get_default_user_limits(row: Limits | None) -> dict[str, Any]:
    """Return the limits of each member without limits of their own, by the columns of `UserLimits`."""
    if row is None:
        return {}
    return {
        "most_gpus": row.user_most_gpus,
        "most_tasks": row.user_most_tasks,
        "gpu_hours": row.user_gpu_hours,
        "max_environments": row.user_max_environments,
        "max_environment_gpus": row.user_max_environment_gpus,
    }


def _build_full_project(
    key: str, name: str, used_share: float, row: Limits | None, users: Mapping[str, Quota], spent: MonthlySpend
) -> Project:
    over = row is not None and row.budget is not None and spent.cost >= row.budget and row.at_budget != AtBudget.WARN
    return Project(
        id=key,
        name=name,
        used=used_share,
        spent_hours=sum(spent.hours.values()),
        spent_by_user=dict(spent.hours),
        users=users,
        stopped=make_budget_problem(row, name, spent.cost) if row and over else None,
        only_preemptible=row is not None and over and row.at_budget == AtBudget.PREEMPTIBLE,
        **_build_limit_fields(row),
    )


def _build_limit_fields(row: Limits | None) -> dict[str, Any]:
    if row is None:
        return {"priorities": DEFAULT_PRIORITIES}
    return {
        "weight": float(row.weight),
        "guaranteed": row.guaranteed_gpus,
        "most_gpus": row.most_gpus,
        "most_tasks": row.most_tasks,
        "gpu_hours": row.gpu_hours,
        "gpu_types": frozenset(row.gpu_types),
        "zones": frozenset(row.zones),
        "priorities": frozenset(Priority[name.upper()] for name in row.priorities) or DEFAULT_PRIORITIES,
        "longest_run": row.longest_run_seconds,
        "each_user": Quota(row.user_most_gpus, row.user_most_tasks, row.user_gpu_hours),
    }


def make_budget_problem(row: Limits, name: str, cost: float) -> Problem:
    """Return the problem that the project's budget is spent."""
    params = {"project": name, "spent": f"{cost:.2f}", "budget": f"{row.budget:.2f}", "currency": settings.CURRENCY}
    return Problem("", "BUDGET_SPENT", params)


def sum_spend(
    now: datetime,
    running: Iterable[RunningTask],
    places: Iterable[EnvironmentInfo],
    project_ids: Collection[str] | None = None,
) -> dict[str, MonthlySpend]:
    """Return the use of the month by project, from the ledger and from what tasks hold now; with `project_ids` of these
    projects only."""
    since, known = get_month_start(now), pricing.read_prices()
    found: defaultdict[str, MonthlySpend] = defaultdict(MonthlySpend)
    booked = Usage.objects.filter(since__gte=since)
    if project_ids is not None:
        booked = booked.filter(project__in=project_ids)
    rows = booked.values("project", "owner").annotate(hours=SUM_GPU_HOURS, cost=SUM_COST)
    for project, owner, hours, paid in rows.values_list("project", "owner", "hours", "cost"):
        found[project].hours[owner] += hours or 0.0
        found[project].cost += paid or 0.0
    there, left_out = {place.id: place for place in places}, clock_jumps.list_gaps(since)
    for one in (one for one in running if project_ids is None or one.project in project_ids):
        began = max(datetime.fromtimestamp(one.since, UTC), since)
        hours = clock_jumps.measure_elapsed(began, now, left_out).total_seconds() / SECONDS_PER_HOUR
        for place in (there[key] for key in one.places if key in there):
            found[one.project].hours[one.user] += place.gpus * hours
            found[one.project].cost += (
                place.gpus * hours * float(known.find_price(place.gpu_type, place.zone, began) or 0)
            )
    return found


def list_reservation_windows(now: datetime) -> Sequence[Window]:
    """Return the reservations that have not ended, in two queries."""
    rows = Reservation.objects.filter(ends_at__gt=now).prefetch_related("environments")
    return tuple(
        Window(
            id=row.pk,
            places=frozenset(environment.pk for environment in row.environments.all()),
            begins=row.begins_at.timestamp(),
            ends=row.ends_at.timestamp(),
            project=row.project_id,
            note=row.note,
        )
        for row in rows
    )


def list_notices(user: User) -> list[CheckResult]:
    """Return findings about budgets that will soon be spent, of the user's own projects; for operators of all projects,
    with guarantees that exceed the shared GPUs."""
    warned = Limits.objects.filter(budget__isnull=False, budget_warned=format_month(clock())).select_related("project")
    runs_it = user.is_superuser or user.is_staff
    if not runs_it:
        warned = warned.filter(project__memberships__user=user, project__memberships__role=Role.MAINTAINER)
    found = [
        CheckResult(
            CheckLevel.WARN,
            "BUDGET_NEARLY_SPENT",
            {"project": row.project.name, "budget": f"{row.budget:.2f}", "currency": settings.CURRENCY},
        )
        for row in warned.order_by("project__name")
    ]
    guaranteed = Limits.objects.aggregate(sum=Sum("guaranteed_gpus"))["sum"] if runs_it else None
    if guaranteed:
        shared = DevEnvironment.objects.filter(shared=True).aggregate(sum=Sum("gpu_count"))["sum"] or 0
        if guaranteed > shared:
            found.append(
                CheckResult(CheckLevel.WARN, "GUARANTEES_TOO_MANY", {"guaranteed": guaranteed, "shared": shared})
            )
    return found
