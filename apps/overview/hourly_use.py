"""How much of the machines was held and used in each hour, stored as time passes, so that a month reads as fast as a
day."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, Sum

from apps.accounts import access
from apps.clusters.models import DevEnvironment
from apps.overview import gpu_use
from apps.overview.models import Hour
from apps.overview.scope import Scope
from apps.scheduling.models import Usage
from apps.scheduling.selectors import get_month_start
from apps.training.public import list_current_holds

ONE_HOUR = timedelta(hours=1)
KEEP_FOR = timedelta(days=35)
MAX_CATCH_UP = timedelta(days=2)
"""How far back missed hours are stored."""
FIGURE_COLUMNS = ("there", "held", "measured", "used")

Key = tuple[str, bool, str, str]


class BookedMachine(NamedTuple):
    id: str
    project: str
    shared: bool
    zone: str
    gpu_type: str
    gpus: int
    created_at: datetime

    @property
    def key(self) -> Key:
        return self.project, self.shared, self.zone, self.gpu_type


def book_hours(moment: datetime) -> int:
    """Store the hours since the last one that was stored, this one again, and the present one. Returns how many
    rows."""
    Hour.objects.filter(begins__lt=moment - KEEP_FOR).delete()
    columns = ("id", "project_id", "shared", "zone__name", "gpu_type", "gpu_count", "created_at")
    machines = [BookedMachine(*row) for row in DevEnvironment.objects.filter(gpu_count__gt=0).values_list(*columns)]
    running = _floor_to_hour(moment)
    newest = Hour.objects.order_by("-begins").values_list("begins", flat=True).first()
    begins = max(newest or running - MAX_CATCH_UP, running - MAX_CATCH_UP)
    rows: list[Hour] = []
    while machines and begins <= running:
        rows += _build_rows(machines, begins, min(begins + ONE_HOUR, moment))
        begins += ONE_HOUR
    unique = ("begins", "project", "zone", "gpu_type", "shared")
    Hour.objects.bulk_create(rows, update_conflicts=True, unique_fields=unique, update_fields=FIGURE_COLUMNS)
    return len(rows)


def read_utilisation(scope: Scope, moment: datetime) -> dict[str, Any]:
    """Return the GPU-hours by hour of the last day, and by day of the last month."""
    ends = _floor_to_hour(moment) + ONE_HOUR
    rows = access.filter_visible(Hour.objects.all(), scope.user, or_open=Q(shared=True))
    rows = rows.filter(Q(project=scope.project) | Q(shared=True)) if scope.project else rows
    rows = rows.filter(zone=scope.zone) if scope.zone else rows
    rows = rows.filter(gpu_type=scope.gpu_type) if scope.gpu_type else rows
    sums = rows.filter(begins__gte=ends - timedelta(days=30)).order_by("begins").values("begins")
    hours = list(sums.annotate(**{f"sum_{name}": Sum(name) for name in FIGURE_COLUMNS}))
    return {
        "day": list(_sum_steps(hours, ends - timedelta(days=1), ONE_HOUR, 24)),
        "month": list(_sum_steps(hours, ends - timedelta(days=30), timedelta(days=1), 30)),
    }


def _sum_steps(hours: list[Any], begins: datetime, step: timedelta, count: int) -> Iterator[dict[str, Any]]:
    sums = [dict.fromkeys(FIGURE_COLUMNS, 0.0) for _ in range(count)]
    for row in hours:
        if row["begins"] >= begins:
            slot = sums[(row["begins"] - begins) // step]
            for name in FIGURE_COLUMNS:
                slot[name] += row[f"sum_{name}"]
    for number, slot in enumerate(sums):
        yield {"at": begins + number * step, **slot}


def _build_rows(machines: Iterable[BookedMachine], begins: datetime, ends: datetime) -> Iterator[Hour]:
    held = _sum_held_hours(begins, ends)
    used = gpu_use.measure_gpu_hours([one.id for one in machines], begins, ends)
    sums: defaultdict[Key, dict[str, float]] = defaultdict(lambda: dict.fromkeys(FIGURE_COLUMNS, 0.0))
    for one in machines:
        if one.created_at < ends:
            slot = sums[one.key]
            slot["there"] += one.gpus * (ends - max(begins, one.created_at)) / ONE_HOUR
            slot["held"] += one.gpus * held[one.id]
            measured, busy = used.get(one.id, (0.0, 0.0))
            slot["measured"] += measured
            slot["used"] += busy
    for (project, shared, zone, gpu_type), figures in sums.items():
        yield Hour(begins=begins, project_id=project, shared=shared, zone=zone, gpu_type=gpu_type, **figures)


def _sum_held_hours(begins: datetime, ends: datetime) -> defaultdict[str, float]:
    """Return the held hours by environment, from the ledger and from the present leases."""
    found: defaultdict[str, float] = defaultdict(float)
    booked = Usage.objects.filter(since__gte=get_month_start(begins), since__lt=ends, until__gt=begins)
    for key, since, until in booked.values_list("environment_id", "since", "until"):
        if key:
            found[key] += (min(until, ends) - max(since, begins)) / ONE_HOUR
    for stretch in list_current_holds(ends):
        if stretch.since < ends:
            found[stretch.environment.pk] += (ends - max(stretch.since, begins)) / ONE_HOUR
    return found


def _floor_to_hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
