"""What an environment needs before a run may start: room within limits, and GPUs where they are assigned by index."""

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment
from apps.common.errors import ProblemsError
from apps.environments import gpu_allocation, quota
from apps.environments.connection import hosting_of
from apps.environments.models import Hosted
from fermi.engines.environments import HostedSpec
from fermi.jobs.errors import BackendError


def there(environment: DevEnvironment, spec: HostedSpec) -> int | None:
    """Return how many GPUs the environment's host assigns by index; load the environment with its cluster. Asks the
    engine. Raises BackendError."""
    hosting = hosting_of(environment.cluster)
    if hosting is None:
        backend = environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    return gpu_allocation.there(hosting, spec)


def admit(project: Project, owner: User | None, more: int, gpu_count: int) -> None:
    """Check the limits, in a transaction and before anything is stored; calls for one project wait for each other, so
    that no limit is exceeded. Raises ProblemsError."""
    list(Project.objects.select_for_update().filter(pk=project.pk).values_list("pk"))
    if over := quota.problems(project, owner, more, gpu_count):
        raise ProblemsError(over)


def hold(hosted: Hosted, cluster: str, spec: HostedSpec, there: int | None) -> list[int]:
    """Reserve the GPUs and return their indexes, which are stored in the spec and the environment. Raises ProblemsError
    if others hold them."""
    try:
        return gpu_allocation.hold(hosted, cluster, spec, there)
    except gpu_allocation.Taken as taken:
        raise ProblemsError([taken.problem]) from None
