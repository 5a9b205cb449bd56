"""Why a task waits, restarted or ended: one enum, and per reason whether another attempt can help.

Texts for people are in `fermi.messages` under the same names.
"""

from enum import StrEnum


class Reason(StrEnum):
    # waiting
    DATASET_PREPARING = "DATASET_PREPARING"
    WAITING_FOR_ENVIRONMENTS = "WAITING_FOR_ENVIRONMENTS"
    ENVIRONMENT_UNAVAILABLE = "ENVIRONMENT_UNAVAILABLE"
    RESTARTING = "RESTARTING"
    PREFLIGHT_RUNNING = "PREFLIGHT_RUNNING"
    # waiting, in the engine's knowledge; when the time to start is over, the end of an attempt
    QUEUE_WAITING = "QUEUE_WAITING"
    GPU_INSUFFICIENT = "GPU_INSUFFICIENT"
    RESOURCES_INSUFFICIENT = "RESOURCES_INSUFFICIENT"
    NODE_TAINTED = "NODE_TAINTED"
    UNSCHEDULABLE = "UNSCHEDULABLE"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    POD_NOT_CREATED = "POD_NOT_CREATED"
    VOLUME_UNAVAILABLE = "VOLUME_UNAVAILABLE"
    IMAGE_UNAVAILABLE = "IMAGE_UNAVAILABLE"
    # ends of an attempt
    COMPLETED = "COMPLETED"
    STOPPED_BY_USER = "STOPPED_BY_USER"
    RANK_FAILED = "RANK_FAILED"
    RANK_KILLED = "RANK_KILLED"
    RUNNER_LOST = "RUNNER_LOST"
    START_FAILED = "START_FAILED"
    START_TIMEOUT = "START_TIMEOUT"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    EVICTED = "EVICTED"
    NODE_LOST = "NODE_LOST"
    WORKER_LOST = "WORKER_LOST"
    POD_DELETED = "POD_DELETED"
    MASTER_UNREACHABLE = "MASTER_UNREACHABLE"
    NODES_MISSING = "NODES_MISSING"
    NODE_MISSING = "NODE_MISSING"
    CONTAINER_INVALID = "CONTAINER_INVALID"
    ADMISSION_DENIED = "ADMISSION_DENIED"
    ENGINE_FORBIDDEN = "ENGINE_FORBIDDEN"
    ENGINE_REJECTED = "ENGINE_REJECTED"
    # ends of a task without an attempt
    DATASET_FAILED = "DATASET_FAILED"
    INITIALIZE_TIMEOUT = "INITIALIZE_TIMEOUT"
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
    INVALID_SPEC = "INVALID_SPEC"
    PREFLIGHT_FAILED = "PREFLIGHT_FAILED"
    # the engine does not confirm that an attempt is gone
    STOP_UNCONFIRMED = "STOP_UNCONFIRMED"


RETRY_HELPS = frozenset(
    {
        Reason.RANK_FAILED, Reason.RANK_KILLED, Reason.RUNNER_LOST, Reason.START_FAILED, Reason.START_TIMEOUT,
        Reason.GPU_INSUFFICIENT, Reason.RESOURCES_INSUFFICIENT, Reason.NODE_TAINTED, Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED, Reason.POD_NOT_CREATED, Reason.OUT_OF_MEMORY, Reason.EVICTED, Reason.NODE_LOST,
        Reason.WORKER_LOST, Reason.POD_DELETED, Reason.MASTER_UNREACHABLE, Reason.NODES_MISSING,
    }
)  # fmt: skip
"""Attempts that end for one of these are followed by another while `maxRestarts` lasts."""

PATIENT = frozenset({Reason.QUEUE_WAITING})
"""Waiting for one of these is not overdue: a queue of the engine's own admits the attempt when its turn comes."""
