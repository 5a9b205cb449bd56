"""Timeouts of states, intervals of checks, and limits of idleness."""

from datetime import timedelta

from apps.environments.states import EnvironmentState

DEADLINES: dict[EnvironmentState, timedelta] = {
    EnvironmentState.CREATING: timedelta(minutes=30),
    EnvironmentState.STARTING: timedelta(minutes=30),  # an image is pulled, packages are installed
    EnvironmentState.STOPPING: timedelta(minutes=2),
    EnvironmentState.DELETED: timedelta(minutes=10),
}
"""Timeout of each state. After those of the last two states the pass goes on, and reports that the engine does not
confirm."""

RECHECK_AFTER: dict[EnvironmentState, timedelta] = {
    EnvironmentState.CREATING: timedelta(seconds=5),
    EnvironmentState.STARTING: timedelta(seconds=1),
    EnvironmentState.RUNNING: timedelta(seconds=15),
    EnvironmentState.STOPPING: timedelta(seconds=1),
    EnvironmentState.STOPPED: timedelta(seconds=5),
    EnvironmentState.DELETED: timedelta(seconds=2),
}
"""Interval of checks without any wake-up. An environment that is at rest, as desired, is not checked."""

CLAIM_SPAN = timedelta(seconds=30)
"""How long a pass has an environment for itself; also the pause after a pass that crashed or raised."""
ENGINE_RETRY_DELAY = timedelta(seconds=10)

GRACE_SECONDS = 10.0
"""Time that processes get to end by themselves."""

MAX_RETRIES = 3
"""Runs that follow by themselves when one ended for a reason that may pass."""
RESET_RETRIES_AFTER = timedelta(minutes=10)
"""After a run of this length the retries start anew."""


def compute_backoff(retries: int) -> timedelta:
    """Return the pause after so many ends in a row: 0, 5, 15, 35 s."""
    return timedelta(seconds=5 * (2 ** max(0, retries) - 1))


WARN_BEFORE_STOP = timedelta(minutes=10)
"""How long before an idle stop the owner is warned; a third of a shorter idle time."""
MAX_KEEP_HOURS = 7 * 24  # hours
MIN_BUSY_PERCENT = 2.0  # per cent
