"""Where the ranks of an attempt find the platform as their MLflow server, and with which token.

A task that names a tracking server of its own keeps it, and gets none of these variables.
"""

from collections.abc import Mapping
from dataclasses import replace

from django.conf import settings

from apps.clusters.models import Cluster
from apps.training.core.run_tokens import make_run_token
from apps.training.models import Task
from apps.training.states import TaskKind
from fermi.jobs.spec import JobSpec

URI_VARIABLE, TOKEN_VARIABLE = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"
PROBE_VARIABLE = "FERMI_MLFLOW_URI"
"""The same address for the probe, which has to know whether a script has set another one (`probe.mlflow_hooks`)."""
OWN_VARIABLES = (URI_VARIABLE, "DATABRICKS_HOST", "DATABRICKS_CONFIG_PROFILE")
"""A task with one of these has a server of its own, or means one."""
PATH = "/mlflow"


def find_platform_address(cluster: Cluster) -> str:
    """Return the address at which ranks of a cluster reach the platform; "" if none is known. Ranks on the platform's
    own machine reach the address at which `make up` serves."""
    if settings.RANKS_URL:
        return str(settings.RANKS_URL)
    if cluster.backend == "local":
        return str(settings.OWN_URL or settings.PUBLIC_URL)
    return "" if cluster.connection.get("offline") else str(settings.PUBLIC_URL)


def uses_platform(cluster: Cluster, kind: str, variables: Mapping[str, str]) -> bool:
    """Return whether the ranks of a task of this kind log to the platform. `variables`: those of the task, with the
    names of its secrets."""
    if kind != TaskKind.TRAINING or any(name in variables for name in OWN_VARIABLES):
        return False
    return bool(find_platform_address(cluster))


def add_tracking_variables(cluster: Cluster, kind: str, job: JobSpec) -> JobSpec:
    """Return the job of a task of this kind with the variables of the tracking server."""
    if not uses_platform(cluster, kind, {**job.env, **job.secret_env}):
        return job
    address = find_platform_address(cluster) + PATH
    env = {URI_VARIABLE: address, PROBE_VARIABLE: address, **job.env}
    return replace(job, env=env, secret_env={TOKEN_VARIABLE: "", **job.secret_env})


def build_tracking_secrets(task: Task) -> dict[str, str]:
    """Return the token of the task's newest attempt as the value of its variable; empty if its ranks need none."""
    variables = {**task.spec.get("env", {}), **task.spec.get("secret_env", {})}
    if not task.attempt or TOKEN_VARIABLE in variables or not uses_platform(task.cluster, task.kind, variables):
        return {}
    return {TOKEN_VARIABLE: make_run_token(task.pk, task.attempt)}
