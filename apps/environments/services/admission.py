"""What an environment needs before a run may start: room within limits, and GPUs where they are assigned by index."""

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment
from apps.common.errors import ProblemsError
from apps.environments import gpu_allocation, quota
from apps.environments.connection import get_environment_backend
from apps.environments.models import Hosted
from fermi.engines.environments import EnvironmentSpec
from fermi.jobs.errors import BackendError


def count_host_gpus(environment: DevEnvironment, spec: EnvironmentSpec) -> int | None:
    """Return how many GPUs the environment's host assigns by index; load the environment with its cluster. Asks the
    engine. Raises BackendError."""
    hosting = get_environment_backend(environment.cluster)
    if hosting is None:
        backend = environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    return gpu_allocation.count_host_gpus(hosting, spec)


def check_admission(project: Project, owner: User | None, new_environments: int, gpu_count: int) -> None:
    """Check the limits, in a transaction and before anything is stored; calls for one project wait for each other, so
    that no limit is exceeded. Raises ProblemsError."""
    list(Project.objects.select_for_update().filter(pk=project.pk).values_list("pk"))
    if over := quota.check_quota(project, owner, new_environments, gpu_count):
        raise ProblemsError(over)


def assign_gpus(hosted: Hosted, cluster: str, spec: EnvironmentSpec, host_gpus: int | None) -> list[int]:
    """Reserve the GPUs and return their indexes, which are stored in the spec and the environment. Raises ProblemsError
    if others hold them."""
    try:
        return gpu_allocation.assign_gpus(hosted, cluster, spec, host_gpus)
    except gpu_allocation.GpusTakenError as taken:
        raise ProblemsError([taken.problem]) from None
