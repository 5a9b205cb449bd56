"""Queries of workers and groups, as the API returns them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import cut
from apps.training.models import Task
from apps.training.presenters import task_presenter as presenters
from apps.training.states import FINAL, State
from apps.workers import busy_ports, health
from apps.workers.heartbeat import schema
from apps.workers.models import Group, JoinToken, Worker
from apps.workers.ranking import Line, problems
from fermi.jobs import credentials
from fermi.jobs.ranks import Seat
from fermi.jobs.spec import Problem, attempt_parts

NO_PLACE = {"rank": None, "localRank": None, "nodeRank": None}
NO_GROUP = "none"
WORKER_ACTIONS = ("move", "delete")


class Member(NamedTuple):
    """A worker of a group. `on_gpu`: it has a GPU of its host."""

    node: str
    number: int
    status: health.Status
    on_gpu: bool


def workers(user: User, filters: Mapping[str, Any], judge: health.Judge) -> QuerySet[Worker]:
    rows = Worker.objects.select_related("group", "report").annotate(may_change=access.may_change(user))
    rows = access.visible(rows, user)
    if wanted := filters.get("status"):
        condition = Q()
        for status in wanted:
            condition |= judge.having(status)
        rows = rows.filter(condition)
    if group := filters.get("group"):
        rows = rows.filter(group=None) if group == NO_GROUP else rows.filter(Q(group=group) | Q(group__name=group))
    if node := filters.get("node"):
        rows = rows.filter(node=node)
    if word := filters.get("search"):
        rows = rows.filter(Q(pk__icontains=word) | Q(group__name__icontains=word))
    return rows


def shown(rows: Sequence[Any], judge: health.Judge) -> list[dict[str, Any]]:
    """Return the workers. The number of queries does not depend on their number."""
    of_group = lines({row.group for row in rows if row.group is not None})
    seats = {seat.worker: seat for line in of_group.values() for seat in line.seats()}
    moment = now()
    return [_worker(row, seats.get(row.pk), of_group, judge, moment) for row in rows]


def worker(user: User, worker_id: str) -> dict[str, Any]:
    judge = health.judge()
    return shown([access.get(workers(user, {}, judge), user, worker_id)], judge)[0]


def groups(user: User, search: str = "") -> QuerySet[Group]:
    rows = Group.objects.select_related("task").annotate(may_change=access.may_change(user))
    return access.visible(rows, user).filter(name__icontains=search)


def shown_groups(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the groups; `rows` come from `list_groups`. The number of queries does not depend on their number."""
    judge, of_group = health.judge(), lines(rows)
    members = Worker.objects.filter(group__in=rows).values_list("pk", "node", "number", "report__at", "gpu", "facts")
    known = {
        key: Member(node, number, judge.status(at), on_gpu=gpu is not None and not facts.get("emulated"))
        for key, node, number, at, gpu, facts in members
    }
    taken_on = busy_ports.ports({line.master for line in of_group.values()})
    return [_group(row, of_group[row.pk], known, taken_on) for row in rows]


def join_tokens(user: User) -> QuerySet[JoinToken, Any]:
    rows = access.visible(JoinToken.objects.all(), user)
    return rows.values("id", "name", "project_id", "owner__username", "created_at", "last_used_at")


def join_token(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "projectId": row["project_id"],
        "owner": row["owner__username"],
        "createdAt": row["created_at"],
        "lastUsedAt": row["last_used_at"],
    }


def lines(rows: Iterable[Group]) -> dict[str, Line]:
    """Return the groups' settings and workers, by id."""
    rows = list(rows)
    members: defaultdict[str | None, list[str]] = defaultdict(list)
    for group, key in Worker.objects.filter(group__in=rows).values_list("group_id", "pk"):
        members[group].append(key)
    return {
        row.pk: Line(
            row.master_address, row.world_size, row.master_port, row.script, row.env, row.secret_env,
            tuple(members[row.pk]),
        )
        for row in rows
    }  # fmt: skip


def _worker(
    row: Any, place: Seat | None, of_group: Mapping[str, Line], judge: health.Judge, moment: Any
) -> dict[str, Any]:
    report, desired = row.report, row.desired.get("order")
    told = report.process
    task_id, number = attempt_parts(told.get("name") or "")
    return {
        "id": row.pk,
        "node": row.node,
        "number": row.number,
        "projectId": row.project_id,
        "gpu": row.gpu,
        "status": judge.status(report.at),
        "group": {"id": row.group.pk, "name": row.group.name} if row.group else None,
        **_place(place),
        "worldSize": of_group[row.group.pk].effective_world_size if row.group else None,
        "lastHeartbeatAt": report.at,
        "heartbeatAgeSeconds": round((moment - report.at).total_seconds(), 1) if report.at else None,
        "generation": row.generation,
        "process": {
            "state": told.get("state", "idle"),
            "pid": told.get("pid"),
            "exitCode": told.get("exitCode"),
            "taskId": task_id or (desired["taskId"] if desired else None),
            "attempt": int(number) if number.isdecimal() else (desired["attempt"] if desired else None),
        },
        "usage": {name: report.usage.get(name) for name in schema.USAGE},
        "environmentId": row.environment_id,
        "host": row.facts.get("host") or "",
        "ip": row.facts.get("ip"),
        "version": row.facts.get("version") or (row.facts.get("versions") or {}).get("fermi") or "",
        "allowedActions": list(WORKER_ACTIONS) if row.may_change else [],
    }


def _group(
    row: Any,
    line: Line,
    known: Mapping[str, Member],
    taken_on: Mapping[str, Mapping[int, str]],
) -> dict[str, Any]:
    found, busy = problems(line), taken_on.get(line.master, {})
    on_gpus = all(known[key].on_gpu for key in line.workers if key in known)
    warnings = credentials.warnings(row.env)
    if row.master_port in busy:
        params = {"port": row.master_port, "node": line.master, "holder": busy[row.master_port] or None}
        warnings.append(Problem("masterPort", "MASTER_PORT_BUSY", params))
    return {
        "id": row.pk,
        "name": row.name,
        "projectId": row.project_id,
        "masterAddress": row.master_address,
        "worldSize": row.world_size,
        "effectiveWorldSize": line.effective_world_size,
        "masterPort": row.master_port,
        "backend": row.backend,
        "effectiveBackend": row.backend if on_gpus else "gloo",  # as `fermi.jobs.rank_env` chooses
        "script": row.script,
        "args": row.args,
        "env": row.env if row.may_change else credentials.masked(row.env),
        "secretEnv": row.secret_env,
        "maxRestarts": row.max_restarts,
        "createdAt": row.created_at,
        "workers": [
            {
                "id": place.worker,
                "node": known[place.worker].node,
                "number": known[place.worker].number,
                "status": known[place.worker].status,
                **_place(place),
            }
            for place in line.seats()
            if place.worker in known
        ],
        "problems": [presenters.problem(problem) for problem in cut(found)],
        "warnings": [presenters.warning(one.code, one.params) for one in warnings],
        "task": _task(row.task),
        "allowedActions": actions(row, ready=not found) if row.may_change else [],
    }


def _task(task: Task | None) -> dict[str, Any] | None:
    return {"id": task.pk, "name": task.name, "status": task.state} if task else None


def actions(row: Group, *, ready: bool) -> list[str]:
    """Return what a member may do with the group now."""
    running = row.task is not None and State(row.task.state) not in FINAL
    steering = ["stop"] if running else ["start"] if ready else []
    again = ["restart"] if ready and row.task is not None else []
    return [*steering, *again, "edit", *([] if running else ["delete"])]


def _place(place: Seat | None) -> dict[str, int | None]:
    if place is None:
        return dict(NO_PLACE)
    return {"rank": place.rank, "localRank": place.local_rank, "nodeRank": place.node_rank}
