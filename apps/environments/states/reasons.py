"""The platform's own reasons why an environment waits, or why its run ended; engines declare theirs
(`fermi.jobs.causes`). Their texts are in `fermi.messages` under the same names."""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any

from fermi.jobs.causes import declare_causes
from fermi.jobs.spec import Cause


class EnvironmentReason(StrEnum):
    # waiting
    GPUS_TAKEN = "ENVIRONMENT_GPUS_TAKEN"
    STARTS_AGAIN = "ENVIRONMENT_STARTS_AGAIN"
    UNREADABLE = "ENVIRONMENT_UNREADABLE"
    # ends of a run
    STOPPED = "ENVIRONMENT_STOPPED"
    RESTARTED = "ENVIRONMENT_RESTARTED"
    DELETED = "ENVIRONMENT_DELETED"
    IDLE = "ENVIRONMENT_IDLE"
    TASK_ENDED = "ENVIRONMENT_TASK_ENDED"
    LOST = "ENVIRONMENT_LOST"
    ENDED = "ENVIRONMENT_ENDED"
    START_TIMEOUT = "ENVIRONMENT_START_TIMEOUT"
    # ends without a run
    CREATE_TIMEOUT = "ENVIRONMENT_CREATE_TIMEOUT"
    # the engine does not confirm that something is gone
    STOP_UNCONFIRMED = "ENVIRONMENT_STOP_UNCONFIRMED"
    DELETE_UNCONFIRMED = "ENVIRONMENT_DELETE_UNCONFIRMED"


CAUSES = declare_causes(
    *map(Cause, EnvironmentReason),
    Cause(EnvironmentReason.STOPPED, asked=True),
    Cause(EnvironmentReason.RESTARTED, asked=True),
    Cause(EnvironmentReason.DELETED, asked=True),
    Cause(EnvironmentReason.IDLE, asked=True),
    Cause(EnvironmentReason.TASK_ENDED, asked=True),
    Cause(EnvironmentReason.LOST, retry=True),
    Cause(EnvironmentReason.START_TIMEOUT, retry=True),
)
"""Every reason by its code, with what follows from it if it ends a run."""


def make_cause(code: str, params: Mapping[str, Any], engine: Mapping[str, Cause]) -> Cause:
    """Return the cause with what is declared of its code; `engine`: the causes that its engine declares. An undeclared
    code is not retried."""
    return replace(CAUSES.get(code) or engine.get(code) or Cause(""), code=code, params=params)
