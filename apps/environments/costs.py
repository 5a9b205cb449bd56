"""Costs of environments' runs: their GPUs, for the time they were up, at the price of each hour."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from apps.common.clock import now
from apps.environments.models import Run
from apps.scheduling.pricing import PriceTable, read_prices

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RunCost:
    """Cost of runs. `amount` None: no price is set."""

    gpu_hours: float = 0.0
    amount: float | None = None

    def __add__(self, other: "RunCost") -> "RunCost":
        known = [one.amount for one in (self, other) if one.amount is not None]
        return RunCost(self.gpu_hours + other.gpu_hours, sum(known) if known else None)


def compute_run_cost(run: Run, prices: PriceTable, moment: datetime) -> RunCost:
    """Return the cost of a run until `moment`. A price that changed meanwhile counts from then on."""
    if run.running_at is None or not run.gpu_count:
        return RunCost()
    ends = run.ended_at or moment
    changes = {at for rows in prices.prices.values() for at, _ in rows if run.running_at < at < ends}
    at, hours, amount = run.running_at, 0.0, None
    for until in [*sorted(changes), ends]:
        part = run.gpu_count * max((until - at).total_seconds(), 0.0) / SECONDS_PER_HOUR
        hours += part
        if (price := prices.find_price(run.gpu_type, run.zone, at)) is not None:
            amount = (amount or 0.0) + part * float(price)
        at = until
    return RunCost(hours, amount)


def sum_run_costs(runs: Iterable[Run], prices: PriceTable, moment: datetime) -> RunCost:
    """Return the total cost of the runs."""
    return sum((compute_run_cost(run, prices, moment) for run in runs), RunCost())


def compute_costs(keys: Collection[str]) -> dict[str, RunCost]:
    """Return the cost of all runs so far, by environment."""
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for run in Run.objects.filter(environment__in=keys).defer("rendered"):
        runs[run.environment].append(run)
    known, moment = read_prices() if runs else PriceTable(), now()
    return {key: sum_run_costs(some, known, moment) for key, some in runs.items()}
