"""Output of an environment's newest run."""

from apps.clusters.models import DevEnvironment
from apps.environments.connection import get_environment_backend, get_handle
from fermi.jobs.errors import BackendError


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
