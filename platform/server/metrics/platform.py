"""Metrics of the platform's own processes, queues and exports."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import redis
from django.conf import settings
from django.db.models import Count, Min
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.audit_stream.selectors import list_receivers
from apps.common import pubsub
from apps.notices.models import Delivery, Outcome
from apps.training.public import Task, TraceExport
from apps.workers import health
from apps.workers.models import Worker

QUEUE_NAME = "celery"


def collect_reconciler(moment: datetime) -> Iterator[Metric]:
    """Yield how long the most overdue task has been due."""
    first = Task.objects.filter(due_at__lte=moment).aggregate(first=Min("due_at"))["first"]
    lag = GaugeMetricFamily("fermi_reconciler_lag_seconds", "How long the task that is most overdue has been due.")
    lag.add_metric([], (moment - first).total_seconds() if first else 0)
    yield lag


def collect_broker(moment: datetime) -> Iterator[Metric]:
    """Yield the queue's length, and how long the newest sweep took, which the sweep's process publishes."""
    with redis.from_url(settings.REDIS_URL, socket_connect_timeout=1, socket_timeout=1) as client:
        waiting: int = client.llen(QUEUE_NAME)
    family = GaugeMetricFamily("fermi_broker_queue_length", "Messages that no worker has taken yet.")
    family.add_metric([], waiting)
    yield family
    took = pubsub.get_figure("sweep")
    if took is not None:
        sweep = GaugeMetricFamily("fermi_sweep_seconds", "How long the newest sweep took; not there: none in a minute.")
        sweep.add_metric([], took)
        yield sweep


def collect_streams(moment: datetime) -> Iterator[Metric]:
    """Yield the number of event streams that this process has open."""
    family = GaugeMetricFamily("fermi_stream_readers", "Event streams that this process has open.")
    family.add_metric([], pubsub.count_subscriptions())
    yield family


def collect_workers(moment: datetime) -> Iterator[Metric]:
    """Yield the number of workers by health."""
    judge = health.read_worker_health()
    family = GaugeMetricFamily("fermi_workers", "Workers by whether they are heard.", labels=["status"])
    counts = Worker.objects.aggregate(
        **{status: Count("pk", filter=judge.having(status)) for status in health.STATUSES}
    )
    for status in health.STATUSES:
        family.add_metric([status], counts[status])
    yield family


def collect_notices(moment: datetime) -> Iterator[Metric]:
    """Yield the number of pending and of failed notifications."""
    pending = GaugeMetricFamily("fermi_notice_deliveries_pending", "Messages that are still to be delivered.")
    pending.add_metric([], Delivery.objects.filter(due_at__isnull=False).count())
    yield pending
    failed = GaugeMetricFamily("fermi_notice_deliveries_failed_24h", "Messages that were given up within a day.")
    given_up = Delivery.objects.filter(outcome=Outcome.FAILED, ended_at__gte=moment - timedelta(days=1))
    failed.add_metric([], given_up.count())
    yield failed


def collect_audit_stream(moment: datetime) -> Iterator[Metric]:
    """Yield how far each receiver of the audit trail is behind."""
    events = GaugeMetricFamily(
        "fermi_audit_stream_behind_events",
        "Audit events that a receiver has not confirmed, counted up to 10000.",
        labels=["receiver"],
    )
    seconds = GaugeMetricFamily(
        "fermi_audit_stream_behind_seconds", "Age of the first such event; 0 without one.", labels=["receiver"]
    )
    for receiver in list_receivers():
        first = receiver["firstUnsentAt"]
        events.add_metric([receiver["name"]], receiver["eventsBehind"])
        seconds.add_metric([receiver["name"]], max(0.0, (moment - first).total_seconds()) if first else 0)
    yield events
    yield seconds


def collect_traces(moment: datetime) -> Iterator[Metric]:
    """Yield the number of pending and of dropped trace exports, where tracing is on."""
    if not settings.TRACING:
        return
    pending = GaugeMetricFamily("fermi_trace_exports_pending", "Parts of traces that are still to be sent.")
    pending.add_metric([], TraceExport.objects.filter(due_at__isnull=False).count())
    yield pending
    dropped = GaugeMetricFamily("fermi_trace_exports_dropped_24h", "Parts of traces that nobody took within a day.")
    dropped.add_metric([], TraceExport.objects.filter(dropped_at__gte=moment - timedelta(days=1)).count())
    yield dropped
