"""Subjects of series, as blocks name them: an environment (its GPUs, and its node's values if these are its own), the
host of a cluster (the node of all environments of a cluster on this machine), a worker, or a task (what its ranks use).
"""

from collections.abc import Iterable


def make_environment_subject(key: str) -> str:
    return f"env:{key}"


def make_environment_subjects(keys: Iterable[str]) -> list[str]:
    return [make_environment_subject(key) for key in keys]


def make_host_subject(cluster: str) -> str:
    return f"host:{cluster}"


def make_worker_subject(key: str) -> str:
    return f"worker:{key}"


def make_task_subject(key: str) -> str:
    return f"task:{key}"


def get_subject_id(subject: str) -> str:
    """Return the id in a subject."""
    return subject.partition(":")[2]
