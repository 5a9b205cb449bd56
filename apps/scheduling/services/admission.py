"""Permanent limits of new requests: what exceeds them is refused at once, because it would wait in vain. Limits that
depend on other tasks are left to the queue."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from apps.accounts import access
from apps.accounts.models import Project, Role, User
from apps.clusters.models import AvailabilityZone, DevEnvironment
from apps.common.sql import CompiledInstances
from apps.scheduling import selectors
from apps.scheduling.models import AtBudget, Limits, UserLimits
from fermi.jobs.spec import Problem
from fermi.scheduler.snapshot import Project as Known
from fermi.scheduler.snapshot import classify_priority


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """A request for GPUs.

    environments   named one by one in the field `where`; with `chosen`, the platform chose them
    spent          returns the month's cost so far; called only where a budget may refuse
    """

    environments: Sequence[DevEnvironment]
    where: str
    spent: Callable[[], float]
    chosen: bool = False
    priority: int = 0
    max_run: float | None = None
    preemptible: bool = False


def check_request(user: User, project: Project, request: AdmissionRequest) -> list[Problem]:
    """Return the problems with the request: each has the limit, what was requested, and who could raise it."""
    row = selectors.get_limits(project)
    known = selectors.build_project(project, row)
    return [
        *_check_priority(user, known, request.priority),
        *_check_gpu_types(known, request),
        *_check_zones(known, request),
        *_check_length(known, request.max_run),
        *_check_gpu_count(user, known, sum(one.gpu_count for one in request.environments), request.where),
        *(_check_budget(row, known, request) if row else ()),
    ]


def _check_priority(user: User, limits: Known, priority: int) -> Iterator[Problem]:
    asked = classify_priority(priority)
    if asked not in limits.priorities and access.get_role(user, limits.id) is not Role.MAINTAINER:
        allowed = ", ".join(one.name.lower() for one in sorted(limits.priorities))
        yield _make_problem("priority", "LIMIT_PRIORITY", limits, asked=asked.name.lower(), allowed=allowed)


def _check_gpu_types(limits: Known, request: AdmissionRequest) -> Iterator[Problem]:
    allowed = ", ".join(sorted(limits.gpu_types))
    for at, one in _list_refused(
        request, lambda one: not (limits.gpu_types and one.gpu_count) or one.gpu_type in limits.gpu_types
    ):
        found = {"environment": one.name, "found": one.gpu_type or "–", "allowed": allowed}
        yield _make_problem(at, "LIMIT_GPU_TYPES", limits, **found)


def _check_zones(limits: Known, request: AdmissionRequest) -> Iterator[Problem]:
    shut = list(_list_refused(request, lambda one: not limits.zones or one.zone_id in limits.zones))
    if shut:
        names = AvailabilityZone.objects.filter(pk__in=limits.zones).order_by("name").values_list("name", flat=True)
        for at, one in shut:
            found = {"environment": one.name, "found": one.zone.name, "allowed": ", ".join(names)}
            yield _make_problem(at, "LIMIT_ZONES", limits, **found)


def _check_length(limits: Known, max_run: float | None) -> Iterator[Problem]:
    if limits.longest_run is None:
        return
    high = int(limits.longest_run)
    if max_run is None:
        yield _make_problem("maxRunSeconds", "LIMIT_RUN_MISSING", limits, high=high)
    elif max_run > high:
        yield _make_problem("maxRunSeconds", "LIMIT_RUN", limits, asked=int(max_run), high=high)


_USER_LIMITS_QUERY = CompiledInstances(
    UserLimits, lambda project, user: UserLimits.objects.filter(project=project, user=user)
)  # fmt: skip


def _check_gpu_count(user: User, limits: Known, gpus: int, field: str) -> Iterator[Problem]:
    """Yield problems if the request exceeds what may be held at once, even if nothing else is held."""
    if limits.most_gpus is not None and gpus > limits.most_gpus:
        yield _make_problem(field, "LIMIT_GPUS_ASKED", limits, asked=gpus, high=limits.most_gpus)
    own = _USER_LIMITS_QUERY.first(project=limits.id, user=user.pk)
    most = selectors.build_quota(own) if own else limits.each_user
    if most.most_gpus is not None and gpus > most.most_gpus:
        yield _make_problem(field, "LIMIT_USER_GPUS_ASKED", limits, user=user.username, asked=gpus, high=most.most_gpus)


def _check_budget(row: Limits, limits: Known, request: AdmissionRequest) -> Iterator[Problem]:
    strict = row.at_budget == AtBudget.REFUSE or (row.at_budget == AtBudget.PREEMPTIBLE and not request.preemptible)
    if row.budget is None or not strict:
        return
    spent = request.spent()
    if Decimal(spent) >= row.budget:
        params = selectors.make_budget_problem(row, limits.name, spent).params
        if row.at_budget == AtBudget.PREEMPTIBLE:
            yield Problem("preemptible", "BUDGET_PREEMPTIBLE_ONLY", params)
        else:
            yield Problem("", "BUDGET_SPENT", params)


def _list_refused(
    request: AdmissionRequest, is_open: Callable[[DevEnvironment], bool]
) -> Iterator[tuple[str, DevEnvironment]]:
    """Return the environments that are refused, with the field that names each; of environments that the platform
    chose, the first."""
    shut = [(index, one) for index, one in enumerate(request.environments) if not is_open(one)]
    if request.chosen:
        return ((request.where, one) for _, one in shut[:1])
    return ((f"{request.where}.{index}", one) for index, one in shut)


def _make_problem(field: str, code: str, limits: Known, **params: str | int) -> Problem:
    return Problem(field, code, {"project": limits.name, **params})
