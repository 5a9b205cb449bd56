"""Translates stored tasks for the engines: the job of an attempt, its handle, its cluster's backend, and what follows
from the causes that its engine reports."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import Error as AnyDatabaseError
from django.db import connection
from django.db.models import QuerySet

from apps.accounts import secrets
from apps.clusters import paths, selectors
from apps.clusters.models import Cluster
from apps.clusters.services import record_reachable, record_unreachable
from apps.training.core import trace_context
from apps.training.core.tracking_server import add_tracking_variables, build_tracking_secrets
from apps.training.models import Attempt, Task
from apps.training.states.reasons import CAUSES, TaskReason
from fermi.engines.base import Backend
from fermi.jobs import run_location
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import Cause, Handle, JobSpec, Observation, Phase, Problem
from fermi.planning import plugins
from fermi.runner.run_names import build_run_name

log = logging.getLogger(__name__)

UNKNOWN_OBSERVATION = Observation(Phase.UNKNOWN)


def get_backend(cluster: Cluster) -> Backend:
    """Return the backend of `cluster`. Raises BackendError and UnknownName."""
    return plugins.get_backend(cluster.backend, selectors.build_connection(cluster))


def has_own_queue(cluster: Cluster) -> bool:
    """Return True if the cluster's engine has its own queue; False also for a cluster that can no longer be connected
    to."""
    try:
        return get_backend(cluster).queues
    except (BackendError, UnknownNameError):
        return False


def is_scheduled_by_engine(task: Task) -> bool:
    """Return True if the engine's own queue decides when the task starts. Tasks whose ranks run inside environments
    wait for those environments, which only the platform's queue assigns; whatever else of them runs beside the
    environments then waits in the engine's queue."""
    return not task.inside and has_own_queue(task.cluster)


def list_clusters_with_queue() -> list[str]:
    """Return the ids of clusters whose engines have their own queues."""
    return [cluster.pk for cluster in Cluster.objects.all() if has_own_queue(cluster)]


def filter_engine_scheduled(clusters: Collection[str]) -> QuerySet[Task]:
    """Return the tasks that are scheduled by the engines of `clusters`, which have their own queues."""
    return Task.objects.filter(cluster__in=clusters, inside=False)


def resolve_run_locations(cluster: Cluster, job: JobSpec) -> tuple[JobSpec, list[Problem]]:
    """Return the job with the run location (inside or beside the environment) of each node, and the problems of nodes
    for which no location is possible."""
    return run_location.choose_run_locations(job, get_backend(cluster).find_run_locations(job))


def find_declared_cause(cluster: Cluster, code: str) -> Cause | None:
    """Return what the platform, or the cluster's engine, declares of a cause code; None if it is not declared."""
    return CAUSES.get(code) or plugins.get_causes(cluster.backend).get(code)


def build_cause(cluster: Cluster, code: str, params: Mapping[str, Any] | None = None) -> Cause:
    """Return the cause with what is declared of it. From a code that is not declared (any more) nothing follows, not
    even a restart."""
    return replace(find_declared_cause(cluster, code) or Cause(""), code=code, params=params or {})


OFFLINE_VARIABLES = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
"""Read by huggingface_hub (https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables), by
older releases of transformers, and by datasets."""


def build_attempt_job(task: Task, spec: JobSpec, attempt: Attempt, remaining: timedelta | None) -> JobSpec:
    """Return the job of an attempt, as the cluster sees it. `spec`: the task's job with the run location of each node;
    `remaining`: how long the task may still hold its environments."""
    job = spec.for_attempt(
        attempt.number, master_port=attempt.master_port, resume_from=attempt.resume_from,
        resume_step=_find_resume_step(task, attempt.resume_from),
    )  # fmt: skip
    max_run = None if remaining is None else remaining.total_seconds()
    traced = trace_context.build_trace_variables(task, attempt.number, {**job.env, **job.secret_env})
    job = add_tracking_variables(task.cluster, task.kind, job)
    return fit_job_to_cluster(task.cluster, replace(job, max_run=max_run, env={**job.env, **traced}))


def _find_resume_step(task: Task, path: str) -> int | None:
    """Return the step of a checkpoint, for scripts that are told it: that of the task's own, or else the last number in
    its name, 0 without one. None where none is named."""
    if path in ("", "auto"):
        return None
    step = task.checkpoints.filter(path=path).values_list("step", flat=True).first()
    numbers = re.findall(r"\d{1,15}", path.rpartition("/")[2])
    return step if step is not None else int(numbers[-1]) if numbers else 0


def fit_job_to_cluster(cluster: Cluster, job: JobSpec) -> JobSpec:
    """Return the job with its paths as the cluster mounts them, and without a way out if it has none (`offline` of its
    connection): then libraries use what they have cached at once, instead of after minutes of attempts to connect.
    Variables of the job take precedence. Plans are made from this job."""
    code = job.code and replace(job.code, folder=paths.to_cluster_path(cluster, job.code.folder))
    return replace(
        job,
        env={**OFFLINE_VARIABLES, **job.env} if cluster.connection.get("offline") else job.env,
        code=code,
        train_data=paths.to_cluster_path(cluster, job.train_data),
        valid_data=paths.to_cluster_path(cluster, job.valid_data),
        checkpoint_dir=paths.to_cluster_path(cluster, job.checkpoint_dir),
        output_dir=paths.to_cluster_path(cluster, job.output_dir),
        files_dir=paths.to_cluster_path(cluster, job.files_dir),
        resume_from=paths.to_cluster_path(cluster, job.resume_from),
        after_checkpoint=paths.to_cluster_path(cluster, job.after_checkpoint),
        after_outputs=paths.to_cluster_path(cluster, job.after_outputs),
    )


def observe_attempts(cluster: Cluster, handles: Sequence[Handle]) -> dict[str, Observation]:
    """Return the observation of each handle by name; those that cannot be observed are UNKNOWN and say why.

    If the backend fails unexpectedly, the handles are halved and asked for again, so that one attempt that it cannot
    read does not hide the others. Raises only database errors.
    """
    try:
        seen = get_backend(cluster).observe(handles)
        record_reachable(cluster)
        return {
            handle.name: _with_declared_causes(cluster, seen.get(handle.name, UNKNOWN_OBSERVATION))
            for handle in handles
        }
    except AnyDatabaseError:
        raise
    except BackendError as error:
        log.warning("cluster %s cannot be asked: %s", cluster, error)
        record_unreachable(cluster, error)
        waiting = Cause(error.code, error.params)
    except Exception as error:
        if len(handles) > 1:
            half = len(handles) // 2
            return observe_attempts(cluster, handles[:half]) | observe_attempts(cluster, handles[half:])
        names = ", ".join(handle.name for handle in handles)
        log.exception("what cluster %s has of %s cannot be understood", cluster, names)
        waiting = Cause(
            TaskReason.ATTEMPT_UNREADABLE, {"attempt": names, "why": f"{type(error).__name__}: {error}"[:300]}
        )
    return {handle.name: Observation(Phase.UNKNOWN, waiting=waiting) for handle in handles}


def _with_declared_causes(cluster: Cluster, observation: Observation) -> Observation:
    """Return the observation with the declared properties of its causes."""
    failed, waits = observation.cause, observation.waiting
    failed = failed and build_cause(cluster, failed.code, failed.params)
    return replace(observation, cause=failed, waiting=waits and build_cause(cluster, waits.code, waits.params))


def reveal_secrets(task: Task) -> dict[str, str]:
    """Return the current values of the task's `secretEnv`, by variable, and the token with which its ranks log to the
    platform. Raises an error of `apps.accounts.secrets` if a value is not available."""
    values = secrets.reveal_secrets(task.project_id, task.spec.get("secret_env") or {})
    return {**build_tracking_secrets(task), **values}


def build_handle(task: Task, attempt: int) -> Handle:
    """Return the handle of an attempt of the task."""
    return Handle(build_run_name(task.pk, attempt), task.pk, attempt, task.world_size)


def warm_up_clusters() -> None:
    """Have every cluster prepare for a task of the default framework (Backend.stand_by)."""
    preload = plugins.get_framework(plugins.DEFAULT_FRAMEWORK).preload
    for cluster in Cluster.objects.all():
        get_backend(cluster).stand_by(preload)
    connection.close()
