"""From a stored task to what the launch toolkit understands: the job of an attempt, its handle, its cluster's
backend."""

from dataclasses import replace

from django.db import connection

from apps.accounts import vault
from apps.clusters import paths, selectors
from apps.clusters.models import Cluster
from apps.training.models import Attempt, Task
from fermi.launch import registry
from fermi.launch.backends.base import Backend
from fermi.launch.spec import Handle, JobSpec


def backend_for(cluster: Cluster) -> Backend:
    return registry.backend(cluster.backend, selectors.connection(cluster))


def job_for(task: Task, attempt: Attempt) -> JobSpec:
    spec = JobSpec.from_json(task.spec)
    job = spec.for_attempt(attempt.number, master_port=attempt.master_port, resume_from=attempt.resume_from)
    return seen_from(task.cluster, job)


def seen_from(cluster: Cluster, job: JobSpec) -> JobSpec:
    """The job with its paths as the cluster has them: what a plan is made from."""
    return replace(
        job,
        train_data=paths.there(cluster, job.train_data),
        valid_data=paths.there(cluster, job.valid_data),
        checkpoint_dir=paths.there(cluster, job.checkpoint_dir),
        resume_from=paths.there(cluster, job.resume_from),
    )


def secrets_of(task: Task) -> dict[str, str]:
    """What the task's `secretEnv` names, as it is now, by variable. Raises vault.Unavailable."""
    return vault.reveal(task.project_id, task.spec.get("secret_env") or {})


def handle_for(task: Task, attempt: int) -> Handle:
    return Handle(f"{task.pk}-{attempt}", task.pk, attempt, task.world_size)


def stand_by() -> None:
    """Has every cluster get ready for a task of the default framework."""
    preload = registry.framework("pytorch-ddp").PRELOAD
    for cluster in Cluster.objects.all():
        backend_for(cluster).stand_by(preload)
    connection.close()
