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

Part = Callable[..., Iterable[Metric]]
PARTS: dict[str, Part] = {
    "tasks": tasks.states,
    "waiting": tasks.waiting,
    "attempts": tasks.attempts,
    "goodput": tasks.goodput,
    "environments": gpus.environments,
    "gpus": gpus.gpus,
    "reconciler": platform.reconciler,
    "broker": platform.broker,
    "streams": platform.streams,
    "workers": platform.workers,
    "notices": platform.notices,
    "traces": platform.traces,
}


class Collector:
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


FAMILIES = CollectorRegistry()
FAMILIES.register(Collector())


def said() -> bytes:
    """Return the metrics as text. May be called from threads that serve no request."""
    return generate_latest(FAMILIES)


def said_apart() -> bytes:
    """Return the metrics as text, from outside of a request: database connections are closed afterwards."""
    close_old_connections()
    try:
        return said()
    finally:
        close_old_connections()
