"""How an environment is reached: the engine that runs it, and a stream to its environment daemon (envd)."""

import socket

from apps.clusters import selectors
from apps.clusters.models import Cluster, DevEnvironment
from apps.environments.models import Hosted
from fermi.engines.environments import HostedHandle, Hosting
from fermi.jobs.errors import BackendError
from fermi.planning import plugins


def hosting_of(cluster: Cluster) -> Hosting | None:
    """Return the engine's backend for environments, or None if the engine creates none."""
    return plugins.hosting(cluster.backend, selectors.connection(cluster))


def handle_of(environment: DevEnvironment) -> HostedHandle:
    """Return the handle of the present run; an environment that was registered by hand always has run 0."""
    run = Hosted.objects.filter(pk=environment.pk).values_list("run", flat=True).first()
    return HostedHandle(environment.pk, run or 0)


def hands_over(environment: DevEnvironment) -> bool:
    """Return True if the environment's daemon, once connected, can pass a socket."""
    hosting = hosting_of(environment.cluster)
    return hosting is not None and hosting.hands_over


def dial(environment: DevEnvironment) -> socket.socket:
    """Return a stream to the environment's daemon; load the environment with its cluster. Blocks, so call it in a
    thread. Raises BackendError if the daemon does not answer."""
    hosting = hosting_of(environment.cluster)
    if hosting is None:
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=environment.cluster.backend)
    return hosting.dial(handle_of(environment))
