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
from fermi.scheduler.snapshot import priority_of


@dataclass(frozen=True, slots=True)
class Asked:
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


def problems_of(user: User, project: Project, asked: Asked) -> list[Problem]:
    """Return the problems with the request: each has the limit, what was requested, and who could raise it."""
    row = selectors.limits_of(project)
    known = selectors.known(project, row)
    return [
        *_priority(user, known, asked.priority),
        *_types(known, asked),
        *_zones(known, asked),
        *_length(known, asked.max_run),
        *_gpus(user, known, sum(one.gpu_count for one in asked.environments), asked.where),
        *(_budget(row, known, asked) if row else ()),
    ]


def _priority(user: User, known: Known, priority: int) -> Iterator[Problem]:
    asked = priority_of(priority)
    if asked not in known.priorities and access.role_in(user, known.id) is not Role.MAINTAINER:
        allowed = ", ".join(one.name.lower() for one in sorted(known.priorities))
        yield _problem("priority", "LIMIT_PRIORITY", known, asked=asked.name.lower(), allowed=allowed)


def _types(known: Known, asked: Asked) -> Iterator[Problem]:
    allowed = ", ".join(sorted(known.gpu_types))
    for at, one in _first(
        asked, lambda one: not (known.gpu_types and one.gpu_count) or one.gpu_type in known.gpu_types
    ):
        found = {"environment": one.name, "found": one.gpu_type or "–", "allowed": allowed}
        yield _problem(at, "LIMIT_GPU_TYPES", known, **found)


def _zones(known: Known, asked: Asked) -> Iterator[Problem]:
    shut = list(_first(asked, lambda one: not known.zones or one.zone_id in known.zones))
    if shut:
        names = AvailabilityZone.objects.filter(pk__in=known.zones).order_by("name").values_list("name", flat=True)
        for at, one in shut:
            found = {"environment": one.name, "found": one.zone.name, "allowed": ", ".join(names)}
            yield _problem(at, "LIMIT_ZONES", known, **found)


def _length(known: Known, max_run: float | None) -> Iterator[Problem]:
    if known.longest_run is None:
        return
    high = int(known.longest_run)
    if max_run is None:
        yield _problem("maxRunSeconds", "LIMIT_RUN_MISSING", known, high=high)
    elif max_run > high:
        yield _problem("maxRunSeconds", "LIMIT_RUN", known, asked=int(max_run), high=high)


_OWN = CompiledInstances(
    UserLimits, lambda project, user: UserLimits.objects.filter(project=project, user=user)
)  # fmt: skip


def _gpus(user: User, known: Known, gpus: int, where: str) -> Iterator[Problem]:
    """Yield problems if the request exceeds what may be held at once, even if nothing else is held."""
    if known.most_gpus is not None and gpus > known.most_gpus:
        yield _problem(where, "LIMIT_GPUS_ASKED", known, asked=gpus, high=known.most_gpus)
    own = _OWN.first(project=known.id, user=user.pk)
    most = selectors.allowance(own) if own else known.each_user
    if most.most_gpus is not None and gpus > most.most_gpus:
        yield _problem(where, "LIMIT_USER_GPUS_ASKED", known, user=user.username, asked=gpus, high=most.most_gpus)


def _budget(row: Limits, known: Known, asked: Asked) -> Iterator[Problem]:
    strict = row.at_budget == AtBudget.REFUSE or (row.at_budget == AtBudget.PREEMPTIBLE and not asked.preemptible)
    if row.budget is None or not strict:
        return
    spent = asked.spent()
    if Decimal(spent) >= row.budget:
        params = selectors.budget_spent(row, known.name, spent).params
        if row.at_budget == AtBudget.PREEMPTIBLE:
            yield Problem("preemptible", "BUDGET_PREEMPTIBLE_ONLY", params)
        else:
            yield Problem("", "BUDGET_SPENT", params)


def _first(asked: Asked, is_open: Callable[[DevEnvironment], bool]) -> Iterator[tuple[str, DevEnvironment]]:
    """Return the environments that are refused, with the field that names each; of environments that the platform
    chose, the first."""
    shut = [(index, one) for index, one in enumerate(asked.environments) if not is_open(one)]
    if asked.chosen:
        return ((asked.where, one) for _, one in shut[:1])
    return ((f"{asked.where}.{index}", one) for index, one in shut)


def _problem(field: str, code: str, known: Known, **params: str | int) -> Problem:
    return Problem(field, code, {"project": known.name, **params})
