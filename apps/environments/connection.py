"""How an environment is reached: which engine keeps it, and a stream to its keeper."""

import socket

from apps.clusters import selectors
from apps.clusters.models import Cluster, DevEnvironment
from apps.environments.models import Hosted
from fermi.engines.environments import HostedHandle, Hosting
from fermi.jobs.errors import BackendError
from fermi.planning import plugins


def hosting_of(cluster: Cluster) -> Hosting | None:
    """None where its engine makes no environments."""
    return plugins.hosting(cluster.backend, selectors.connection(cluster))


def handle_of(environment: DevEnvironment) -> HostedHandle:
    """Of its present run; one that was registered by hand has run 0 for ever."""
    run = Hosted.objects.filter(pk=environment.pk).values_list("run", flat=True).first()
    return HostedHandle(environment.pk, run or 0)


def hands_over(environment: DevEnvironment) -> bool:
    """Whether its keeper, once dialled, can hand over a connection."""
    hosting = hosting_of(environment.cluster)
    return hosting is not None and hosting.hands_over


def dial(environment: DevEnvironment) -> socket.socket:
    """A stream to its keeper; load the environment with its cluster. Blocks: to be called in a thread. Raises
    BackendError when nobody answers."""
    hosting = hosting_of(environment.cluster)
    if hosting is None:
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=environment.cluster.backend)
    return hosting.dial(handle_of(environment))
