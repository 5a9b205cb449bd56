"""How an environment is reached: the engine that runs it, and a stream to its environment daemon (envd)."""

import socket

from apps.clusters import selectors
from apps.clusters.models import Cluster, DevEnvironment
from apps.environments.models import Hosted
from fermi.engines.environments import EnvironmentBackend, EnvironmentHandle
from fermi.jobs.errors import BackendError
from fermi.planning import plugins


def get_environment_backend(cluster: Cluster) -> EnvironmentBackend | None:
    """Return the engine's backend for environments, or None if the engine creates none."""
    return plugins.get_environment_backend(cluster.backend, selectors.build_connection(cluster))


def get_handle(environment: DevEnvironment) -> EnvironmentHandle:
    """Return the handle of the present run; an environment that was registered by hand always has run 0."""
    run = Hosted.objects.filter(pk=environment.pk).values_list("run", flat=True).first()
    return EnvironmentHandle(environment.pk, run or 0)


def can_pass_socket(environment: DevEnvironment) -> bool:
    """Return True if the environment's daemon, once connected, can pass a socket."""
    hosting = get_environment_backend(environment.cluster)
    return hosting is not None and hosting.hands_over


def dial_envd(environment: DevEnvironment) -> socket.socket:
    """Return a stream to the environment's daemon; load the environment with its cluster. Blocks, so call it in a
    thread. Raises BackendError if the daemon does not answer."""
    hosting = get_environment_backend(environment.cluster)
    if hosting is None:
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=environment.cluster.backend)
    return hosting.dial(get_handle(environment))


def read_logs(environment: DevEnvironment, cursor: int, limit: int) -> dict[str, object]:
    """Return the text from byte `cursor` on (negative: so many bytes before the present end). A character whose bytes
    are incomplete is left to the next page. Load the environment with its cluster. Raises BackendError."""
    hosting = get_environment_backend(environment.cluster)
    if hosting is None:
        backend = environment.cluster.backend
        raise BackendError("ENVIRONMENTS_NOT_MADE_HERE", permanent=True, backend=backend)
    handle = get_handle(environment)
    if handle.run == 0:
        return {"text": "", "cursor": 0, "end": True}
    chunk = hosting.logs(handle, cursor, limit)
    kept = chunk.data[: len(chunk.data) - _count_unfinished_bytes(chunk.data)]
    cursor = chunk.cursor - (len(chunk.data) - len(kept))
    return {"text": kept.decode("utf-8", "replace"), "cursor": cursor, "end": chunk.end}


def _count_unfinished_bytes(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character; 0 if there is nothing before them."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start:
            return len(data) - error.start
    return 0
