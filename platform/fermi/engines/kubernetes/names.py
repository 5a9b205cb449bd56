"""Names, labels and annotations of our objects."""

import json
from collections.abc import Mapping
from typing import Any

from fermi.runner.run_names import build_run_name, parse_run_name

MANAGED_BY = "app.kubernetes.io/managed-by"
TASK, ATTEMPT, NODE_RANK, PROJECT = "fermi.io/task", "fermi.io/attempt", "fermi.io/node-rank", "fermi.io/project"
SELECTOR = f"{MANAGED_BY}=fermi"

# annotations of the root
NODES, SUCCESS, CODE, SECRETS, CANCELLED, SUBMITTED = (
    "fermi.io/nodes",
    "fermi.io/success",
    "fermi.io/code",  # the snapshot that its nodes prepare before their ranks start
    "fermi.io/secrets",  # a Secret of its name exists
    "fermi.io/cancelled",
    "fermi.io/submitted",
)
POD_NODE_RANKS, INSIDE, STARTED_CONTAINERS, STOP_REQUEST = (
    "fermi.io/node-ranks",  # those of its nodes that have pods of their own, where others run inside of environments
    "fermi.io/inside",  # those that run inside of environments: see `inside.NodeInPod`
    "fermi.io/inside-begun",  # in which container each of these was started
    "fermi.io/end",  # until when they may take to end: {"kill_at": unix seconds, "still": seconds or null}
)
# annotations of a pod
ENVIRONMENT, FIRST_RANK, PROCESSES = "fermi.io/environment", "fermi.io/first-rank", "fermi.io/processes"
OMITTED_MOUNTS = "fermi.io/not-taken-over"  # mounts of the environment

QUEUE, PRIORITY, MAX_RUN = (
    f"kueue.x-k8s.io/{name}" for name in ("queue-name", "priority-class", "max-exec-time-seconds")
)
VARIABLE_OPTIONS = ("queue",)
"""Options of a connection that may differ by project and by priority class."""
CONTAINER = "node"
ENVIRONMENT_ID, RUN_NUMBER = "fermi.io/hosted", "fermi.io/run"
"""Labels of the objects of a dev environment of ours: its id, and the number of the run."""
MODULES = "fermi.io/modules"
"""Label of our modules' ConfigMap, and of all objects that need it: the hash of its content."""
ENVD_TOKEN = "fermi.io/keeper"
"""Annotation of a StatefulSet: the token that clients of its environment daemon send."""
DEV_ENVIRONMENTS = "fermi.io/dev-environment=true"
"""Selector of dev environments where a connection names none."""


def list_namespaces(connection: Mapping[str, Any]) -> list[str]:
    """Return the namespaces that the platform reads: the one in which tasks run first, then those that only have
    environments."""
    found = [connection.get("namespace") or "default", *(connection.get("environmentNamespaces") or ())]
    return list(dict.fromkeys(found))


def get_attempt(obj: Mapping[str, Any]) -> str | None:
    """Return the name of the attempt that an object of ours belongs to; None: to none."""
    labels = obj["metadata"].get("labels") or {}
    return build_run_name(labels[TASK], labels[ATTEMPT]) if TASK in labels and ATTEMPT in labels else None


def get_node_rank(obj: Mapping[str, Any]) -> int:
    """Return the node rank of an object."""
    return int((obj["metadata"].get("labels") or {}).get(NODE_RANK, 0))


def get_ranks(pod: Mapping[str, Any]) -> range:
    """Return the ranks that run in a pod."""
    marks = get_annotations(pod)
    first = int(marks.get(FIRST_RANK, 0))
    return range(first, first + int(marks.get(PROCESSES, 1)))


def build_node_name(attempt: str, node_rank: int) -> str:
    """Return the name of a node's Job."""
    return f"{attempt}-node-{node_rank}"


def get_head(root: Mapping[str, Any]) -> str:
    """Return the name of an attempt's head node where that is a pod of its own, from its ConfigMap."""
    return str(json.loads(root["data"]["job.json"])["head"])


def get_annotations(obj: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of an object."""
    return obj["metadata"].get("annotations") or {}


def build_selector(attempt: str) -> str:
    """Return the label selector of an attempt's objects."""
    return ",".join([SELECTOR, *(f"{label}={value}" for label, value in build_attempt_labels(attempt).items())])


def build_attempt_labels(name: str) -> dict[str, str]:
    """Return the labels of an attempt's objects."""
    return dict(zip((TASK, ATTEMPT), parse_run_name(name), strict=True))


def strip_node_suffix(name: str) -> str:
    """Return the attempt of a Job's or JobSet's name: `task-x-1-node-3` is of `task-x-1`."""
    head, sep, tail = name.rpartition("-node-")
    return head if sep and tail.isdecimal() else name
