"""Chooses on how many nodes an elastic task runs from its next attempt on: all that are available, at least `minNodes`.

queued ─▶ spares for lost nodes ─┬─▶ all of maxNodes are available ─▶ the next attempt on all of them
                                 ├─▶ minNodes or more               ─▶ on those, with new ranks; others are released
                                 └─▶ fewer                          ─▶ it waits
"""

from dataclasses import replace
from typing import Any

from apps.clusters.models import Lease
from apps.training.core import placement
from apps.training.core.engine_access import backend_for, settled
from apps.training.models import Task
from apps.training.states import FINAL, State
from fermi.jobs import elastic
from fermi.jobs.spec import JobSpec, Node
from fermi.planning import elastic_sizes, validate

HELD = "held"
FREE = "free"


def resize(task: Task) -> bool:
    """Give the task the nodes that are available now, in one transaction; return False if it has them already, or there
    are too few. Only between attempts. The pre-flight test before the first attempt covers all nodes, so that attempt
    waits for all."""
    before = JobSpec.from_json(task.spec)
    if not task.attempt and before.preflight != "off":
        return False
    why = away(task, before)
    after = _best(task, before, why)
    if after is None or (_ids(after), after.master) == (_ids(before), before.master):
        return False
    return placement.settle(task, after, _events(before, after, why))


def larger(task: Task) -> JobSpec | None:
    """Return the job as it would run if it were resized now, if that is with more processes; otherwise None."""
    job = JobSpec.from_json(task.spec)
    found = _best(task, job, away(task, job))
    return found if found and found.world_size > job.world_size else None


def without(task: Task, job: JobSpec) -> JobSpec | None:
    """Return the job as it would run now without the nodes that it leaves out; None if it could not run."""
    return _best(task, job, away(task, job))


def away(task: Task, job: JobSpec) -> dict[str, dict[str, str]]:
    """Return why each chosen node is not available to the task now, by node id: its status, or the task that holds
    it."""
    if job.elastic is None:
        return {}
    ids = [node.id for node in job.elastic.nodes]
    others = Lease.objects.filter(environment__in=ids).exclude(holder=task.pk)
    held = {key: {"status": HELD, "task": by} for key, by in others.values_list("environment_id", "holder")}
    return held | {
        key: {"status": status} for key, status in placement.unusable(job.elastic.nodes, job.left_out).items()
    }


def shown(task: Task, job: JobSpec) -> dict[str, Any] | None:
    """Return the sizes of an elastic task for its page; None if it is not elastic."""
    asked = job.elastic
    if asked is None or not asked.world_size:
        return None
    why, present, goes_on = away(task, job), _ids(job), State(task.state) not in FINAL
    missing = [node for node in asked.nodes if node.id not in present]
    best = _best(task, job, why) if missing and goes_on else None
    share = elastic.division(job)
    return {
        "minNodes": asked.min_nodes,
        "maxNodes": asked.max_nodes,
        "nodes": len(job.nodes),
        "sizes": elastic_sizes.sizes(job),
        "globalBatchSize": asked.batch or None,
        "accumulationSteps": share.steps if share else None,
        "largest": len(best.nodes) if best and best.world_size > job.world_size else len(job.nodes),
        "resizing": goes_on and task.resize_requested_at is not None,
        "away": [
            {"environmentId": node.id, "name": node.name, "taskId": None, "status": FREE}
            | {{"task": "taskId"}.get(key, key): value for key, value in why.get(node.id, {}).items()}
            for node in missing
        ],
    }


def _best(task: Task, job: JobSpec, why: dict[str, Any]) -> JobSpec | None:
    """Return the job on the largest usable set of nodes that passes all checks; None if there is none."""
    if job.elastic is None or not job.elastic.world_size:
        return None
    usable, backend = {node.id for node in job.elastic.nodes} - why.keys(), backend_for(task.cluster)
    for found in elastic_sizes.choices(job, usable):
        checked = replace(found, resume_from="")  # where it goes on from has nothing to do with where it runs
        checked, impossible = settled(task.cluster, checked)
        if not (impossible or validate.problems(checked) or backend.problems(checked)):
            return found
    return None


def _events(before: JobSpec, after: JobSpec, why: dict[str, dict[str, str]]) -> list[tuple[str, dict[str, Any]]]:
    """Return the events, as (code, params), that describe a change of size."""
    assert after.elastic is not None
    gone, come = _without(before, after), _without(after, before)
    share = elastic.division(after)
    params = {
        "nodes": len(after.nodes),
        "before": len(before.nodes),
        "all": after.elastic.max_nodes,
        "worldSize": after.world_size,
        "master": after.head.name,
        **({"batch": after.elastic.batch, "steps": share.steps} if share else {}),
    }
    return [
        *(("ENVIRONMENT_LEFT", {"environment": node.name, **why.get(node.id, {"status": FREE})}) for node in gone),
        *(("ENVIRONMENT_JOINED", {"environment": node.name}) for node in come),
        *(
            [("MASTER_ELECTED", {"environment": after.head.name, "before": before.head.name})]
            if after.master != before.master
            else []
        ),
        ("RESIZED", params),
    ]


def _without(job: JobSpec, other: JobSpec) -> list[Node]:
    return [node for node in job.nodes if node.id not in _ids(other)]


def _ids(job: JobSpec) -> set[str]:
    return {node.id for node in job.nodes}
