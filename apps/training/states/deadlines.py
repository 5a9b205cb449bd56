"""Time limits: how long a state may last, how soon a task is processed again, and how long an attempt may take to
end."""

from datetime import timedelta

from apps.training.states import TaskKind, TaskState

DEADLINES: dict[TaskState, timedelta] = {
    TaskState.INITIALIZING: timedelta(hours=6),  # a large text folder is tokenised meanwhile
    TaskState.QUEUED: timedelta(days=30),
    TaskState.STARTING: timedelta(minutes=10),
    TaskState.RUNNING: timedelta(days=365),
    TaskState.STOPPING: timedelta(minutes=2),
}
"""Longest time in each state. An attempt that is being ended has STOPPING's limit (plus its grace period), whatever the
task's state is called."""

PREFLIGHT_RUN_DEADLINE = timedelta(minutes=15)
"""A pre-flight test bounds everything it does itself; this is for tests whose processes hang all the same."""

RECONCILE_INTERVALS: dict[TaskState, timedelta] = {
    TaskState.INITIALIZING: timedelta(seconds=2),
    TaskState.QUEUED: timedelta(seconds=5),
    TaskState.STARTING: timedelta(seconds=1),
    TaskState.RUNNING: timedelta(seconds=15),
    TaskState.STOPPING: timedelta(seconds=1),
}
"""Interval until a task is processed again without a hint. With a hint (a process ended, an environment became free) it
is processed at once."""

WATCHED_RECONCILE_INTERVAL = timedelta(minutes=10)
"""Interval for a task that runs normally while watchers observe it: they report its changes. It is finite, so that a
change that nobody reported is still found."""

QUEUED_RECONCILE_INTERVAL = timedelta(minutes=10)
"""Interval for a task in the queue: this pass only checks the task's own needs (a secret, for example); the scheduling
pass decides when it starts."""
PREDECESSOR_INTERVAL = timedelta(seconds=60)
"""Interval for a task that waits for the end of others, which make it due when they end."""
OVER_LIMIT_RETRY_INTERVAL = timedelta(seconds=30)
"""Interval for a task that its project's limits keep out of an engine's own queue; it is processed earlier when
environments become free."""
PAUSED_RECONCILE_INTERVAL = timedelta(hours=1)
"""Interval for a paused task; it continues only when a user resumes it."""
SCHEDULING_INTERVAL = timedelta(seconds=5)
"""Interval between scheduling passes while any task waits, even if a hint was lost."""

SCHEDULING_CLAIM_TIMEOUT = timedelta(seconds=10)
"""How long a scheduling pass may take before another one takes its claim over."""

PASS_CLAIM_TIMEOUT = timedelta(seconds=30)
"""How long a pass keeps a task for itself; also the delay until a task whose pass crashed or raised is tried again."""

PASS_SILENT_AFTER = timedelta(seconds=3)
"""A pass that takes longer may be dead: until another pass takes its claim over, the task says that it waits for that.
"""

FAILURE_GRACE_SECONDS = 3.0
"""Time that the surviving ranks of a failed attempt get to save and to print why it failed."""
FAILURE_IDLE_SECONDS = 0.5
"""Ranks that do nothing for so long wait in a collective for a peer that is gone; they get no more time."""

QUICK_END_DURATION = timedelta(seconds=60)
MAX_BACKOFF = timedelta(seconds=60)


def get_state_timeout(kind: TaskKind, state: TaskState) -> timedelta:
    """Return how long a task of `kind` may stay in `state`, which is not final."""
    return PREFLIGHT_RUN_DEADLINE if kind == TaskKind.PREFLIGHT and state is TaskState.RUNNING else DEADLINES[state]


def compute_backoff(quick_ends: int) -> timedelta:
    """Return the delay before the next attempt: 0, 1, 3, 7 … 60 s after so many quick ends in a row; 0 after an attempt
    that lasted."""
    return min(timedelta(seconds=2 ** max(0, min(quick_ends, 10) - 1) - 1), MAX_BACKOFF)
