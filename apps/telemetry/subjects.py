"""Subjects of series, as blocks name them: an environment (its GPUs, and its node's values if these are its own), the
host of a cluster (the node of all environments of a cluster on this machine), a worker, or a task (what its ranks use).
"""

from collections.abc import Iterable


def environment(key: str) -> str:
    return f"env:{key}"


def environments(keys: Iterable[str]) -> list[str]:
    return [environment(key) for key in keys]


def host(cluster: str) -> str:
    return f"host:{cluster}"


def worker(key: str) -> str:
    return f"worker:{key}"


def task(key: str) -> str:
    return f"task:{key}"


def key_of(subject: str) -> str:
    """Return the id in a subject."""
    return subject.partition(":")[2]
