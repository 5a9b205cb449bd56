"""Chooses on how many nodes an elastic task runs from its next attempt on: all that are available, at least `minNodes`.

queued ─▶ spares for lost nodes ─┬─▶ all of maxNodes are available ─▶ the next attempt on all of them
                                 ├─▶ minNodes or more               ─▶ on those, with new ranks; others are released
                                 └─▶ fewer                          ─▶ it waits
"""

from dataclasses import replace
from typing import Any

from apps.clusters.models import Lease
from apps.training.core import placement
from apps.training.core.engine_access import get_backend, resolve_run_locations
from apps.training.models import Task
from apps.training.states import FINAL_STATES, TaskState
from fermi.jobs import elastic
from fermi.jobs.spec import JobSpec, Node
from fermi.planning import elastic_sizes, validate

STATUS_HELD = "held"
STATUS_FREE = "free"


def resize_task(task: Task) -> bool:
    """Give the task the nodes that are available now, in one transaction; return False if it has them already, or there
    are too few. Only between attempts. The pre-flight test before the first attempt covers all nodes, so that attempt
    waits for all."""
    before = JobSpec.from_json(task.spec)
    if not task.attempt and before.preflight != "off":
        return False
    why = list_unavailable_nodes(task, before)
    after = _find_best_job(task, before, why)
    if after is None or (_get_node_ids(after), after.master) == (_get_node_ids(before), before.master):
        return False
    return placement.apply_placement(task, after, _build_events(before, after, why))


def find_larger_job(task: Task) -> JobSpec | None:
    """Return the job as it would run if it were resized now, if that is with more processes; otherwise None."""
    job = JobSpec.from_json(task.spec)
    found = _find_best_job(task, job, list_unavailable_nodes(task, job))
    return found if found and found.world_size > job.world_size else None


def find_reduced_job(task: Task, job: JobSpec) -> JobSpec | None:
    """Return the job as it would run now without the nodes that it leaves out; None if it could not run."""
    return _find_best_job(task, job, list_unavailable_nodes(task, job))


def list_unavailable_nodes(task: Task, job: JobSpec) -> dict[str, dict[str, str]]:
    """Return why each chosen node is not available to the task now, by node id: its status, or the task that holds
    it."""
    if job.elastic is None:
        return {}
    ids = [node.id for node in job.elastic.nodes]
    others = Lease.objects.filter(environment__in=ids).exclude(holder=task.pk)
    held = {key: {"status": STATUS_HELD, "task": by} for key, by in others.values_list("environment_id", "holder")}
    return held | {
        key: {"status": status}
        for key, status in placement.find_unusable_nodes(job.elastic.nodes, job.left_out).items()
    }


def serialize_elastic(task: Task, job: JobSpec) -> dict[str, Any] | None:
    """Return the sizes of an elastic task for its page; None if it is not elastic."""
    asked = job.elastic
    if asked is None or not asked.world_size:
        return None
    why, present, goes_on = (
        list_unavailable_nodes(task, job),
        _get_node_ids(job),
        TaskState(task.state) not in FINAL_STATES,
    )
    missing = [node for node in asked.nodes if node.id not in present]
    best = _find_best_job(task, job, why) if missing and goes_on else None
    share = elastic.divide_job_batch(job)
    return {
        "minNodes": asked.min_nodes,
        "maxNodes": asked.max_nodes,
        "nodes": len(job.nodes),
        "sizes": elastic_sizes.list_sizes(job),
        "globalBatchSize": asked.batch or None,
        "accumulationSteps": share.steps if share else None,
        "largest": len(best.nodes) if best and best.world_size > job.world_size else len(job.nodes),
        "resizing": goes_on and task.resize_requested_at is not None,
        "away": [
            {"environmentId": node.id, "name": node.name, "taskId": None, "status": STATUS_FREE}
            | {{"task": "taskId"}.get(key, key): value for key, value in why.get(node.id, {}).items()}
            for node in missing
        ],
    }


def _find_best_job(task: Task, job: JobSpec, unavailable: dict[str, Any]) -> JobSpec | None:
    """Return the job on the largest usable set of nodes that passes all checks; None if there is none."""
    if job.elastic is None or not job.elastic.world_size:
        return None
    usable, backend = {node.id for node in job.elastic.nodes} - unavailable.keys(), get_backend(task.cluster)
    for found in elastic_sizes.list_resized_jobs(job, usable):
        checked = replace(found, resume_from="")  # where it goes on from has nothing to do with where it runs
        checked, impossible = resolve_run_locations(task.cluster, checked)
        if not (impossible or validate.find_problems(checked) or backend.problems(checked)):
            return found
    return None


def _build_events(
    before: JobSpec, after: JobSpec, unavailable: dict[str, dict[str, str]]
) -> list[tuple[str, dict[str, Any]]]:
    """Return the events, as (code, params), that describe a change of size."""
    assert after.elastic is not None
    gone, come = _list_nodes_not_in(before, after), _list_nodes_not_in(after, before)
    share = elastic.divide_job_batch(after)
    params = {
        "nodes": len(after.nodes),
        "before": len(before.nodes),
        "all": after.elastic.max_nodes,
        "worldSize": after.world_size,
        "master": after.head.name,
        **({"batch": after.elastic.batch, "steps": share.steps} if share else {}),
    }
    return [
        *(
            ("ENVIRONMENT_LEFT", {"environment": node.name, **unavailable.get(node.id, {"status": STATUS_FREE})})
            for node in gone
        ),
        *(("ENVIRONMENT_JOINED", {"environment": node.name}) for node in come),
        *(
            [("MASTER_ELECTED", {"environment": after.head.name, "before": before.head.name})]
            if after.master != before.master
            else []
        ),
        ("RESIZED", params),
    ]


def _list_nodes_not_in(job: JobSpec, other: JobSpec) -> list[Node]:
    return [node for node in job.nodes if node.id not in _get_node_ids(other)]


def _get_node_ids(job: JobSpec) -> set[str]:
    return {node.id for node in job.nodes}
