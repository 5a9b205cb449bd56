"""Translates stored tasks for the engines: the job of an attempt, its handle, its cluster's backend, and what follows
from the causes that its engine reports."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import Error as AnyDatabaseError
from django.db import connection
from django.db.models import QuerySet

from apps.accounts import secrets
from apps.clusters import paths, reachability, selectors
from apps.clusters.models import Cluster
from apps.training.core import trace_context
from apps.training.models import Attempt, Task
from apps.training.states.reasons import CAUSES, Reason
from fermi.engines.base import Backend
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import Cause, Handle, JobSpec, Observation, Phase, Problem, attempt_name
from fermi.planning import plugins

log = logging.getLogger(__name__)

UNKNOWN = Observation(Phase.UNKNOWN)


def backend_for(cluster: Cluster) -> Backend:
    """Return the backend of `cluster`. Raises BackendError and UnknownName."""
    return plugins.backend(cluster.backend, selectors.connection(cluster))


def has_queue(cluster: Cluster) -> bool:
    """Return True if the cluster's engine has its own queue; False also for a cluster that can no longer be connected
    to."""
    try:
        return backend_for(cluster).queues
    except (BackendError, UnknownName):
        return False


def engine_decides(task: Task) -> bool:
    """Return True if the engine's own queue decides when the task starts. Tasks whose ranks run inside environments
    wait for those environments, which only the platform's queue assigns; whatever else of them runs beside the
    environments then waits in the engine's queue."""
    return not task.inside and has_queue(task.cluster)


def clusters_that_decide() -> list[str]:
    """Return the ids of clusters whose engines have their own queues."""
    return [cluster.pk for cluster in Cluster.objects.all() if has_queue(cluster)]


def decided_by_engines(clusters: Collection[str]) -> QuerySet[Task]:
    """Return the tasks that are scheduled by the engines of `clusters`, which have their own queues."""
    return Task.objects.filter(cluster__in=clusters, inside=False)


def settled(cluster: Cluster, job: JobSpec) -> tuple[JobSpec, list[Problem]]:
    """Return the job with the run location (inside or beside the environment) of each node, and the problems of nodes
    for which no location is possible."""
    return run_location.settle(job, backend_for(cluster).ways(job))


def declared(cluster: Cluster, code: str) -> Cause | None:
    """Return what the platform, or the cluster's engine, declares of a cause code; None if it is not declared."""
    return CAUSES.get(code) or plugins.causes(cluster.backend).get(code)


def cause(cluster: Cluster, code: str, params: Mapping[str, Any] | None = None) -> Cause:
    """Return the cause with what is declared of it. From a code that is not declared (any more) nothing follows, not
    even a restart."""
    return replace(declared(cluster, code) or Cause(""), code=code, params=params or {})


def job_for(task: Task, spec: JobSpec, attempt: Attempt, remaining: timedelta | None) -> JobSpec:
    """Return the job of an attempt, as the cluster sees it. `spec`: the task's job with the run location of each node;
    `remaining`: how long the task may still hold its environments."""
    job = spec.for_attempt(attempt.number, master_port=attempt.master_port, resume_from=attempt.resume_from)
    max_run = None if remaining is None else remaining.total_seconds()
    env = {**job.env, **trace_context.variables(task, attempt.number, {**job.env, **job.secret_env})}
    return seen_from(task.cluster, replace(job, max_run=max_run, env=env))


def seen_from(cluster: Cluster, job: JobSpec) -> JobSpec:
    """Return the job with its paths as the cluster mounts them; plans are made from this job."""
    code = job.code and replace(job.code, folder=paths.there(cluster, job.code.folder))
    return replace(
        job,
        code=code,
        train_data=paths.there(cluster, job.train_data),
        valid_data=paths.there(cluster, job.valid_data),
        checkpoint_dir=paths.there(cluster, job.checkpoint_dir),
        output_dir=paths.there(cluster, job.output_dir),
        files_dir=paths.there(cluster, job.files_dir),
        resume_from=paths.there(cluster, job.resume_from),
    )


def observe(cluster: Cluster, handles: Sequence[Handle]) -> dict[str, Observation]:
    """Return the observation of each handle by name; those that cannot be observed are UNKNOWN and say why.

    If the backend fails unexpectedly, the handles are halved and asked for again, so that one attempt that it cannot
    read does not hide the others. Raises only database errors.
    """
    try:
        seen = backend_for(cluster).observe(handles)
        reachability.found(cluster)
        return {handle.name: _with_declared(cluster, seen.get(handle.name, UNKNOWN)) for handle in handles}
    except AnyDatabaseError:
        raise
    except BackendError as error:
        log.warning("cluster %s cannot be asked: %s", cluster, error)
        reachability.lost(cluster, error)
        waiting = Cause(error.code, error.params)
    except Exception as error:
        if len(handles) > 1:
            half = len(handles) // 2
            return observe(cluster, handles[:half]) | observe(cluster, handles[half:])
        names = ", ".join(handle.name for handle in handles)
        log.exception("what cluster %s has of %s cannot be understood", cluster, names)
        waiting = Cause(Reason.ATTEMPT_UNREADABLE, {"attempt": names, "why": f"{type(error).__name__}: {error}"[:300]})
    return {handle.name: Observation(Phase.UNKNOWN, waiting=waiting) for handle in handles}


def _with_declared(cluster: Cluster, seen: Observation) -> Observation:
    """Return the observation with the declared properties of its causes."""
    failed, waits = seen.cause, seen.waiting
    failed = failed and cause(cluster, failed.code, failed.params)
    return replace(seen, cause=failed, waiting=waits and cause(cluster, waits.code, waits.params))


def secrets_of(task: Task) -> dict[str, str]:
    """Return the current values of the task's `secretEnv`, by variable. Raises an error of `apps.accounts.secrets` if a
    value is not available."""
    return secrets.reveal(task.project_id, task.spec.get("secret_env") or {})


def handle_for(task: Task, attempt: int) -> Handle:
    """Return the handle of an attempt of the task."""
    return Handle(attempt_name(task.pk, attempt), task.pk, attempt, task.world_size)


def stand_by() -> None:
    """Have every cluster prepare for a task of the default framework (Backend.stand_by)."""
    preload = plugins.framework(plugins.DEFAULT).preload
    for cluster in Cluster.objects.all():
        backend_for(cluster).stand_by(preload)
    connection.close()
