"""Stores values that a task's processes logged to the platform itself, where no record of them comes in a log."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from apps.common.clock import now
from apps.training.core import transitions, wakeups
from apps.training.core.parameters import store_parameters
from apps.training.core.summaries import load_states, store_summaries
from apps.training.models import Attempt, MetricPoint
from fermi.metrics import summaries
from fermi.metrics.parameters import MAX_NAME_LENGTH

MAX_POINTS = 10_000
"""Of an attempt; later ones change only what the curve comes to."""
MAX_STEP = 1 << 62


def record_tracked_parameters(task_id: str, found: Mapping[str, str], source: str) -> None:
    """Store parameters of a task, as far as no other source has reported them."""
    store_parameters(
        task_id, {name[:MAX_NAME_LENGTH]: value[:1000] for name, value in found.items()}, source, replaces=False
    )


def record_tracked_values(
    task_id: str, attempt: int, found: Iterable[tuple[str, float, int, int]], source: str
) -> None:
    """Store values of curves, each with its name, number, step and unix milliseconds, and what the curves come to. Call
    it in a transaction."""
    transitions.lock_row_order(task_id)
    state = Attempt.objects.filter(task=task_id, number=attempt).values_list("tracked", flat=True).first()
    if state is None:
        return
    points: dict[tuple[int, int], MetricPoint] = {}
    for name, value, step, milliseconds in found:
        if abs(step) > MAX_STEP:
            continue
        point = points.get((step, milliseconds))
        if point is None:
            point = points[step, milliseconds] = MetricPoint(
                task_id=task_id, attempt=attempt, rank=0, step=step, at=_parse_moment(milliseconds), values={},
                source=source,
            )  # fmt: skip
        point.values[name[:MAX_NAME_LENGTH]] = value
        summaries.add_values(state, source, "", step, {name[:MAX_NAME_LENGTH]: value})
    if not points:
        return
    stored = MetricPoint.objects.filter(task=task_id, attempt=attempt, source=source)[:MAX_POINTS].count()
    MetricPoint.objects.bulk_create(list(points.values())[: MAX_POINTS - stored])
    Attempt.objects.filter(task=task_id, number=attempt).update(tracked=state)
    store_summaries(task_id, load_states(task_id, attempt))
    wakeups.publish_change(task_id, "metric")


def _parse_moment(milliseconds: int) -> datetime:
    """Return the moment; the present for one that is impossible."""
    if not 0 < milliseconds < (now().timestamp() + 86400) * 1000:
        return now()
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
