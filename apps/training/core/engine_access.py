"""From a stored task to what the launch toolkit understands: the job of an attempt, its handle, its cluster's
backend, and what follows from the causes that its engine gives."""

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
    return plugins.backend(cluster.backend, selectors.connection(cluster))


def has_queue(cluster: Cluster) -> bool:
    """Whether its engine has a queue of its own. Of one that cannot be connected to any more: it does not."""
    try:
        return backend_for(cluster).queues
    except (BackendError, UnknownName):
        return False


def engine_decides(task: Task) -> bool:
    """Whether its engine's own queue decides when it begins, and not ours. Where ranks run inside of environments,
    those are what it waits for, and only ours knows who has them; what else runs beside waits in the engine's then."""
    return not task.inside and has_queue(task.cluster)


def clusters_that_decide() -> list[str]:
    """Those whose engines have queues of their own, by id."""
    return [cluster.pk for cluster in Cluster.objects.all() if has_queue(cluster)]


def decided_by_engines(clusters: Collection[str]) -> QuerySet[Task]:
    """Their tasks of which that is so. `clusters`: those that decide."""
    return Task.objects.filter(cluster__in=clusters, inside=False)


def settled(cluster: Cluster, job: JobSpec) -> tuple[JobSpec, list[Problem]]:
    """Returns the job with the way of each of its nodes, and what is wrong where none is possible."""
    return run_location.settle(job, backend_for(cluster).ways(job))


def declared(cluster: Cluster, code: str) -> Cause | None:
    """What the platform, or the cluster's engine, declares of a cause."""
    return CAUSES.get(code) or plugins.causes(cluster.backend).get(code)


def cause(cluster: Cluster, code: str, params: Mapping[str, Any] | None = None) -> Cause:
    """With what is declared of it. From a code that nobody declares (any more) nothing follows: no restart."""
    return replace(declared(cluster, code) or Cause(""), code=code, params=params or {})


def job_for(task: Task, spec: JobSpec, attempt: Attempt, remaining: timedelta | None) -> JobSpec:
    """`spec`: the task's job, with the way of each node; `remaining`: how long the task may still hold its
    environments."""
    job = spec.for_attempt(attempt.number, master_port=attempt.master_port, resume_from=attempt.resume_from)
    max_run = None if remaining is None else remaining.total_seconds()
    env = {**job.env, **trace_context.variables(task, attempt.number, {**job.env, **job.secret_env})}
    return seen_from(task.cluster, replace(job, max_run=max_run, env=env))


def seen_from(cluster: Cluster, job: JobSpec) -> JobSpec:
    """The job with its paths as the cluster has them: what a plan is made from."""
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
    """By name, each of them: what cannot be told is UNKNOWN and says why. An attempt that an engine stumbles over hides
    no other: the rest are asked for without it. Raises only what the database does."""
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
    failed, waits = seen.cause, seen.waiting
    failed = failed and cause(cluster, failed.code, failed.params)
    return replace(seen, cause=failed, waiting=waits and cause(cluster, waits.code, waits.params))


def secrets_of(task: Task) -> dict[str, str]:
    """What the task's `secretEnv` names, as it is now, by variable. Raises vault.Unavailable."""
    return secrets.reveal(task.project_id, task.spec.get("secret_env") or {})


def handle_for(task: Task, attempt: int) -> Handle:
    return Handle(attempt_name(task.pk, attempt), task.pk, attempt, task.world_size)


def stand_by() -> None:
    """Has every cluster get ready for a task of the default framework."""
    preload = plugins.framework(plugins.DEFAULT).preload
    for cluster in Cluster.objects.all():
        backend_for(cluster).stand_by(preload)
    connection.close()
