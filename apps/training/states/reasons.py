"""Why a task waits or ended, as codes of the platform. Engines declare their own causes (`fermi.jobs.causes`).

The texts are in `fermi.messages` under the same codes.
"""

from enum import StrEnum

from fermi.jobs.causes import ALWAYS_FREE, declare_causes
from fermi.jobs.spec import Cause


class TaskReason(StrEnum):
    # waiting
    """Codes for why a task waits, why an attempt ended, or why a task ended."""

    DATASET_PREPARING = "DATASET_PREPARING"
    ENVIRONMENTS_MAKING = "ENVIRONMENTS_MAKING"
    WAITING_FOR_ENVIRONMENTS = "WAITING_FOR_ENVIRONMENTS"
    ENVIRONMENT_UNAVAILABLE = "ENVIRONMENT_UNAVAILABLE"
    ENVIRONMENTS_IN_USE = "ENVIRONMENTS_IN_USE"
    MEMORY_LOOKED_AT = "MEMORY_LOOKED_AT"
    PORTS_TAKEN = "PORTS_TAKEN"
    RESTARTING = "RESTARTING"
    WAITS_FOR_TASK = "WAITS_FOR_TASK"
    WAITING_FOR_CAPACITY = "WAITING_FOR_CAPACITY"
    WAITING_FOR_TURN = "WAITING_FOR_TURN"
    WAITING_FOR_FIT = "WAITING_FOR_FIT"
    WAITING_FOR_RESERVATION = "WAITING_FOR_RESERVATION"
    WAITING_FOR_MAINTENANCE = "WAITING_FOR_MAINTENANCE"
    WAITING_FOR_MIN_RUN = "WAITING_FOR_MIN_RUN"
    MAKING_ROOM = "MAKING_ROOM"
    LIMIT_GPUS = "LIMIT_GPUS"
    LIMIT_TASKS = "LIMIT_TASKS"
    LIMIT_GPU_HOURS = "LIMIT_GPU_HOURS"
    LIMIT_USER_GPUS = "LIMIT_USER_GPUS"
    LIMIT_USER_TASKS = "LIMIT_USER_TASKS"
    LIMIT_USER_GPU_HOURS = "LIMIT_USER_GPU_HOURS"
    BUDGET_SPENT = "BUDGET_SPENT"
    BUDGET_PREEMPTIBLE_ONLY = "BUDGET_PREEMPTIBLE_ONLY"
    SECRET_MISSING = "SECRET_MISSING"
    SECRET_UNREADABLE = "SECRET_UNREADABLE"
    PREFLIGHT_RUNNING = "PREFLIGHT_RUNNING"
    CODE_FETCHING = "CODE_FETCHING"
    CODE_LOST = "CODE_LOST"
    DRILL_RUNNING = "DRILL_RUNNING"
    PROCESS_SILENT = "PROCESS_SILENT"
    HANG_SUSPECTED = "HANG_SUSPECTED"
    RANK_STOPPED = "RANK_STOPPED"
    ATTEMPT_UNREADABLE = "ATTEMPT_UNREADABLE"
    # ends of an attempt
    COMPLETED = "COMPLETED"
    COMPLETED_AND_KILLED = "COMPLETED_AND_KILLED"
    COMPLETED_WITHOUT_STEP = "COMPLETED_WITHOUT_STEP"
    STOPPED_BY_USER = "STOPPED_BY_USER"
    STOPPED_AND_KILLED = "STOPPED_AND_KILLED"
    NEVER_ENDED = "NEVER_ENDED"
    BAD_LOSS = "BAD_LOSS"
    HANG = "HANG"
    COLLECTIVE_MISMATCH = "COLLECTIVE_MISMATCH"
    NETWORK_CUT = "NETWORK_CUT"
    DRILL_NO_CHECKPOINT = "DRILL_NO_CHECKPOINT"
    DRILL_NO_STEP = "DRILL_NO_STEP"
    ATTEMPT_LOST = "ATTEMPT_LOST"
    START_FAILED = "START_FAILED"
    RESIZING = "RESIZING"
    GAVE_WAY = "GAVE_WAY"
    PAUSED = "PAUSED"
    START_TIMEOUT = "START_TIMEOUT"
    RUN_TIMEOUT = "RUN_TIMEOUT"
    # ends of a task without an attempt
    DATASET_FAILED = "DATASET_FAILED"
    CODE_FETCH_FAILED = "CODE_FETCH_FAILED"
    ENTRYPOINT_NOT_IN_CODE = "ENTRYPOINT_NOT_IN_CODE"
    ENTRYPOINT_NOT_PYTHON = "ENTRYPOINT_NOT_PYTHON"
    REQUIREMENTS_NOT_IN_CODE = "REQUIREMENTS_NOT_IN_CODE"
    ENVIRONMENT_NOT_MADE = "ENVIRONMENT_NOT_MADE"
    AFTER_NOT_MET = "AFTER_NOT_MET"
    AFTER_CHECKPOINT_MISSING = "AFTER_CHECKPOINT_MISSING"
    INITIALIZE_TIMEOUT = "INITIALIZE_TIMEOUT"
    QUEUE_TIMEOUT = "QUEUE_TIMEOUT"
    PREFLIGHT_FAILED = "PREFLIGHT_FAILED"
    DRILL_FAILED = "DRILL_FAILED"
    # ends of a task that would only fail again
    CRASH_LOOP = "CRASH_LOOP"
    HANG_LOOP = "HANG_LOOP"
    # the engine does not confirm that an attempt is gone
    STOP_UNCONFIRMED = "STOP_UNCONFIRMED"


CAUSES = declare_causes(
    *map(Cause, TaskReason),
    Cause(TaskReason.STOPPED_BY_USER, asked=True),
    Cause(TaskReason.NEVER_ENDED, retry=True),
    Cause(TaskReason.BAD_LOSS, retry=True),
    Cause(TaskReason.HANG, retry=True),
    Cause(TaskReason.COLLECTIVE_MISMATCH, retry=True),
    Cause(TaskReason.NETWORK_CUT, retry=True),
    Cause(TaskReason.ATTEMPT_LOST, retry=True),
    Cause(TaskReason.RESIZING, retry=True, asked=True, free=ALWAYS_FREE),
    Cause(TaskReason.GAVE_WAY, retry=True, asked=True, free=ALWAYS_FREE),
    Cause(TaskReason.PAUSED, retry=True, asked=True, free=ALWAYS_FREE),
    Cause(TaskReason.RUN_TIMEOUT, asked=True),
    Cause(TaskReason.START_FAILED, retry=True),
    Cause(TaskReason.START_TIMEOUT, retry=True),
    Cause(TaskReason.SECRET_MISSING, retry=True, free=ALWAYS_FREE),
    Cause(TaskReason.SECRET_UNREADABLE, retry=True, free=ALWAYS_FREE),
)
"""Every reason by its code, with what follows from it if it ends an attempt."""

NON_FAILURE_OUTCOMES = frozenset(
    {
        TaskReason.COMPLETED,
        TaskReason.COMPLETED_AND_KILLED,
        TaskReason.COMPLETED_WITHOUT_STEP,
        TaskReason.STOPPED_AND_KILLED,
    }
    | {TaskReason(code) for code, cause in CAUSES.items() if cause.asked}
)
"""Outcomes of attempts that came to their end, or to one that was requested: not counted as failures."""

YIELDING_OUTCOMES = frozenset({TaskReason.GAVE_WAY, TaskReason.PAUSED})
"""Outcomes after which the task gives its environments back and continues later."""
