"""Writes what clients log of a run: metrics, parameters, tags, datasets.

The rows here are what MLflow's clients read back, with the steps and times that they gave. The platform's own curves
and parameters come from the same calls by another way: the probe records them in the process that makes them
(`fermi.probe.mlflow_hooks`), and requests of such a process say so. Values of other processes become curves here.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from apps.common.errors import ApiError
from apps.mlflow.callers import Caller
from apps.mlflow.models import EntryKind, MetricValue, RunEntry, RunMetric, TrackedRun
from apps.mlflow.services import runs
from apps.training.public import record_tracked_parameters, record_tracked_values

MAX_VALUES = 200_000
"""Stored values of a run; of further ones the newest of each name is kept."""
MAX_METRICS, MAX_ENTRIES = 2_000, 2_000
"""Names of a run; of parameters and tags each."""
MAX_LINKS = 200
"""Datasets and models of a run."""
LARGEST = 1.7976931348623157e308
MAX_INTEGER = (1 << 63) - 1


class LoggedValue:
    """A value as a client gives it. `value`: None is not a number. `at`: unix milliseconds."""

    __slots__ = ("at", "key", "step", "value")

    def __init__(self, key: str, value: float, step: int, at: int) -> None:
        """Make it as it is stored: infinities are the largest finite numbers."""
        self.key, self.step, self.at = key, step, at
        self.value = None if math.isnan(value) else max(-LARGEST, min(LARGEST, value))

    @property
    def order(self) -> tuple[int, int, bool, float]:
        """Return what is compared to find the newest value of a name."""
        return self.step, self.at, self.value is None, self.value or 0.0


def log_values(
    caller: Caller,
    run_id: str,
    metrics: Sequence[LoggedValue] = (),
    parameters: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Store values of a run. A parameter keeps its first value. Raises ApiError."""
    row = runs.open_run(caller, run_id)
    parameters, tags = parameters or {}, tags or {}
    with transaction.atomic():
        TrackedRun.objects.select_for_update().get(pk=row.pk)
        _store_parameters(row, parameters)
        _store_tags(row, tags)
        stored = _store_metrics(row, metrics)
        if not caller.is_recorded and row.own_task_id:
            shown = {key: value for key, value in {**tags, **parameters}.items() if not key.startswith("mlflow.")}
            record_tracked_parameters(row.task_id, shown, "mlflow")
            points = [(one.key, one.value, one.step, one.at) for one in stored if one.value is not None]
            record_tracked_values(row.task_id, caller.attempt, points, "mlflow")


def _store_parameters(row: TrackedRun, found: Mapping[str, str]) -> None:
    if not found:
        return
    known = dict(row.entries.filter(kind=EntryKind.PARAMETER).values_list("key", "value"))
    for key, value in found.items():
        if known.get(key, value) != value and not row.own_task_id:
            raise ApiError(
                400, "MLFLOW_PARAMETER_CHANGED", "value", key=key, run=row.pk, old=known[key][:200], new=value[:200]
            )
    _upsert_entries(row, EntryKind.PARAMETER, found, known)


def _store_tags(row: TrackedRun, found: Mapping[str, str]) -> None:
    if not found:
        return
    known = dict(row.entries.filter(kind=EntryKind.TAG).values_list("key", "value"))
    _upsert_entries(row, EntryKind.TAG, found, known)
    if name := found.get(runs.NAME_TAG):
        TrackedRun.objects.filter(pk=row.pk).update(name=name)


def _upsert_entries(row: TrackedRun, kind: EntryKind, found: Mapping[str, str], known: Mapping[str, str]) -> None:
    changed = [
        RunEntry(run=row, kind=kind, key=key, value=value) for key, value in found.items() if known.get(key) != value
    ]
    if len(known.keys() | found.keys()) > MAX_ENTRIES:
        raise ApiError(400, "MLFLOW_TOO_MANY", f"{kind}s", high=MAX_ENTRIES)
    RunEntry.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["run", "kind", "key"], update_fields=["value"]
    )


def delete_tag(caller: Caller, run_id: str, key: str) -> None:
    """Delete a tag. Raises ApiError 404 if there is none."""
    row = runs.open_run(caller, run_id)
    if not row.entries.filter(kind=EntryKind.TAG, key=key).delete()[0]:
        raise ApiError(404, "MLFLOW_NAME_UNKNOWN", "key", name=key)


def _store_metrics(row: TrackedRun, given: Sequence[LoggedValue]) -> list[LoggedValue]:
    """Store values, and return those that the run had not."""
    if not given:
        return []
    newest: dict[str, LoggedValue] = {}
    found = _leave_out_repeated(row, given)
    for one in found:
        if one.key not in newest or one.order >= newest[one.key].order:
            newest[one.key] = one
    known = {metric.key: metric for metric in row.metrics.filter(key__in=newest)}
    added = newest.keys() - known.keys()
    if added and row.metrics.count() + len(added) > MAX_METRICS:
        raise ApiError(400, "MLFLOW_TOO_MANY", "metrics", high=MAX_METRICS)
    changed = []
    for key, one in newest.items():
        before = known.get(key)
        if before is None or one.order >= LoggedValue(key, _to_float(before.value), before.step, before.at).order:
            changed.append(RunMetric(run=row, key=key, value=one.value, step=one.step, at=one.at))
    RunMetric.objects.bulk_create(
        changed, update_conflicts=True, unique_fields=["run", "key"], update_fields=["value", "step", "at"]
    )
    left = max(0, MAX_VALUES - row.values_count)
    stored = [MetricValue(run=row, key=one.key, value=one.value, step=one.step, at=one.at) for one in found[:left]]
    MetricValue.objects.bulk_create(stored)
    TrackedRun.objects.filter(pk=row.pk).update(values_count=F("values_count") + len(stored))
    return found


def _leave_out_repeated(row: TrackedRun, found: Sequence[LoggedValue]) -> list[LoggedValue]:
    """Return the values without those that the run has already, with the same step and time: clients log the metrics of
    a run again for each model that they log."""
    rows = row.history.filter(key__in={one.key for one in found}, step__in={one.step for one in found})
    known = set(rows.values_list("key", "step", "at", "value"))
    new = []
    for one in found:
        mark = (one.key, one.step, one.at, one.value)
        if mark not in known:
            known.add(mark)
            new.append(one)
    return new


def _to_float(value: float | None) -> float:
    return math.nan if value is None else value


def add_links(caller: Caller, run_id: str, column: str, found: Sequence[dict[str, Any]]) -> None:
    """Add datasets or models to a run (`inputs` or `outputs`), those that it has not yet. Raises ApiError."""
    row = runs.open_run(caller, run_id)
    with transaction.atomic():
        row = TrackedRun.objects.select_for_update().get(pk=row.pk)
        known = list(getattr(row, column))
        known += [one for one in found if one not in known]
        if len(known) > MAX_LINKS:
            raise ApiError(400, "MLFLOW_TOO_MANY", column, high=MAX_LINKS)
        TrackedRun.objects.filter(pk=row.pk).update(**{column: known})
