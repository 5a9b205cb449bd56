"""The queue as a user may see it: who waits for what, why not yet, and when. What belongs to other projects is counted
and not named."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from apps.accounts.models import Membership, Role, User
from apps.common.texts import text
from apps.training.core.engine_access import engine_decides
from apps.training.models import Task
from apps.training.presenters import task_presenter as presenters
from apps.training.queue import outlook as looking
from apps.training.queue.outlook import View
from apps.training.states import FINAL
from fermi.diagnosis import diagnose
from fermi.scheduler.forecast import Forecast
from fermi.scheduler.snapshot import Held, Place, Select, Turn, Waiting, priority_of

QUEUE_WAITING = "QUEUE_WAITING"
MOST_AHEAD = 20
"""Most tasks that are named as those that must end first."""


class Eyes:
    """Which tasks and environments of the queue `user` may see by name."""

    def __init__(self, user: User) -> None:
        rows = Membership.objects.filter(user=user).values_list("project", "role")
        self.roles: Mapping[str, str] = dict(rows)
        self.all = user.is_superuser

    def sees(self, project: str) -> bool:
        """Return True if the user may see the project's tasks."""
        return self.all or project in self.roles

    def may_move(self, project: str) -> bool:
        """Return True if the user may move the project's tasks in the queue."""
        return self.all or self.roles.get(project) == Role.MAINTAINER

    def task(self, one: Waiting | Held) -> dict[str, Any]:
        """Return the task's id and name, empty if the user may not see it."""
        seen = self.sees(one.project)
        return {"taskId": one.task if seen else None, "name": one.name if seen else ""}

    def names(self, place: Place) -> bool:
        """Return True if the user may see the environment's name."""
        return place.shared or self.sees(place.project)


def outlook(view: View, turn: Turn) -> Forecast:
    """Return when the task will start, from the forecast; now for one that starts in the next scheduling pass."""
    now = view.scene.now
    return Forecast(now, now, now) if turn.start else view.forecasts[turn.task]


def listed(user: User, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a page of the queue in its order. A filter by project or by words finds only what `user` may see."""
    view, visibility = looking.view(), Eyes(user)
    rows = [turn for turn in view.decision.turns if _is_asked_for(view.waiting[turn.task], visibility, query)]
    number, size = query["page"], query["pageSize"]
    part = rows[(number - 1) * size : number * size]
    reasons = _reasons(turn.task for turn in part)
    items = [_item(view, visibility, turn, reasons.get(turn.task)) for turn in part]
    return {"items": items, "total": len(rows), "page": number, "pageSize": size}


def _is_asked_for(one: Waiting, visibility: Eyes, query: Mapping[str, Any]) -> bool:
    project, word = query.get("project"), query.get("search", "").lower()
    if (project or word) and not visibility.sees(one.project):
        return False
    if query.get("cluster") and one.cluster != query["cluster"]:
        return False
    return (not project or one.project == project) and (word in one.name.lower() or word in one.task)


def _reasons(tasks: Iterable[str]) -> dict[str, Any]:
    rows = Task.objects.filter(pk__in=list(tasks)).values("id", *presenters.WHY)
    return {row["id"]: row for row in rows}


def _item(view: View, visibility: Eyes, turn: Turn, row: Mapping[str, Any] | None) -> dict[str, Any]:
    one = view.waiting[turn.task]
    seen = visibility.sees(one.project)
    return {
        "number": turn.number,
        "taskId": one.task if seen else None,
        "taskName": one.name if seen else "",
        "projectId": one.project if seen else None,
        "owner": one.user if seen else "",
        "priority": priority_of(one.priority).name.lower(),
        "asks": asks(view, one, visibility if seen else None),
        "since": moment(one.since),
        "reason": _reason(turn, row) if seen else None,
        "preemptible": one.preemptible,
        "mayMove": visibility.may_move(one.project),
        **_when(view, visibility, turn),
    }


def _reason(turn: Turn, row: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return the stored reason; for a task that no scheduling pass has decided on yet, the reason that it would get."""
    if row is not None and (known := presenters.why(row)):
        return known
    return presenters.reason(turn.why.code, turn.why.params) if turn.why else None


def _when(view: View, visibility: Eyes, turn: Turn) -> dict[str, Any]:
    known = outlook(view, turn)
    after = [view.held.get(key) or view.waiting.get(key) for key in known.after[:MOST_AHEAD]]
    return {
        "begins": moment(known.begins),
        "early": moment(known.early),
        "late": moment(known.late),
        "after": [{**visibility.task(one), "until": moment(ends(view, one))} for one in after if one],
    }


def ends(view: View, one: Held | Waiting) -> float | None:
    """Return when the task gives its environments back, in unix seconds: by preemption, as it declared, or as
    estimated; None if it is not known."""
    if isinstance(one, Held):
        if (gives_way := view.gives_way.get(one.task)) is not None:
            return gives_way
        return one.until if one.until is not None else one.expected
    known = view.forecasts.get(one.task)
    begins = known.begins if known else view.scene.now
    run = min((run for run in (one.max_run, one.expected_run) if run is not None), default=None)
    return None if begins is None or run is None else begins + run


def asks(view: View, one: Waiting, visibility: Eyes | None) -> dict[str, Any]:
    """Return what the task requests, in numbers and as text; with the names of environments only if `eyes` is given."""
    if one.select is not None:
        nodes, gpus, types = one.select.nodes, _gpus(one.select), list(one.select.gpu_types)
        names = []
    else:
        places = [view.places[key] for key in one.named if key in view.places]
        nodes, gpus = len(one.named), sum(place.gpus for place in places)
        types = sorted({place.gpu_type for place in places if place.gpu_type})
        names = [place.name for place in places] if visibility else []
    figures = {"nodes": nodes, "gpus": gpus, "types": ", ".join(types)}
    said = {name: value for name, value in figures.items() if value}
    words = _said("ASKS_FOR" if nodes else "ASKS_FOR_GPUS", said)
    if names:
        words = _said("ASKS_BY_NAME", {"asks": words, "names": ", ".join(names)})
    return {"nodes": nodes, "gpus": gpus, "gpuTypes": types, "text": words}


def _said(code: str, params: Mapping[str, Any]) -> str:
    return text(code, params)[0]


def _gpus(select: Select) -> int | None:
    if select.total_gpus is not None:
        return select.total_gpus
    return None if select.gpus_per_node is None else select.gpus_per_node * (select.nodes or 1)


def explained(user: User, task: Task) -> dict[str, Any]:
    """Return why a task has not started, and when it will; for one that is not in the queue, why not. `task` is loaded
    with its cluster."""
    view, visibility = looking.view(), Eyes(user)
    turn = view.turns.get(task.pk)
    reason = presenters.why(vars(task)) if task.state not in FINAL else None
    known: dict[str, Any] = {"begins": None, "early": None, "late": None, "after": []}
    if turn is not None:
        reason, known = _reason(turn, vars(task)), _when(view, visibility, turn)
    return {
        "taskId": task.pk,
        "number": turn.number if turn else None,
        "of": len(view.scene.waiting),
        "reason": reason,
        **known,
        "needs": [_need(view, visibility, key) for key in (turn.start or turn.needs)] if turn else [],
        "sooner": [presenters.warning(one.code, one.params) for one in view.sooner(task.pk)] if turn else [],
        "engine": _engine(task),
    }


def line(task: Task, user: User) -> diagnose.Line | None:
    """Return the task's position in the queue for its diagnosis; None if it is not in the queue."""
    view, visibility = looking.view(), Eyes(user)
    turn = view.turns.get(task.pk)
    if turn is None:
        return None
    known = outlook(view, turn)
    after = [view.held.get(key) or view.waiting.get(key) for key in known.after]
    return diagnose.Line(
        number=turn.number,
        of=len(view.scene.waiting),
        begins=known.begins,
        early=known.early,
        late=known.late,
        ahead=[
            diagnose.Ahead(one.task, one.name, ends(view, one)) if visibility.sees(one.project) else diagnose.Ahead()
            for one in after
            if one
        ],
        sooner=view.sooner(task.pk),
    )


def reason(task: Task) -> tuple[str, Mapping[str, Any]]:
    """Return the code and parameters of why it waits, while no scheduling pass has stored it; an empty code if it would
    start."""
    turn = looking.view().turns.get(task.pk)
    return (turn.why.code, turn.why.params) if turn and turn.why else ("", {})


def _need(view: View, visibility: Eyes, key: str) -> dict[str, Any]:
    place, holder = view.places.get(key), view.holders.get(key)
    named = place is not None and visibility.names(place)
    return {
        "environmentId": key if named else None,
        "name": place.name if place and named else "",
        "held": holder is not None,
        "heldBy": holder.task if holder and visibility.sees(holder.project) else None,
        "heldByName": holder.name if holder and visibility.sees(holder.project) else None,
    }


def _engine(task: Task) -> dict[str, Any] | None:
    """Return what the engine's own queue says; None unless it decides when the task starts, or when the part of it that
    runs beside its environments does."""
    if task.state in FINAL or not (engine_decides(task) or task.reason == QUEUE_WAITING):
        return None
    reason = presenters.why(vars(task))
    position, begins = (task.reason_params.get(name) for name in ("position", "begins"))
    return {
        "position": position if isinstance(position, int) else None,
        "reason": reason["message"] if reason else "",
        "begins": moment(begins if isinstance(begins, int) else None),
    }


def moment(seconds: float | None) -> datetime | None:
    """Return unix seconds as a datetime; None stays None."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
