"""Environments that are made for a task (`launchMode` new): it waits until all of them run, and knows its nodes then.

    initializing ─┬─▶ one cannot be had ─▶ failed, with what that one says
                  ├─▶ some do not run yet ─▶ it waits, and says which one and what that is at
                  └─▶ all run ─▶ its nodes are what their hosts say of them ─▶ queued

What becomes of them afterwards is written in the transaction that ends the task; `finish_all` is for what that one
could not do, because another task held one of them.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from apps.clusters import selectors
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.common.sql import CompiledQuery, columns, key_parameters
from apps.environments import services as environments
from apps.environments.models import Hosted
from apps.training.models import Task
from apps.training.states import FINAL
from apps.training.states.reasons import Reason
from fermi.jobs.spec import Cause, JobSpec, Node
from fermi.planning.request import NEW

GONE = "ENVIRONMENT_DELETED"


def are_made_for(task: Task) -> bool:
    return task.request.get("launchMode") == NEW


def kept(environments: Collection[str]) -> dict[str, str]:
    """Of these environments, those that were made for a task which has not ended, each with that task."""
    return {row["pk"]: row["task"] for row in _KEPT.fetch(**key_parameters(environments))} if environments else {}


_KEPT = CompiledQuery(
    lambda **among: Hosted.objects.filter(pk__in=list(among.values())).exclude(task="").exclude(afterwards=""),
    columns(Hosted, "pk", "task"),
)


def waits_for(task: Task) -> Cause | None:
    """ENVIRONMENT_NOT_MADE: it waits in vain. ENVIRONMENTS_MAKING: not yet. None: all run."""
    job = JobSpec.from_json(task.spec)
    rows = Hosted.objects.filter(pk__in=[node.id for node in job.nodes]).select_related("environment").in_bulk()
    missing = []
    for node in job.nodes:
        hosted = rows.get(node.id)
        status = hosted.environment.status if hosted else ""
        if hosted is None or hosted.wanted != EnvironmentStatus.RUNNING or status in _ENDED:
            return Cause(Reason.ENVIRONMENT_NOT_MADE, {"environment": node.name, **_why(hosted)})
        if status != EnvironmentStatus.RUNNING:
            missing.append((node, hosted))
    if not missing:
        return None
    node, hosted = missing[0]
    count = {"ready": len(job.nodes) - len(missing), "count": len(job.nodes)}
    return Cause(Reason.ENVIRONMENTS_MAKING, {"environment": node.name, **count, **_why(hosted)})


def known(task: Task) -> Mapping[str, Any]:
    """The part of its spec that tells its nodes, as they are now that they run."""
    job = JobSpec.from_json(task.spec)
    rows = DevEnvironment.objects.select_related("zone").in_bulk([node.id for node in job.nodes])
    nodes = tuple(_as_it_runs(node, rows[node.id]) for node in job.nodes)
    return {"nodes": replace(job, nodes=nodes).to_json()["nodes"]}


def finish(task: Task) -> None:
    """The task has ended: has done with them what was said."""
    if are_made_for(task):
        environments.finish_for_task(task.pk)


def finish_all() -> None:
    waiting = Hosted.objects.exclude(task="").exclude(afterwards="").values("task")
    for key in Task.objects.filter(pk__in=waiting, state__in=FINAL).values_list("pk", flat=True):
        environments.finish_for_task(key)


def _as_it_runs(node: Node, environment: DevEnvironment) -> Node:
    """How many of its GPUs are used was decided when the task was made."""
    return replace(selectors.snapshot(environment), gpu_count=node.gpu_count)


_ENDED = (EnvironmentStatus.FAILED, EnvironmentStatus.STOPPED, EnvironmentStatus.STOPPING)


def _why(hosted: Hosted | None) -> dict[str, Any]:
    """As `apps.common.nested_texts` says it in the reader's language."""
    if hosted is None:
        return {"why": GONE, "about": {}}
    if doing := hosted.seen.get("doing"):
        return {"why": doing["code"], "about": doing["params"]}
    if hosted.reason:
        return {"why": hosted.reason, "about": hosted.reason_params}
    return {"why": f"ENVIRONMENT_IS_{hosted.state.upper()}", "about": {"run": hosted.run, "reason": ""}}
