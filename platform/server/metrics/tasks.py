"""Metrics of tasks: how many in which state, waiting times, starts, ends and restarts, and what GPU time was spent
on."""

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import accumulate

from django.db.models import Count, Min, OuterRef, Subquery
from prometheus_client.core import GaugeHistogramMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.scheduling.models import Usage
from apps.scheduling.selectors import PART_SUMS, build_parts
from apps.training.public import FINAL_STATES, Attempt, Task, TaskKind, TaskState
from fermi.scheduler import ledger
from fermi.scheduler.ledger import PART_NAMES
from fermi.scheduler.snapshot import PRIORITY_NUMBERS, classify_priority

HOUR, DAY, MONTH = timedelta(hours=1), timedelta(days=1), timedelta(days=30)
WAIT_BUCKET_SECONDS = (10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400)
"""Upper bounds, in seconds, of the waiting time histogram's buckets; the last bucket has none."""


def collect_states(moment: datetime) -> Iterator[Metric]:
    """Yield tasks by state, and ends within an hour by outcome."""
    counts = dict(Task.trainings.order_by().values_list("state").annotate(Count("state")))
    family = GaugeMetricFamily("fermi_tasks", "Training tasks by state.", labels=["state"])
    for state in TaskState:
        family.add_metric([state], counts.get(state, 0))
    yield family
    ended = GaugeMetricFamily("fermi_task_ends_1h", "Training tasks that ended within an hour.", labels=["outcome"])
    rows = Task.trainings.filter(state__in=FINAL_STATES, ended_at__gte=moment - HOUR).order_by()
    counts = dict(rows.values_list("state").annotate(Count("state")))
    for state in sorted(FINAL_STATES):
        ended.add_metric([state], counts.get(state, 0))
    yield ended


def collect_waiting(moment: datetime) -> Iterator[Metric]:
    """Yield waiting times of tasks that started within a day, and since when the oldest task waits, by priority
    class."""
    waited: dict[str, list[float]] = {name: [] for name in PRIORITY_NUMBERS}
    began = Attempt.objects.filter(created_at__gte=moment - DAY, number=1, task__kind=TaskKind.TRAINING).order_by()
    for since, until, priority in began.values_list("task__created_at", "created_at", "task__priority"):
        waited[classify_priority(priority).name.lower()].append((until - since).total_seconds())
    family = GaugeHistogramMetricFamily(
        "fermi_task_wait_seconds_24h", "How long tasks waited whose first attempt began within a day.", labels=["class"]
    )
    for name, seconds in waited.items():
        groups = Counter(next((edge for edge in WAIT_BUCKET_SECONDS if one <= edge), None) for one in seconds)
        upto = accumulate(groups[edge] for edge in (*WAIT_BUCKET_SECONDS, None))
        names = [*map(str, map(float, WAIT_BUCKET_SECONDS)), "+Inf"]
        family.add_metric([name], list(zip(names, upto, strict=True)), sum(seconds))
    yield family
    oldest = GaugeMetricFamily("fermi_task_oldest_wait_seconds", "Since when the first task waits.", labels=["class"])
    rows = Task.trainings.filter(state__in=(TaskState.INITIALIZING, TaskState.QUEUED)).order_by()
    since_when: dict[str, datetime] = {}
    for priority, since in rows.values_list("priority").annotate(Min("state_since")):
        name = classify_priority(priority).name.lower()
        since_when[name] = min(since, since_when.get(name, since))
    for name in PRIORITY_NUMBERS:
        oldest.add_metric([name], (moment - since_when.get(name, moment)).total_seconds())
    yield oldest


def collect_attempts(moment: datetime) -> Iterator[Metric]:
    """Yield starts and restarts within an hour, and the causes of the ends before the restarts."""
    began = Attempt.objects.filter(created_at__gte=moment - HOUR, task__kind=TaskKind.TRAINING).order_by()
    starts = GaugeMetricFamily("fermi_task_starts_1h", "Attempts of training tasks that began within an hour.")
    starts.add_metric([], began.count())
    yield starts
    before = Attempt.objects.filter(task=OuterRef("task"), number=OuterRef("number") - 1).values("outcome")
    again = began.filter(number__gt=1).annotate(ended_by=Subquery(before[:1]))
    causes = Counter(again.values_list("ended_by", flat=True))
    restarts = GaugeMetricFamily(
        "fermi_task_restarts_1h", "Attempts that began again within an hour, by the end before.", labels=["cause"]
    )
    for cause, count in sorted((cause or "", count) for cause, count in causes.items()):
        restarts.add_metric([cause], count)
    yield restarts


def collect_goodput(moment: datetime) -> Iterator[Metric]:
    """Yield GPU-hours of 30 days by what they were spent on, and goodput, from the ledger rows that ended within 30
    days. No row is longer than a month."""
    rows = Usage.objects.filter(since__gte=moment - 2 * MONTH - DAY, until__gte=moment - MONTH)
    parts = build_parts(rows.order_by().aggregate(**PART_SUMS))
    hours = GaugeMetricFamily(
        "fermi_gpu_hours_30d", "GPU-hours that were held within 30 days, by what they went into.", labels=["part"]
    )
    for part in PART_NAMES:
        hours.add_metric([part], getattr(parts, part) / 3600)
    yield hours
    share = ledger.compute_goodput(parts)
    if share is not None:
        family = GaugeMetricFamily("fermi_goodput_ratio_30d", "The share of held GPU time that was training.")
        family.add_metric([], share)
        yield family
