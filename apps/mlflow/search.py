"""Search of runs by MLflow's filters: tasks, as their own runs, and the runs below them.

What a task has logged here is compared; of a task that has logged nothing, what the platform knows: its parameters, and
the last values of its curves.
"""

from collections.abc import Sequence
from typing import Any

from django.db.models import Case, CharField, Exists, F, FloatField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from apps.common.errors import ApiError
from apps.mlflow.callers import Caller, from_milliseconds
from apps.mlflow.filters import Condition, Order
from apps.mlflow.models import RunEntry, RunMetric, TrackedRun
from apps.mlflow.services.experiments import FoundExperiment, translate_pattern
from apps.mlflow.services.runs import STATUS_BY_STATE, FoundRun
from apps.training.public import FINAL_STATES, MetricSummary, Task, TaskParameter

MAX_OFFSET = 50_000
NUMBERS = {"=": "", "!=": "", "<": "__lt", "<=": "__lte", ">": "__gt", ">=": "__gte"}
TIMES = {"start_time": "started", "created": "started", "end_time": "ended"}
TEXTS = {
    "status": "shown_status", "run_id": "pk", "run_name": "shown_name", "name": "shown_name", "user_id": "shown_user",
}  # fmt: skip


class _Side:
    """One of the two kinds of rows that are searched. `run`: from a row to its `TrackedRun`; "" for itself."""

    def __init__(self, rows: QuerySet[Any, Any], run: str, task: str) -> None:
        own, state = f"{run}__" if run else "", f"{task}__state" if task else "state"
        ended = [When(**{state: name}, then=Value(STATUS_BY_STATE[name])) for name in sorted(FINAL_STATES)]
        known = [When(**{f"{own}status__gt": ""}, then=F(f"{own}status"))]
        states = [When(**{state: name}, then=Value(status)) for name, status in STATUS_BY_STATE.items()]
        final = [When(**{f"{own}status__in": ["FINISHED", "FAILED", "KILLED"]}, then=F(f"{own}status"))]
        order = [*ended, *known, *states] if run else [*final, *ended, *known, *states]
        owner, begin = (f"{task}__owner__username", f"{task}__") if task else ("owner__username", "")
        self.run_id = f"{own}pk" if run else "pk"
        self.has_platform_values = bool(run)
        self.rows = rows.annotate(
            started=Coalesce(f"{own}started_at", f"{begin}started_at", f"{begin}created_at"),
            ended=Coalesce(f"{own}ended_at", f"{begin}ended_at"),
            shown_name=Case(When(**{f"{own}name__gt": ""}, then=F(f"{own}name")), default=F(f"{begin}name")),
            shown_user=Case(When(**{f"{own}user_name__gt": ""}, then=F(f"{own}user_name")), default=F(owner)),
            shown_status=Case(*order, default=Value("SCHEDULED"), output_field=CharField()),
        )

    def filter_condition(self, condition: Condition) -> None:
        """Keep the rows that meet a condition. Raises ApiError."""
        match condition.kind:
            case "attribute":
                self.rows = self.rows.filter(_compare_attribute(condition))
            case "metric":
                self._filter_metric(condition)
            case _:
                self._filter_entry(condition)

    def _filter_metric(self, condition: Condition) -> None:
        lookup = NUMBERS.get(condition.operator)
        try:
            number = float(condition.values[0]) if condition.values else None
        except ValueError:
            number = None
        if lookup is None or number is None:
            raise _refuse(condition)
        own = RunMetric.objects.filter(run=OuterRef(self.run_id), key=condition.key)
        known = MetricSummary.objects.filter(task=OuterRef("pk"), name=condition.key)
        if condition.operator == "!=":
            met = Q(Exists(own.exclude(value=number)))
            of_platform = Q(Exists(known.exclude(last=number)))
        else:
            met = Q(Exists(own.filter(**{f"value{lookup}": number})))
            of_platform = Q(Exists(known.filter(**{f"last{lookup}": number})))
        self._filter(met, of_platform)

    def _filter_entry(self, condition: Condition) -> None:
        own = RunEntry.objects.filter(run=OuterRef(self.run_id), kind=condition.kind, key=condition.key)
        known = TaskParameter.objects.filter(task=OuterRef("pk"), name=condition.key)
        if condition.kind == "tag":
            known = known.none()
        if condition.operator in ("IS NULL", "IS NOT NULL"):
            self._filter(Q(Exists(own)), Q(Exists(known)), negated=condition.operator == "IS NULL")
            return
        compared = _compare_text(condition, "value")
        self._filter(Q(Exists(own.filter(compared))), Q(Exists(known.filter(compared))))

    def _filter(self, met: Q, of_platform: Q, *, negated: bool = False) -> None:
        if self.has_platform_values:
            met |= Q(mlflow_run__isnull=True) & of_platform
        self.rows = self.rows.filter(~met if negated else met)

    def read_keys(self, orders: Sequence[Order], count: int) -> list[tuple[Any, ...]]:
        """Return at most `count` rows: the values that they are sorted by, and their ids."""
        rows, names = self.rows, []
        sorting: list[Any] = []
        for number, order in enumerate(orders):
            name = f"order_{number}"
            rows = rows.annotate(**{name: self._build_key(order)})
            key = F(name)
            sorting.append(key.desc(nulls_last=True) if order.descending else key.asc(nulls_last=True))
            names.append(name)
        return list(rows.order_by(*sorting, "-started", "pk").values_list(*names, "started", "pk")[:count])

    def _build_key(self, order: Order) -> Any:
        if order.kind == "attribute":
            return F(_find_attribute(order.key))
        if order.kind == "metric":
            own = RunMetric.objects.filter(run=OuterRef(self.run_id), key=order.key).values("value")
            known = MetricSummary.objects.filter(task=OuterRef("pk"), name=order.key).values("last")
            keys = [Subquery(own[:1], output_field=FloatField())]
            if self.has_platform_values:
                keys.append(Subquery(known[:1], output_field=FloatField()))
            return Coalesce(*keys) if len(keys) > 1 else keys[0]
        entry = RunEntry.objects.filter(run=OuterRef(self.run_id), kind=order.kind, key=order.key).values("value")
        return Subquery(entry[:1], output_field=CharField())


def search_runs(
    caller: Caller,
    experiments: Sequence[FoundExperiment],
    conditions: Sequence[Condition],
    orders: Sequence[Order],
    view: str,
    start: int,
    count: int,
) -> list[FoundRun]:
    """Return runs from `start` on, sorted; without an order the newest first. `view`: ACTIVE_ONLY, DELETED_ONLY or
    ALL. Raises ApiError."""
    projects = [one.project_id for one in experiments if one.row is None]
    named = [one.id for one in experiments if one.row is not None]
    tasks = caller.filter_visible(Task.trainings.all())
    in_project = Q(mlflow_run__isnull=True) | Q(mlflow_run__experiment__isnull=True)
    tasks = tasks.filter((Q(project__in=projects) & in_project) | Q(mlflow_run__experiment__in=named))
    below = caller.filter_visible(TrackedRun.objects.filter(own_task__isnull=True), "task__project").filter(
        Q(task__project__in=projects, experiment__isnull=True) | Q(experiment__in=named)
    )
    if view != "ALL":
        below = below.filter(deleted_at__isnull=view != "DELETED_ONLY")
    if view == "DELETED_ONLY":
        tasks = tasks.none()
    keys: list[tuple[Any, ...]] = []
    for side in (_Side(tasks, "mlflow_run", ""), _Side(below, "", "task")):
        for condition in conditions:
            side.filter_condition(condition)
        keys += side.read_keys(orders, min(start + count, MAX_OFFSET))
    keys.sort(key=lambda row: row[-1])
    keys.sort(key=lambda row: row[-2], reverse=True)
    for number in reversed(range(len(orders))):
        present = [row for row in keys if row[number] is not None]
        present.sort(key=lambda row: row[number], reverse=orders[number].descending)
        keys = [*present, *(row for row in keys if row[number] is None)]
    return load_runs([row[-1] for row in keys[start : start + count]])


def load_runs(ids: Sequence[str]) -> list[FoundRun]:
    """Return the runs with these ids, in this order."""
    rows = TrackedRun.objects.select_related("task__owner", "task__project", "experiment").filter(pk__in=ids)
    found = {row.pk: FoundRun(row.task, row) for row in rows}
    tasks = Task.objects.select_related("owner", "project").filter(pk__in=[key for key in ids if key not in found])
    found |= {task.pk: FoundRun(task, None) for task in tasks}
    return [found[key] for key in ids if key in found]


def _find_attribute(key: str) -> str:
    name = TEXTS.get(key) or TIMES.get(key)
    if name is None:
        raise ApiError(
            400, "MLFLOW_ATTRIBUTE_UNKNOWN", "filter", name=key[:100], allowed=", ".join(sorted(TEXTS | TIMES))
        )
    return name


def _compare_attribute(condition: Condition) -> Q:
    name = _find_attribute(condition.key)
    if condition.key in TEXTS:
        return _compare_text(condition, name)
    lookup = NUMBERS.get(condition.operator)
    text = condition.values[0] if condition.values else ""
    moment = from_milliseconds(int(float(text))) if text.replace(".", "", 1).isdigit() else None
    if lookup is None or moment is None:
        raise _refuse(condition)
    compared = Q(**{f"{name}{lookup}": moment})
    return ~compared if condition.operator == "!=" else compared


def _compare_text(condition: Condition, name: str) -> Q:
    match condition.operator:
        case "=":
            return Q(**{name: condition.values[0]})
        case "!=":
            return ~Q(**{name: condition.values[0]})
        case "IN":
            return Q(**{f"{name}__in": condition.values})
        case "NOT IN":
            return ~Q(**{f"{name}__in": condition.values})
        case "LIKE":
            return Q(**{f"{name}__regex": translate_pattern(condition.values[0])})
        case "ILIKE":
            return Q(**{f"{name}__iregex": translate_pattern(condition.values[0])})
    raise _refuse(condition)


def _refuse(condition: Condition) -> ApiError:
    return ApiError(
        400, "MLFLOW_COMPARISON", "filter", name=f"{condition.kind}.{condition.key}"[:200],
        operator=condition.operator, value=", ".join(condition.values)[:100] or "–",
    )  # fmt: skip
