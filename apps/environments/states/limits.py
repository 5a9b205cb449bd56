"""Timeouts of states, intervals of checks, and limits of idleness."""

from datetime import timedelta

from apps.environments.states import State

DEADLINES: dict[State, timedelta] = {
    State.CREATING: timedelta(minutes=30),
    State.STARTING: timedelta(minutes=30),  # an image is pulled, packages are installed
    State.STOPPING: timedelta(minutes=2),
    State.DELETED: timedelta(minutes=10),
}
"""Timeout of each state. After those of the last two states the pass goes on, and reports that the engine does not
confirm."""

LOOK_AGAIN: dict[State, timedelta] = {
    State.CREATING: timedelta(seconds=5),
    State.STARTING: timedelta(seconds=1),
    State.RUNNING: timedelta(seconds=15),
    State.STOPPING: timedelta(seconds=1),
    State.STOPPED: timedelta(seconds=5),
    State.DELETED: timedelta(seconds=2),
}
"""Interval of checks without any wake-up. An environment that is at rest, as desired, is not checked."""

CLAIM = timedelta(seconds=30)
"""How long a pass has an environment for itself; also the pause after a pass that crashed or raised."""
ENGINE_AWAY = timedelta(seconds=10)

GRACE_SECONDS = 10.0
"""Time that processes get to end by themselves."""

MOST_RETRIES = 3
"""Runs that follow by themselves when one ended for a reason that may pass."""
LASTED = timedelta(minutes=10)
"""After a run of this length the retries start anew."""


def backoff(retries: int) -> timedelta:
    """Return the pause after so many ends in a row: 0, 5, 15, 35 s."""
    return timedelta(seconds=5 * (2 ** max(0, retries) - 1))


WARNING = timedelta(minutes=10)
"""How long before an idle stop the owner is warned; a third of a shorter idle time."""
MOST_KEPT = 7 * 24  # hours
EMPTY_GPU = 2.0  # per cent
