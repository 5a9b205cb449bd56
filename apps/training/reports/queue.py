"""The queue as a user may see it: who waits for what, why not yet, and when. What belongs to other projects is counted
and not named."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from apps.accounts import access
from apps.accounts.models import Role, User
from apps.common.texts import render_text
from apps.training.core.engine_access import is_scheduled_by_engine
from apps.training.models import Task
from apps.training.presenters import task_presenter
from apps.training.queue import outlook
from apps.training.queue.outlook import QueueForecast
from apps.training.states import FINAL_STATES
from fermi.diagnosis import diagnose
from fermi.scheduler.forecast import Forecast
from fermi.scheduler.snapshot import EnvironmentInfo, QueueEntry, RunningTask, Select, WaitingTask, classify_priority

QUEUE_WAITING = "QUEUE_WAITING"
MAX_AHEAD = 20
"""Most tasks that are named as those that must end first."""


class VisibilityFilter:
    """Which tasks and environments of the queue `user` may see by name."""

    def __init__(self, user: User) -> None:
        self.roles: Mapping[str, str] = access.list_roles(user)
        self.all = user.is_superuser

    def can_see(self, project: str) -> bool:
        """Return True if the user may see the project's tasks."""
        return self.all or project in self.roles

    def may_move(self, project: str) -> bool:
        """Return True if the user may move the project's tasks in the queue."""
        return self.all or self.roles.get(project) == Role.MAINTAINER

    def task(self, one: WaitingTask | RunningTask) -> dict[str, Any]:
        """Return the task's id and name, empty if the user may not see it."""
        seen = self.can_see(one.project)
        return {"taskId": one.task if seen else None, "name": one.name if seen else ""}

    def names(self, environment: EnvironmentInfo) -> bool:
        """Return True if the user may see the environment's name."""
        return environment.shared or self.can_see(environment.project)


def get_forecast(view: QueueForecast, turn: QueueEntry) -> Forecast:
    """Return when the task will start, from the forecast; now for one that starts in the next scheduling pass."""
    now = view.scene.now
    return Forecast(now, now, now) if turn.start else view.forecasts[turn.task]


def list_queue(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of the queue in its order. A filter by project or by words finds only what `user` may see."""
    view, visibility = outlook.get_queue_forecast(), VisibilityFilter(user)
    rows = [turn for turn in view.decision.turns if _matches_query(view.waiting[turn.task], visibility, query)]
    number, size = query["page"], query["pageSize"]
    part = rows[(number - 1) * size : number * size]
    reasons = _load_reasons(turn.task for turn in part)
    items = [_serialize_item(view, visibility, turn, reasons.get(turn.task)) for turn in part]
    return {"items": items, "total": len(rows), "page": number, "pageSize": size}


def _matches_query(task: WaitingTask, visibility: VisibilityFilter, query: Mapping[str, Any]) -> bool:
    project, word = query.get("project"), query.get("search", "").lower()
    if (project or word) and not visibility.can_see(task.project):
        return False
    if query.get("cluster") and task.cluster != query["cluster"]:
        return False
    return (not project or task.project == project) and (word in task.name.lower() or word in task.task)


def _load_reasons(tasks: Iterable[str]) -> dict[str, Any]:
    rows = Task.objects.filter(pk__in=list(tasks)).values("id", *task_presenter.REASON_COLUMNS)
    return {row["id"]: row for row in rows}


def _serialize_item(
    view: QueueForecast, visibility: VisibilityFilter, turn: QueueEntry, row: Mapping[str, Any] | None
) -> dict[str, Any]:
    one = view.waiting[turn.task]
    seen = visibility.can_see(one.project)
    return {
        "number": turn.number,
        "taskId": one.task if seen else None,
        "taskName": one.name if seen else "",
        "projectId": one.project if seen else None,
        "owner": one.user if seen else "",
        "priority": classify_priority(one.priority).name.lower(),
        "asks": serialize_demand(view, one, visibility if seen else None),
        "since": to_datetime(one.since),
        "reason": _serialize_reason(turn, row) if seen else None,
        "preemptible": one.preemptible,
        "mayMove": visibility.may_move(one.project),
        **_serialize_forecast(view, visibility, turn),
    }


def _serialize_reason(turn: QueueEntry, row: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the stored reason; for a task that no scheduling pass has decided on yet, the reason that it would get."""
    if row is not None and (known := task_presenter.explain_task(row)):
        return known
    return task_presenter.serialize_reason(turn.why.code, turn.why.params) if turn.why else None


def _serialize_forecast(view: QueueForecast, visibility: VisibilityFilter, turn: QueueEntry) -> dict[str, Any]:
    known = get_forecast(view, turn)
    after = [view.running_by_id.get(key) or view.waiting.get(key) for key in known.after[:MAX_AHEAD]]
    return {
        "begins": to_datetime(known.begins),
        "early": to_datetime(known.early),
        "late": to_datetime(known.late),
        "after": [{**visibility.task(one), "until": to_datetime(estimate_end(view, one))} for one in after if one],
    }


def estimate_end(view: QueueForecast, task: RunningTask | WaitingTask) -> float | None:
    """Return when the task gives its environments back, in unix seconds: by preemption, as it declared, or as
    estimated; None if it is not known."""
    if isinstance(task, RunningTask):
        if (gives_way := view.preemption_ends.get(task.task)) is not None:
            return gives_way
        return task.until if task.until is not None else task.expected
    known = view.forecasts.get(task.task)
    begins = known.begins if known else view.scene.now
    run = min((run for run in (task.max_run, task.expected_run) if run is not None), default=None)
    return None if begins is None or run is None else begins + run


def serialize_demand(view: QueueForecast, task: WaitingTask, visibility: VisibilityFilter | None) -> dict[str, Any]:
    """Return what the task requests, in numbers and as text; with the names of environments only if `eyes` is given."""
    if task.select is not None:
        nodes, gpus, types = task.select.nodes, _count_gpus(task.select), list(task.select.gpu_types)
        names = []
    else:
        places = [view.places[key] for key in task.named if key in view.places]
        nodes, gpus = len(task.named), sum(place.gpus for place in places)
        types = sorted({place.gpu_type for place in places if place.gpu_type})
        names = [place.name for place in places] if visibility else []
    figures = {"nodes": nodes, "gpus": gpus, "types": ", ".join(types)}
    said = {name: value for name, value in figures.items() if value}
    words = _translate("ASKS_FOR" if nodes else "ASKS_FOR_GPUS", said)
    if names:
        words = _translate("ASKS_BY_NAME", {"asks": words, "names": ", ".join(names)})
    return {"nodes": nodes, "gpus": gpus, "gpuTypes": types, "text": words}


def _translate(code: str, params: Mapping[str, Any]) -> str:
    return render_text(code, params)[0]


def _count_gpus(select: Select) -> int | None:
    if select.total_gpus is not None:
        return select.total_gpus
    return None if select.gpus_per_node is None else select.gpus_per_node * (select.nodes or 1)


def explain_queue(user: User, task: Task) -> dict[str, Any]:
    """Return why a task has not started, and when it will; for one that is not in the queue, why not. `task` is loaded
    with its cluster."""
    view, visibility = outlook.get_queue_forecast(), VisibilityFilter(user)
    turn = view.turns.get(task.pk)
    reason = task_presenter.explain_task(vars(task)) if task.state not in FINAL_STATES else None
    known: dict[str, Any] = {"begins": None, "early": None, "late": None, "after": []}
    if turn is not None:
        reason, known = _serialize_reason(turn, vars(task)), _serialize_forecast(view, visibility, turn)
    return {
        "taskId": task.pk,
        "number": turn.number if turn else None,
        "of": len(view.scene.waiting),
        "reason": reason,
        **known,
        "needs": [_serialize_need(view, visibility, key) for key in (turn.start or turn.needs)] if turn else [],
        "sooner": [task_presenter.serialize_warning(one.code, one.params) for one in view.sooner(task.pk)]
        if turn
        else [],
        "engine": _describe_engine_queue(task),
    }


def build_queue_position(task: Task, user: User) -> diagnose.QueuePosition | None:
    """Return the task's position in the queue for its diagnosis; None if it is not in the queue."""
    view, visibility = outlook.get_queue_forecast(), VisibilityFilter(user)
    turn = view.turns.get(task.pk)
    if turn is None:
        return None
    known = get_forecast(view, turn)
    after = [view.running_by_id.get(key) or view.waiting.get(key) for key in known.after]
    return diagnose.QueuePosition(
        number=turn.number,
        total=len(view.scene.waiting),
        begins=known.begins,
        early=known.early,
        late=known.late,
        ahead=[
            diagnose.BlockingTask(one.task, one.name, estimate_end(view, one))
            if visibility.can_see(one.project)
            else diagnose.BlockingTask()
            for one in after
            if one
        ],
        sooner=view.sooner(task.pk),
    )


def find_reason(task: Task) -> tuple[str, Mapping[str, Any]]:
    """Return the code and parameters of why it waits, while no scheduling pass has stored it; an empty code if it would
    start."""
    turn = outlook.get_queue_forecast().turns.get(task.pk)
    return (turn.why.code, turn.why.params) if turn and turn.why else ("", {})


def _serialize_need(view: QueueForecast, visibility: VisibilityFilter, key: str) -> dict[str, Any]:
    place, holder = view.places.get(key), view.holders.get(key)
    named = place is not None and visibility.names(place)
    return {
        "environmentId": key if named else None,
        "name": place.name if place and named else "",
        "held": holder is not None,
        "heldBy": holder.task if holder and visibility.can_see(holder.project) else None,
        "heldByName": holder.name if holder and visibility.can_see(holder.project) else None,
    }


def _describe_engine_queue(task: Task) -> dict[str, Any] | None:
    """Return what the engine's own queue says; None unless it decides when the task starts, or when the part of it that
    runs beside its environments does."""
    if task.state in FINAL_STATES or not (is_scheduled_by_engine(task) or task.reason == QUEUE_WAITING):
        return None
    reason = task_presenter.explain_task(vars(task))
    position, begins = (task.reason_params.get(name) for name in ("position", "begins"))
    return {
        "position": position if isinstance(position, int) else None,
        "reason": reason["message"] if reason else "",
        "begins": to_datetime(begins if isinstance(begins, int) else None),
    }


def to_datetime(seconds: float | None) -> datetime | None:
    """Return unix seconds as a datetime; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
