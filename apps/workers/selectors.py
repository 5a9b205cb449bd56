"""Queries of workers and groups, as the API returns them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.common.clock import now
from apps.common.errors import limit_problems
from apps.telemetry import presenters, subjects
from apps.telemetry.presenters import SeriesTarget
from apps.training.public import FINAL_STATES, Task, TaskState, list_holders, serialize_problem, serialize_warning
from apps.workers import busy_ports, health
from apps.workers.heartbeat import schema
from apps.workers.models import Group, JoinToken, Worker
from apps.workers.ranking import GroupLayout, check_group
from fermi.jobs import credentials
from fermi.jobs.ranks import WorkerSlot
from fermi.jobs.spec import Problem
from fermi.runner.run_names import parse_run_name
from fermi.telemetry.metrics import DISK, NETWORK, NODE

NO_RANK = {"rank": None, "localRank": None, "nodeRank": None}
NO_GROUP = "none"
WORKER_ACTIONS = ("move", "delete")


class MemberInfo(NamedTuple):
    """A worker of a group. `on_gpu`: it has a GPU of its host."""

    node: str
    number: int
    status: health.Status
    on_gpu: bool


def list_workers(user: User, filters: Mapping[str, Any], judge: health.WorkerHealth) -> QuerySet[Worker]:
    rows = Worker.objects.select_related("group", "report").annotate(
        may_change=access.build_may_change_expression(user)
    )
    rows = access.filter_visible(rows, user)
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


def serialize_workers(rows: Sequence[Any], judge: health.WorkerHealth) -> list[dict[str, Any]]:
    """Return the workers. The number of queries does not depend on their number."""
    of_group = build_layouts({row.group for row in rows if row.group is not None})
    seats = {seat.worker: seat for line in of_group.values() for seat in line.seats()}
    moment = now()
    return [_serialize_one(row, seats.get(row.pk), of_group, judge, moment) for row in rows]


def serialize_worker(user: User, worker_id: str) -> dict[str, Any]:
    judge = health.read_worker_health()
    return serialize_workers([access.get_object(list_workers(user, {}, judge), user, worker_id)], judge)[0]


def list_groups(user: User, search: str = "") -> QuerySet[Group]:
    rows = Group.objects.select_related("task").annotate(may_change=access.build_may_change_expression(user))
    return access.filter_visible(rows, user).filter(name__icontains=search)


def serialize_groups(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the groups; `rows` come from `list_groups`. The number of queries does not depend on their number."""
    judge, of_group = health.read_worker_health(), build_layouts(rows)
    members = Worker.objects.filter(group__in=rows).values_list("pk", "node", "number", "report__at", "gpu", "facts")
    known = {
        key: MemberInfo(node, number, judge.status(at), on_gpu=gpu is not None and not facts.get("emulated"))
        for key, node, number, at, gpu, facts in members
    }
    taken_on = busy_ports.list_busy_ports({line.master for line in of_group.values()})
    return [_serialize_group(row, of_group[row.pk], known, taken_on) for row in rows]


def list_join_tokens(user: User) -> QuerySet[JoinToken, Any]:
    rows = access.filter_visible(JoinToken.objects.all(), user)
    return rows.values("id", "name", "project_id", "owner__username", "created_at", "last_used_at")


def serialize_join_token(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "projectId": row["project_id"],
        "owner": row["owner__username"],
        "createdAt": row["created_at"],
        "lastUsedAt": row["last_used_at"],
    }


def build_layouts(rows: Iterable[Group]) -> dict[str, GroupLayout]:
    """Return the groups' settings and workers, by id."""
    rows = list(rows)
    members: defaultdict[str | None, list[str]] = defaultdict(list)
    for group, key in Worker.objects.filter(group__in=rows).values_list("group_id", "pk"):
        members[group].append(key)
    return {
        row.pk: GroupLayout(
            row.master_address, row.world_size, row.master_port, row.script, row.env, row.secret_env,
            tuple(members[row.pk]),
        )
        for row in rows
    }  # fmt: skip


def _serialize_one(
    row: Any, slot: WorkerSlot | None, of_group: Mapping[str, GroupLayout], judge: health.WorkerHealth, moment: Any
) -> dict[str, Any]:
    report, desired = row.report, row.desired.get("order")
    told = report.process
    task_id, number = parse_run_name(told.get("name") or "")
    return {
        "id": row.pk,
        "node": row.node,
        "number": row.number,
        "projectId": row.project_id,
        "gpu": row.gpu,
        "status": judge.status(report.at),
        "group": {"id": row.group.pk, "name": row.group.name} if row.group else None,
        **_serialize_rank(slot),
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
        "usage": {name: report.usage.get(name) for name in schema.USAGE_FIELDS},
        "environmentId": row.environment_id,
        "host": row.facts.get("host") or "",
        "ip": row.facts.get("ip"),
        "version": row.facts.get("version") or (row.facts.get("versions") or {}).get("fermi") or "",
        "allowedActions": list(WORKER_ACTIONS) if row.may_change else [],
    }


def _serialize_group(
    row: Any,
    line: GroupLayout,
    members: Mapping[str, MemberInfo],
    busy_ports_by_node: Mapping[str, Mapping[int, str]],
) -> dict[str, Any]:
    found, busy = check_group(line), busy_ports_by_node.get(line.master, {})
    on_gpus = all(members[key].on_gpu for key in line.workers if key in members)
    warnings = credentials.find_warnings(row.env)
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
        "env": row.env if row.may_change else credentials.mask_secrets(row.env),
        "secretEnv": row.secret_env,
        "maxRestarts": row.max_restarts,
        "createdAt": row.created_at,
        "workers": [
            {
                "id": place.worker,
                "node": members[place.worker].node,
                "number": members[place.worker].number,
                "status": members[place.worker].status,
                **_serialize_rank(place),
            }
            for place in line.seats()
            if place.worker in members
        ],
        "problems": [serialize_problem(problem) for problem in limit_problems(found)],
        "warnings": [serialize_warning(one.code, one.params) for one in warnings],
        "task": _serialize_task(row.task),
        "allowedActions": list_group_actions(row, ready=not found) if row.may_change else [],
    }


def _serialize_task(task: Task | None) -> dict[str, Any] | None:
    return {"id": task.pk, "name": task.name, "status": task.state} if task else None


def list_group_actions(row: Group, *, ready: bool) -> list[str]:
    """Return what a member may do with the group now."""
    running = row.task is not None and TaskState(row.task.state) not in FINAL_STATES
    steering = ["stop"] if running else ["start"] if ready else []
    again = ["restart"] if ready and row.task is not None else []
    return [*steering, *again, "edit", *([] if running else ["delete"])]


def _serialize_rank(slot: WorkerSlot | None) -> dict[str, int | None]:
    if slot is None:
        return dict(NO_RANK)
    return {"rank": slot.rank, "localRank": slot.local_rank, "nodeRank": slot.node_rank}


def serialize_worker_telemetry(user: User, worker_id: str, query: Mapping[str, Any]) -> dict[str, Any]:
    """Return the series of its GPU and rank and of its host, and which tasks used it."""
    worker = access.get_object(Worker.objects.select_related("environment"), user, worker_id)
    asked = presenters.parse_query(query)
    places, tasks = {subjects.make_worker_subject(worker.pk): SeriesTarget(None)}, []
    if worker.environment:
        places[subjects.make_environment_subject(worker.environment.pk)] = SeriesTarget(
            None, only=(NODE, NETWORK, DISK)
        )
        tasks = list_holders(worker.environment, user, asked.begins, asked.ends)
    return {**presenters.serialize_series(asked, places), "tasks": tasks}
