"""Stores a task and its nodes as rows."""

from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.common.row_bounds import MAX_ROWS, make_limit_error
from apps.common.sql import CompiledQuery, list_columns
from apps.files.services import outputs
from apps.training import models
from apps.training.core import code, parameters, wakeups
from apps.training.core.engine_access import is_scheduled_by_engine
from apps.training.models import Task
from apps.training.states import ACTIVE_STATES, TaskKind, TaskState
from apps.training.states.deadlines import DEADLINES
from fermi.jobs import ranks
from fermi.jobs.arguments import list_named_arguments
from fermi.jobs.spec import JobSpec, Node
from fermi.metrics.parameters import REQUEST, ParameterValue, flatten_parameters
from fermi.planning import summary
from fermi.planning.request import TaskRequest
from fermi.scheduler.snapshot import Select
from fermi.schema import serialization

DAY = timedelta(days=1)
INITIAL_STATES = {
    TaskKind.TRAINING: TaskState.INITIALIZING,
    TaskKind.PREFLIGHT: TaskState.QUEUED,
    TaskKind.DRILL: TaskState.INITIALIZING,
}

_ACTIVE_TASKS = CompiledQuery(
    lambda high, /, owner, kind, since: Task.objects.filter(
        owner=owner, kind=kind, created_at__gt=since, state__in=ACTIVE_STATES
    ).order_by()[high - 1 : high],
    list_columns(Task, "pk"),
)
"""The last task that an owner may have, if there are as many."""


@transaction.atomic(savepoint=False)
def store_task(job: JobSpec, owner: User, cluster: Cluster, kind: TaskKind = TaskKind.TRAINING, **own: Any) -> Task:
    """Store a new task with its nodes and return it; it is processed once that is committed. `own`: further columns.
    Raises ProblemsError if its code is gone, and ApiError 409 if the owner has too many active tasks."""
    moment, state, high = now(), INITIAL_STATES[kind], MAX_ROWS["tasks"]
    if high < 1 or _ACTIVE_TASKS.first(high, owner=owner.pk, kind=kind.value, since=moment - DAY):
        raise make_limit_error("tasks")
    job = code.request_code(job, owner)
    task = Task(
        id=job.task_id,
        kind=kind,
        project_id=job.project,
        owner=owner,
        cluster=cluster,
        framework=job.framework,
        **build_job_columns(job, kind),
        state=state,
        state_since=moment,
        due_at=moment,
        deadline_at=moment + DEADLINES[state],
        created_at=moment,
        **own,
    )
    task.save(force_insert=True)
    if kind is TaskKind.TRAINING:
        outputs.create_outputs(task.pk, task.project_id)
        parameters.store_parameters(task.pk, _list_parameters(job), REQUEST, is_new=True)
    if task.select is None or is_scheduled_by_engine(task):
        store_nodes(task, job)  # of what asks for capacity, they are known when its turn comes
    wakeups.enqueue_due_task(task.pk)
    return task


def _list_parameters(job: JobSpec) -> dict[str, ParameterValue]:
    """Return what the request sets by name: hyperparameters, and arguments of the user's own program."""
    arguments = list_named_arguments(job.entrypoint) if job.entrypoint else {}
    return {**dict(flatten_parameters(arguments)), **dict(flatten_parameters(dict(job.hyperparameters)))}


def build_queue_columns(request: TaskRequest, select: Select | None) -> dict[str, Any]:
    """Return the columns that decide a task's place in the queue."""
    return {
        "priority": request.priority_number,
        "preemptible": request.preemptible,
        "min_run_seconds": request.min_run_seconds,
        "max_run_seconds": request.max_run_seconds,
        "select": None if select is None else serialization.dump(select),
    }


def build_job_columns(job: JobSpec, kind: TaskKind = TaskKind.TRAINING) -> dict[str, Any]:
    """Return the columns that describe a task's job."""
    totals = summary.summarize_nodes(job.nodes)
    return {
        "distributed": len(job.nodes) > 1,
        "node_count": len(job.nodes),
        "total_gpus": totals["totalGpus"],
        "world_size": sum(count_processes(kind, node) for node in job.nodes),
        "master": job.master,
        "max_restarts": job.max_restarts,
        "inside": has_inside_ranks(job),
        "spec": job.to_json(),
        "total_steps": _parse_steps(job.hyperparameters.get("totalSteps")),
        "summary": {name: totals[name] for name in ("totalCpus", "totalMemoryGb", "gpuTypes", "zones", "crossZone")},
    }


def has_inside_ranks(job: JobSpec) -> bool:
    """Return True if any of the job's ranks run inside of an environment."""
    return any(node.inside for node in job.nodes)


def _parse_steps(value: Any) -> int | None:
    """Return the number of steps if it is one; a script's own hyperparameters may hold anything."""
    return value if isinstance(value, int) and 0 <= value < 2**63 else None


def store_nodes(task: Task, job: JobSpec) -> None:
    """Store the task's nodes by node rank."""
    models.Node.objects.bulk_create(
        models.Node(
            task=task,
            node_rank=at.node_rank,
            environment_id=at.node.id,
            name=at.node.name,
            zone=at.node.zone,
            gpu_type=at.node.gpu_type,
            processes=count_processes(TaskKind(task.kind), at.node),
        )
        for at in ranks.place_nodes(job.nodes, job.master)
    )


def count_processes(kind: TaskKind, node: Node) -> int:
    """Return the number of ranks on a node; a pre-flight test has one on each node, whatever its GPUs."""
    return 1 if kind is TaskKind.PREFLIGHT else node.processes
