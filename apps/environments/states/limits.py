"""How long each state may last, how soon an environment is looked at again, and when one that nobody uses stops."""

from datetime import timedelta

from apps.environments.states import State

DEADLINES: dict[State, timedelta] = {
    State.CREATING: timedelta(minutes=30),
    State.STARTING: timedelta(minutes=30),  # an image is pulled, packages are installed
    State.STOPPING: timedelta(minutes=2),
    State.DELETED: timedelta(minutes=10),
}
"""After the last two it goes on, and says that the engine does not confirm."""

LOOK_AGAIN: dict[State, timedelta] = {
    State.CREATING: timedelta(seconds=5),
    State.STARTING: timedelta(seconds=1),
    State.RUNNING: timedelta(seconds=15),
    State.STOPPING: timedelta(seconds=1),
    State.STOPPED: timedelta(seconds=5),
    State.DELETED: timedelta(seconds=2),
}
"""Without any hint. What is at rest, and wanted so, is not looked at."""

CLAIM = timedelta(seconds=30)
"""How long a pass has an environment for itself; also when one whose pass crashed or raised is tried again."""
ENGINE_AWAY = timedelta(seconds=10)

GRACE_SECONDS = 10.0
"""What its processes get to end by themselves."""

MOST_RETRIES = 3
"""So many runs follow by themselves upon one that ended for a reason that may pass."""
LASTED = timedelta(minutes=10)
"""A run that was up for so long has its retries anew."""


def backoff(retries: int) -> timedelta:
    """0, 5, 15, 35 s after so many ends in a row."""
    return timedelta(seconds=5 * (2 ** max(0, retries) - 1))


WARNING = timedelta(minutes=10)
"""So long before it stops by itself its owner is told; of a short patience, a third of it."""
MOST_KEPT = 7 * 24  # hours
EMPTY_GPU = 2.0  # per cent; less is nobody's work
