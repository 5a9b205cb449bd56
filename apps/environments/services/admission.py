"""What an environment needs before a run of it may begin: room within limits, and GPUs where they are given out by
number."""

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment
from apps.common.errors import ProblemsError
from apps.environments import gpu_allocation, quota
from apps.environments.connection import hosting_of
from apps.environments.models import Hosted
from fermi.engines.environments import HostedSpec
from fermi.jobs.errors import BackendError


def there(environment: DevEnvironment, spec: HostedSpec) -> int | None:
    """GPUs that its host gives out by number; load the environment with its cluster. Asks the engine."""
    hosting = hosting_of(environment.cluster)
    if hosting is None:
        backend = environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    return gpu_allocation.there(hosting, spec)


def admit(project: Project, owner: User | None, more: int, gpu_count: int) -> None:
    """To be called in a transaction, before anything is stored: whoever makes or starts environments of one project
    does so one after another, so that no limit is passed. Raises ProblemsError."""
    list(Project.objects.select_for_update().filter(pk=project.pk).values_list("pk"))
    if over := quota.problems(project, owner, more, gpu_count):
        raise ProblemsError(over)


def hold(hosted: Hosted, cluster: str, spec: HostedSpec, there: int | None) -> list[int]:
    """The numbers of the GPUs it gets, noted in its spec and on the environment. Raises ProblemsError where others have
    them."""
    try:
        return gpu_allocation.hold(hosted, cluster, spec, there)
    except gpu_allocation.Taken as taken:
        raise ProblemsError([taken.problem]) from None
