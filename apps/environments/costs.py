"""Costs of environments' runs: their GPUs, for the time they were up, at the price of each hour."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.common.clock import now
from apps.environments.models import Run
from apps.scheduling.pricing import Prices, prices

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of runs. `amount` None: no price is set."""

    gpu_hours: float = 0.0
    amount: float | None = None

    def __add__(self, other: "Cost") -> "Cost":
        known = [one.amount for one in (self, other) if one.amount is not None]
        return Cost(self.gpu_hours + other.gpu_hours, sum(known) if known else None)


def of(run: Run, known: Prices, moment: datetime) -> Cost:
    """Return the cost of a run until `moment`. A price that changed meanwhile counts from then on."""
    if run.running_at is None or not run.gpu_count:
        return Cost()
    ends = run.ended_at or moment
    changes = {at for rows in known.known.values() for at, _ in rows if run.running_at < at < ends}
    at, hours, amount = run.running_at, 0.0, None
    for until in [*sorted(changes), ends]:
        part = run.gpu_count * max((until - at).total_seconds(), 0.0) / HOUR
        hours += part
        if (price := known.of(run.gpu_type, run.zone, at)) is not None:
            amount = (amount or 0.0) + part * float(price)
        at = until
    return Cost(hours, amount)


def total(runs: Iterable[Run], known: Prices, moment: datetime) -> Cost:
    """Return the total cost of the runs."""
    return sum((of(run, known, moment) for run in runs), Cost())


def by_environment(keys: Collection[str]) -> dict[str, Cost]:
    """Return the cost of all runs so far, by environment."""
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for run in Run.objects.filter(environment__in=keys).defer("rendered"):
        runs[run.environment].append(run)
    known, moment = prices() if runs else Prices(), now()
    return {key: total(some, known, moment) for key, some in runs.items()}
