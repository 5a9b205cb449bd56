"""Time limits: how long a state may last, how soon a task is processed again, and how long an attempt may take to
end."""

from datetime import timedelta

from apps.training.states import Kind, State

DEADLINES: dict[State, timedelta] = {
    State.INITIALIZING: timedelta(hours=6),  # a large text folder is tokenised meanwhile
    State.QUEUED: timedelta(days=30),
    State.STARTING: timedelta(minutes=10),
    State.RUNNING: timedelta(days=365),
    State.STOPPING: timedelta(minutes=2),
}
"""Longest time in each state. An attempt that is being ended has STOPPING's limit (plus its grace period), whatever the
task's state is called."""

PREFLIGHT_RUNS = timedelta(minutes=15)
"""A pre-flight test bounds everything it does itself; this is for tests whose processes hang all the same."""

LOOK_AGAIN: dict[State, timedelta] = {
    State.INITIALIZING: timedelta(seconds=2),
    State.QUEUED: timedelta(seconds=5),
    State.STARTING: timedelta(seconds=1),
    State.RUNNING: timedelta(seconds=15),
    State.STOPPING: timedelta(seconds=1),
}
"""Interval until a task is processed again without a hint. With a hint (a process ended, an environment became free) it
is processed at once."""

UNTOLD = timedelta(minutes=10)
"""Interval for a task that runs normally while watchers observe it: they report its changes. It is finite, so that a
change that nobody reported is still found."""

IN_LINE = timedelta(minutes=10)
"""Interval for a task in the queue: this pass only checks the task's own needs (a secret, for example); the scheduling
pass decides when it starts."""
OVER_LIMIT = timedelta(seconds=30)
"""Interval for a task that its project's limits keep out of an engine's own queue; it is processed earlier when
environments become free."""
RESTING = timedelta(hours=1)
"""Interval for a paused task; it continues only when a user resumes it."""
DECIDE_AGAIN = timedelta(seconds=5)
"""Interval between scheduling passes while any task waits, even if a hint was lost."""

DECIDING = timedelta(seconds=10)
"""How long a scheduling pass may take before another one takes its claim over."""

CLAIM = timedelta(seconds=30)
"""How long a pass keeps a task for itself; also the delay until a task whose pass crashed or raised is tried again."""

SILENT = timedelta(seconds=3)
"""A pass that takes longer may be dead: until another pass takes its claim over, the task says that it waits for that.
"""

FAILURE_GRACE_SECONDS = 3.0
"""Time that the surviving ranks of a failed attempt get to save and to print why it failed."""
FAILURE_STILL_SECONDS = 0.5
"""Ranks that do nothing for so long wait in a collective for a peer that is gone; they get no more time."""

QUICK_END = timedelta(seconds=60)
LONGEST_BACKOFF = timedelta(seconds=60)


def lasting(kind: Kind, state: State) -> timedelta:
    """Return how long a task of `kind` may stay in `state`, which is not final."""
    return PREFLIGHT_RUNS if kind == Kind.PREFLIGHT and state is State.RUNNING else DEADLINES[state]


def backoff(quick_ends: int) -> timedelta:
    """Return the delay before the next attempt: 0, 1, 3, 7 … 60 s after so many quick ends in a row; 0 after an attempt
    that lasted."""
    return min(timedelta(seconds=2 ** max(0, min(quick_ends, 10) - 1) - 1), LONGEST_BACKOFF)
