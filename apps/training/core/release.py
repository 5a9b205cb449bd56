"""Releases environments: the one place where a lease ends, so that the usage ledger contains all held time.

Each hold of an environment becomes rows of the ledger in the transaction that ends it, one for each month (UTC). A row
has the key of its hold, so doing it again after a crash writes the same row.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Max, Min

from apps.clusters.leases import release_leases
from apps.clusters.models import DevEnvironment, Lease
from apps.common import clock_jumps
from apps.common.clock import now
from apps.environments import standby
from apps.scheduling import pricing, selectors
from apps.scheduling.models import Share, Usage
from apps.training.core import wakeups
from apps.training.core.engine_access import (
    build_cause,
    filter_engine_scheduled,
    is_scheduled_by_engine,
    list_clusters_with_queue,
)
from apps.training.models import Attempt, Event, Finding, MetricPoint, Node, Task
from apps.training.states import TaskKind
from apps.training.states.reasons import TaskReason
from fermi.diagnosis import hangs
from fermi.scheduler import ledger
from fermi.scheduler.order import decay_seconds
from fermi.scheduler.snapshot import decay_usage


@dataclass(frozen=True, slots=True)
class HoldInterval:
    """Time in which a task (by id) holds, or held, an environment."""

    task: str
    environment: DevEnvironment
    since: datetime
    until: datetime


def release_environments(task: Task, environment_ids: Collection[str] | None = None) -> int:
    """Release the task's leases on `environment_ids`, or all of them, and book their usage; return how many there were.
    Call it in the transaction that needs it."""
    leases = _load_leases(task, environment_ids)
    _book_usage(task, leases, now())
    if not leases:
        return 0
    release_leases(task.pk, [lease.pk for lease in leases])
    if task.inside:
        standby.request_standby(lease.environment for lease in leases)
    wakeups.enqueue_waiting_tasks()
    return len(leases)


def transfer_leases(task: Task, to: Task) -> int:
    """Transfer all leases of one task to another, in the caller's transaction, and return how many. Their usage is
    booked to the new holder from now on."""
    leases, moment = _load_leases(task), now()
    _book_usage(task, leases, moment)
    return Lease.objects.filter(pk__in=[lease.pk for lease in leases], holder=task.pk).update(
        holder=to.pk, since=moment
    )


def list_current_holds(moment: datetime) -> list[HoldInterval]:
    """Return what all tasks hold at `moment`. For engines with their own queue, an environment counts as held while the
    attempt runs."""
    engines, leases = list_clusters_with_queue(), Lease.objects.select_related("environment__zone")
    if engines:
        leases = leases.exclude(holder__in=filter_engine_scheduled(engines).values("pk"))
    found = [HoldInterval(lease.holder, lease.environment, lease.since, moment) for lease in leases]
    if engines:
        attempts = Attempt.objects.filter(
            task__in=filter_engine_scheduled(engines), ended_at=None, running_at__isnull=False
        )
        nodes = Node.objects.filter(task__attempts__in=attempts, environment__isnull=False).distinct()
        since = dict(attempts.values_list("task", "running_at"))
        rows = nodes.select_related("environment__zone")
        found += [HoldInterval(node.task_id, node.environment, since[node.task_id], moment) for node in rows]  # type: ignore[arg-type]
    return found


def list_unbooked_usage(task: Task, moment: datetime) -> list[Usage]:
    """Return the usage rows that would be added if everything the task holds ended at `moment`."""
    return _build_unbooked_rows(task, _list_intervals(task, _load_leases(task, lock=False), moment))


def list_hold_spans(task: Task, moment: datetime) -> dict[str, list[tuple[datetime, datetime]]]:
    """Return when the task held each environment, by environment id, as (since, until); an open hold ends at
    `moment`."""
    found: defaultdict[str, list[tuple[datetime, datetime]]] = defaultdict(list)
    booked = Usage.objects.filter(task=task.pk, environment__isnull=False)
    for environment, since, until in booked.values_list("environment", "since", "until"):
        found[str(environment)].append((since, until))
    for one in _list_intervals(task, _load_leases(task, lock=False), moment):
        found[one.environment.pk].append((one.since, one.until))
    return found


def _load_leases(task: Task, environment_ids: Collection[str] | None = None, *, lock: bool = True) -> list[Lease]:
    """Return the task's leases, locked by default, so that two processes that release them at the same time book them
    once."""
    held = Lease.objects.filter(holder=task.pk).select_related("environment__zone", "environment__cluster")
    if environment_ids is not None:
        held = held.filter(environment__in=environment_ids)
    return list(held.select_for_update(of=("self",)) if lock else held)


def build_ledger_runs(task: Task) -> list[ledger.AttemptTimes]:
    """Return the task's attempts as the usage ledger needs them."""
    attempts = list(task.attempts.defer("plan", "seen").order_by("number"))
    if not attempts:
        return []
    points = MetricPoint.objects.filter(task=task, rank=0).values("attempt")
    known: Any = points.annotate(first=Min("at"), last=Max("at"), most=Max("step"))
    steps = {row["attempt"]: row for row in known}
    endings = Event.objects.filter(task=task, code="ATTEMPT_ENDING").values("attempt").annotate(at=Min("at"))
    told = dict(endings.values_list("attempt", "at"))
    hung = _list_hangs(task, told)
    saved = dict(task.checkpoints.values("attempt").order_by().annotate(at=Max("at")).values_list("attempt", "at"))
    found, highest = [], None
    for one in attempts:
        mine = steps.get(one.number)
        ends = build_cause(task.cluster, one.outcome) if one.outcome else None
        found.append(
            ledger.AttemptTimes(
                began=one.created_at.timestamp(),
                running=_to_timestamp(one.running_at),
                stepped=_to_timestamp(mine["first"]) if mine else None,
                passed=_find_progress_time(task, one, mine, highest),
                steps_known=mine is not None,
                signed=_to_timestamp(mine["last"]) if mine else None,
                ending=_to_timestamp(told.get(one.number) or one.ended_at),
                ended=_to_timestamp(one.ended_at),
                failed=ends is not None and not ends.asked and one.outcome != TaskReason.COMPLETED,
                saved=_to_timestamp(saved.get(one.number)),
                hangs=hung.get(one.number, ()),
            )
        )
        if mine:
            highest = mine["most"] if highest is None else max(highest, mine["most"])
    return found


def _list_hangs(task: Task, endings: Mapping[int, datetime]) -> Mapping[int, list[tuple[float, float | None]]]:
    """Return when ranks did not advance, by attempt, as (since, until) in unix seconds; None: to the end. A suspicion
    that resolved itself counts as none; one that did not lasted to the end."""
    found: defaultdict[int, list[tuple[float, float | None]]] = defaultdict(list)
    rows = Finding.objects.filter(task=task, code__in=hangs.CODES).values_list("attempt", "code", "since", "until")
    for attempt, code, since, until in rows:
        lasted = until is None or (attempt in endings and until >= endings[attempt])
        if code != hangs.SUSPECTED or lasted:
            found[attempt].append((since.timestamp(), None if lasted else _to_timestamp(until)))
    return found


def break_down_time(
    task: Task, since: datetime, until: datetime, runs: Iterable[ledger.AttemptTimes] | None = None
) -> ledger.TimeParts:
    """Return what the time between the two moments was spent on. `runs`: the task's attempts, loaded if not given. A
    pre-flight test or a drill only prepares."""
    begins, ends = since.timestamp(), until.timestamp()
    if task.kind != TaskKind.TRAINING:
        return ledger.TimeParts(starting=max(ends - begins, 0.0))
    return ledger.compute_breakdown(begins, ends, build_ledger_runs(task) if runs is None else runs)


def split_by_month(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the interval in pieces, none of which spans two months (UTC)."""
    while since < until:
        following = (since.year + since.month // 12, since.month % 12 + 1)
        end = min(until, datetime(*following, 1, tzinfo=UTC))
        yield since, end
        since = end


def build_usage_rows(task: Task, intervals: Iterable[HoldInterval]) -> list[Usage]:
    """Return the usage rows of these intervals, as if they ended now where they are open."""
    intervals = list(intervals)
    left_out = clock_jumps.list_gaps(task.created_at)
    known, found, waits = pricing.read_prices(), list[Usage](), _WaitIntervals(task, intervals, left_out)
    of = build_ledger_runs(task) if task.kind == TaskKind.TRAINING else []
    shares: dict[tuple[datetime, datetime], ledger.TimeParts] = {}
    for stretch in intervals:
        environment = stretch.environment
        for begins, ends in split_without_gaps(stretch.since, stretch.until, left_out):
            if (begins, ends) not in shares:
                shares[begins, ends] = break_down_time(task, begins, ends, of)
            found.append(
                Usage(
                    task=task.pk,
                    task_name=task.name,
                    kind=task.kind,
                    project_id=task.project_id,
                    owner=task.owner.username,
                    environment=environment,
                    environment_name=environment.name,
                    zone=environment.zone.name,
                    gpu_type=environment.gpu_type,
                    gpus=environment.gpu_count,
                    since=begins,
                    until=ends,
                    per_gpu_hour=known.find_price(environment.gpu_type, environment.zone_id, begins),
                    waited=waits.before(stretch.since) if begins == stretch.since else 0.0,
                    **ledger.parts_to_dict(shares[begins, ends]),
                )
            )
    return found


def split_without_gaps(
    since: datetime, until: datetime, left_out: clock_jumps.Gaps
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the interval by month, without the time that clock jumps left out."""
    for begins, ends in split_by_month(since, until):
        yield from clock_jumps.subtract_gaps(begins, ends, left_out)


class _WaitIntervals:
    """How long a task had held nothing before a moment, from booked usage and its open holds."""

    def __init__(self, task: Task, stretches: Collection[HoldInterval], left_out: clock_jumps.Gaps) -> None:
        self._left_out = left_out
        held: Any = Usage.objects.filter(task=task.pk).values_list("since", "until")
        leases = Lease.objects.filter(holder=task.pk).values_list("since", flat=True)
        there = max((stretch.until for stretch in stretches), default=task.created_at)
        self._held = {*held, *((one.since, one.until) for one in stretches), *((since, there) for since in leases)}
        self._created = task.created_at

    def before(self, moment: datetime) -> float:
        """Return the seconds from the last hold before `moment` (or the task's creation) to `moment`."""
        earlier = [until for since, until in self._held if since < moment]
        return clock_jumps.measure_elapsed(max([self._created, *earlier]), moment, self._left_out).total_seconds()


def _list_intervals(
    task: Task, leases: Iterable[Lease], until: datetime, *, only_ended: bool = False
) -> list[HoldInterval]:
    """Return the hold intervals of the task's leases. If an engine's own queue schedules the task, a lease holds
    nothing: the time in which ranks ran counts; `only_ended`: only of attempts that have ended."""
    if not is_scheduled_by_engine(task):
        return [HoldInterval(task.pk, lease.environment, lease.since, until) for lease in leases]
    ran = task.attempts.filter(running_at__isnull=False, **({"ended_at__isnull": False} if only_ended else {}))
    nodes = task.nodes.filter(environment__isnull=False).select_related("environment__zone")
    there = [node.environment for node in nodes if node.environment]
    return [
        HoldInterval(task.pk, environment, since, ended or until)
        for since, ended in ran.values_list("running_at", "ended_at")
        for environment in there
        if since
    ]


def _build_unbooked_rows(task: Task, intervals: Collection[HoldInterval]) -> list[Usage]:
    if not intervals:
        return []
    booked = set(Usage.objects.filter(task=task.pk).values_list("environment", "since"))
    return [row for row in build_usage_rows(task, intervals) if (row.environment_id, row.since) not in booked]


def _book_usage(task: Task, leases: Collection[Lease], until: datetime) -> None:
    made = _build_unbooked_rows(task, _list_intervals(task, leases, until, only_ended=True))
    Usage.objects.bulk_create(made, ignore_conflicts=True)
    used = sum(row.gpus * _count_decayed_seconds(row, until) for row in made)
    if used <= 0:
        return
    share, _ = Share.objects.get_or_create(project_id=task.project_id, defaults={"used": 0.0, "as_of": until})
    share = Share.objects.select_for_update().get(pk=share.pk)
    before = selectors.compute_share(share, until)
    Share.objects.filter(pk=share.pk).update(used=before + used, as_of=max(until, share.as_of))


def _count_decayed_seconds(row: Usage, at: datetime) -> float:
    """Return the seconds of the row that still count at `at`, decayed as the order of the queue decays held time."""
    return decay_usage(decay_seconds((row.until - row.since).total_seconds()), (at - row.until).total_seconds())


def _find_progress_time(task: Task, attempt: Attempt, mine: Any, highest: int | None) -> float | None:
    """Return when the attempt went beyond the steps trained before it; None if it did not."""
    if mine is None:
        return None
    if highest is None:
        return _to_timestamp(mine["first"])
    if mine["most"] <= highest:
        return None
    points = MetricPoint.objects.filter(task=task, attempt=attempt.number, rank=0, step__gt=highest)
    return _to_timestamp(points.order_by("pk").values_list("at", flat=True).first())


def _to_timestamp(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
