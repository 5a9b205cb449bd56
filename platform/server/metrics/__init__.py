"""Metrics of the platform itself at `/metrics`: families named `fermi_…`, read from the database at each scrape.

Numbers from the database are gauges, also where they count events: they cover a window that ends now (`_1h`, `_24h`),
so that deleting rows does not look like a counter reset.
"""

import logging
from collections.abc import Callable, Iterable, Iterator

import redis
from django.db import close_old_connections
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from apps.common.clock import now
from server.metrics import gpus, platform, tasks

log = logging.getLogger(__name__)

MetricsPart = Callable[..., Iterable[Metric]]
PARTS: dict[str, MetricsPart] = {
    "tasks": tasks.collect_states,
    "waiting": tasks.collect_waiting,
    "attempts": tasks.collect_attempts,
    "goodput": tasks.collect_goodput,
    "environments": gpus.collect_environments,
    "gpus": gpus.collect_gpus,
    "reconciler": platform.collect_reconciler,
    "broker": platform.collect_broker,
    "streams": platform.collect_streams,
    "workers": platform.collect_workers,
    "notices": platform.collect_notices,
    "audit_stream": platform.collect_audit_stream,
    "traces": platform.collect_traces,
}


class PlatformCollector:
    """Prometheus collector. A part that fails leaves its own families out, and `fermi_scrape_errors` names it."""

    def collect(self) -> Iterator[Metric]:
        moment = now()
        errors = GaugeMetricFamily("fermi_scrape_errors", "1: this part of the scrape failed.", labels=["part"])
        for name, part in PARTS.items():
            found: list[Metric] = []
            failed = 0
            try:
                found = list(part(moment))
            except redis.RedisError as error:
                log.warning("the part %s of a scrape failed: %s", name, error)
                failed = 1
            except Exception:
                log.exception("the part %s of a scrape failed", name)
                failed = 1
            yield from found
            errors.add_metric([name], failed)
        yield errors


REGISTRY = CollectorRegistry()
REGISTRY.register(PlatformCollector())


def render_metrics() -> bytes:
    """Return the metrics as text. May be called from threads that serve no request."""
    return generate_latest(REGISTRY)


def render_metrics_outside_request() -> bytes:
    """Return the metrics as text, from outside of a request: database connections are closed afterwards."""
    close_old_connections()
    try:
        return render_metrics()
    finally:
        close_old_connections()
