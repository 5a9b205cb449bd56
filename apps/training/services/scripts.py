"""Exports a task as a folder of scripts that users start by hand."""

from dataclasses import replace

from django.conf import settings

from apps.accounts.models import User
from apps.common.errors import ProblemsError
from apps.training.core import checkpoint_choice, redaction
from apps.training.core.engine_access import fit_job_to_cluster, get_backend
from apps.training.models import Task
from fermi import export
from fermi.jobs import credentials
from fermi.jobs.spec import JobSpec


def build_script_archive(
    user: User, task: Task, target: str, lang: str, master_port: int | None = None
) -> tuple[str, bytes]:
    """Return the file's name and a .tar.gz: the task as its newest attempt runs, resuming from where it is now. Raises
    UnknownName for an unknown target, ProblemsError for a target that cannot start this task."""
    spec = JobSpec.from_json(task.spec)
    newest = task.attempts.order_by("-number").first()
    port = master_port or (newest.master_port if newest else spec.master_port)
    job = spec.for_attempt(
        max(task.attempt, 1), master_port=port, resume_from=checkpoint_choice.choose_resume_path(task)[0]
    )
    job = replace(fit_job_to_cluster(task.cluster, job), project=str(task.project_id), project_name=task.project.name)
    if get_backend(task.cluster).is_local:  # whatever address an environment is said to have, it is this machine
        job = replace(job, nodes=tuple(replace(node, ip="127.0.0.1") for node in job.nodes))
    job = replace(
        job,
        env={
            **job.env,
            **dict.fromkeys(redaction.find_hidden_variables(task.request, task.project_id, user), credentials.MASK),
        },
    )
    if found := export.find_problems(job, target):
        raise ProblemsError(found)
    own = task.cluster.connection if task.cluster.backend == target else {}
    connection = {"data_dir": str(settings.DATA_DIR), **own}
    name = f"{job.name}-{target}"
    return f"{name}.tar.gz", export.build_archive(name, export.render_files(job, target, lang, connection))
