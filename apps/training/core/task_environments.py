"""Environments created for a task (`launchMode` new): it waits until all of them run, and its nodes are known then.

    initializing ─┬─▶ one cannot be created ─▶ failed, with that environment's reason
                  ├─▶ some do not run yet   ─▶ it waits, and names one of them and its progress
                  └─▶ all run               ─▶ its nodes are what their hosts report ─▶ queued

What happens to them afterwards is written in the transaction that ends the task; `finish_all_environments` does what
that transaction could not do, because another task held one of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from apps.clusters import selectors
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.sql import CompiledQuery, list_columns, make_key_parameters
from apps.environments import services as environments
from apps.environments.models import Hosted
from apps.training.models import Task
from apps.training.states import FINAL_STATES
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import Cause, JobSpec, Node
from fermi.planning.request import NEW

DELETED_CODE = "ENVIRONMENT_DELETED"


def has_new_environments(task: Task) -> bool:
    """Return True if environments are created for the task."""
    return task.request.get("launchMode") == NEW


def find_unfinished_owners(environments: Collection[str]) -> dict[str, str]:
    """Return the environments among these that were created for a task that has not ended, with that task's id."""
    return (
        {row["pk"]: row["task"] for row in _UNFINISHED_OWNERS.fetch(**make_key_parameters(environments))}
        if environments
        else {}
    )


_UNFINISHED_OWNERS = CompiledQuery(
    lambda **among: Hosted.objects.filter(pk__in=list(among.values())).exclude(task="").exclude(afterwards=""),
    list_columns(Hosted, "pk", "task"),
)


def find_wait_cause(task: Task) -> Cause | None:
    """Return why the task cannot go on: ENVIRONMENT_NOT_MADE if an environment will never run, ENVIRONMENTS_MAKING if
    one does not run yet; None if all run."""
    job = JobSpec.from_json(task.spec)
    rows = Hosted.objects.filter(pk__in=[node.id for node in job.nodes]).select_related("environment").in_bulk()
    missing = []
    for node in job.nodes:
        hosted = rows.get(node.id)
        status = hosted.environment.status if hosted else ""
        if hosted is None or hosted.wanted != EnvironmentStatus.RUNNING or status in _ENDED_STATUSES:
            return Cause(TaskReason.ENVIRONMENT_NOT_MADE, {"environment": node.name, **_describe_status(hosted)})
        if status != EnvironmentStatus.RUNNING:
            missing.append((node, hosted))
    if not missing:
        return None
    node, hosted = missing[0]
    count = {"ready": len(job.nodes) - len(missing), "count": len(job.nodes)}
    return Cause(TaskReason.ENVIRONMENTS_MAKING, {"environment": node.name, **count, **_describe_status(hosted)})


def read_running_nodes(task: Task) -> Mapping[str, Any]:
    """Return the part of the task's spec that describes its nodes, from the environments that now run."""
    job = JobSpec.from_json(task.spec)
    rows = DevEnvironment.objects.select_related("zone").in_bulk([node.id for node in job.nodes])
    nodes = tuple(_build_running_node(node, rows[node.id]) for node in job.nodes)
    return {"nodes": replace(job, nodes=nodes).to_json()["nodes"]}


def finish_environments(task: Task) -> None:
    """Carry out what the request says about the environments after the task's end."""
    if has_new_environments(task):
        environments.finish_for_task(task.pk)


def finish_all_environments() -> None:
    """Carry it out for all ended tasks whose environments are not finished yet."""
    waiting = Hosted.objects.exclude(task="").exclude(afterwards="").values("task")
    for key in Task.objects.filter(pk__in=waiting, state__in=FINAL_STATES).values_list("pk", flat=True):
        environments.finish_for_task(key)


def _build_running_node(node: Node, environment: DevEnvironment) -> Node:
    """Return the node as its environment reports it; the number of GPUs used was decided when the task was created."""
    return replace(selectors.build_node(environment), gpu_count=node.gpu_count)


_ENDED_STATUSES = (EnvironmentStatus.FAILED, EnvironmentStatus.STOPPED, EnvironmentStatus.STOPPING)


def _describe_status(hosted: Hosted | None) -> dict[str, Any]:
    """Return the status of an environment as a nested reason (`apps.common.texts`)."""
    if hosted is None:
        return {"why": DELETED_CODE, "about": {}}
    if doing := hosted.seen.get("doing"):
        return {"why": doing["code"], "about": doing["params"]}
    if hosted.reason:
        return {"why": hosted.reason, "about": hosted.reason_params}
    return {"why": f"ENVIRONMENT_IS_{hosted.state.upper()}", "about": {"run": hosted.run, "reason": ""}}
