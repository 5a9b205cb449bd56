"""How long each state may last, how soon a task is looked at again, and how patient an end is."""

from datetime import timedelta

from apps.training.states import Kind, State

DEADLINES: dict[State, timedelta] = {
    State.INITIALIZING: timedelta(hours=6),  # a large text folder is tokenised meanwhile
    State.QUEUED: timedelta(days=30),
    State.STARTING: timedelta(minutes=10),
    State.RUNNING: timedelta(days=365),
    State.STOPPING: timedelta(minutes=2),
}
"""For an attempt that is being ended, STOPPING's applies (beyond its grace), whatever the task's state is called."""

PREFLIGHT_RUNS = timedelta(minutes=15)
"""A pre-flight test bounds all it does; this is for one whose processes hang all the same."""

LOOK_AGAIN: dict[State, timedelta] = {
    State.INITIALIZING: timedelta(seconds=2),
    State.QUEUED: timedelta(seconds=5),
    State.STARTING: timedelta(seconds=1),
    State.RUNNING: timedelta(seconds=15),
    State.STOPPING: timedelta(seconds=1),
}
"""Without any hint. With hints (a process ended, an environment became free) it is at once."""

UNTOLD = timedelta(minutes=10)
"""One that runs, of which nothing is to be told, while watchers look at all that runs: they tell of what changes. Not
for ever, because whatever nobody thought of is found then."""

IN_LINE = timedelta(minutes=10)
"""A task that stands in line is looked at for what is its own (a secret, say); its turn is the queue's to see."""
OVER_LIMIT = timedelta(seconds=30)
"""A task that its project's limits keep from an engine's own queue; sooner where environments come free."""
RESTING = timedelta(hours=1)
"""A paused task waits for nothing but a word."""
DECIDE_AGAIN = timedelta(seconds=5)
"""While anybody waits, the queue is decided as often as this, whatever hint was lost."""

DECIDING = timedelta(seconds=10)
"""How long a decision of the queue may take, before another is made in its place."""

CLAIM = timedelta(seconds=30)
"""How long a pass has a task for itself; also when a task whose pass crashed or raised is tried again."""

SILENT = timedelta(seconds=3)
"""A pass that takes longer may be dead: until another takes its claim over, the task says what it waits for."""

FAILURE_GRACE_SECONDS = 3.0
"""What the surviving ranks of a failed attempt get, to save and to print why."""
FAILURE_STILL_SECONDS = 0.5
"""Those that do nothing for so long wait in a collective for a peer that is gone, and get no more."""

QUICK_END = timedelta(seconds=60)
LONGEST_BACKOFF = timedelta(seconds=60)


def lasting(kind: Kind, state: State) -> timedelta:
    """How long a task may stay in `state`, which is not final."""
    return PREFLIGHT_RUNS if kind == Kind.PREFLIGHT and state is State.RUNNING else DEADLINES[state]


def backoff(quick_ends: int) -> timedelta:
    """0, 1, 3, 7 … 60 s after so many attempts in a row that ended quickly; none after one that lasted."""
    return min(timedelta(seconds=2 ** max(0, min(quick_ends, 10) - 1) - 1), LONGEST_BACKOFF)
