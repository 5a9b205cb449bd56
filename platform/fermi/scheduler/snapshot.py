"""The input and the result of a scheduling decision. Times are unix seconds, durations are seconds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from fermi.jobs.spec import Problem

DAY_SECONDS = 86_400.0
HALF_LIFE_SECONDS = 7 * DAY_SECONDS
"""Half-life of a project's past usage, in seconds."""


class Priority(IntEnum):
    """The class of a priority: any number below 0, 0, above 0, from 100."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    URGENT = 3


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """An environment. `usable`: it runs and is not cordoned. `health`: recent failures of tasks and pre-flight tests
    there, 0 = none; fewer is better. `link`: environments with fast links to each other have the same; empty = unknown.
    """

    id: str
    name: str
    project: str
    cluster: str
    zone: str  # its id
    zone_name: str = ""
    gpu_type: str = ""
    gpus: int = 0
    shared: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    usable: bool = True
    health: int = 0
    link: str = ""
    made_for: str = ""  # the task that it was made for, and that nobody else gets it from

    @property
    def processes(self) -> int:
        """Ranks: one per GPU, and one where there is none."""
        return max(self.gpus, 1)


@dataclass(frozen=True, slots=True)
class Select:
    """Capacity that is asked for instead of environments by name; what is None or empty does not matter.

    nodes           how many environments
    gpus_per_node   GPUs that are used of each of them; it may have more
    total_gpus      GPUs in all, in any mixture: in place of `gpus_per_node`
    same_zone       all in one zone, whichever
    labels          each environment has all of these
    exclude         ids of environments that are not to be used
    on_gpus         each environment has a GPU: set where the request does not mention GPUs and there are some
    """

    nodes: int | None = None
    gpus_per_node: int | None = None
    total_gpus: int | None = None
    gpu_types: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()  # ids or names
    same_zone: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    on_gpus: bool = False

    @property
    def target(self) -> int:
        """The number of environments, or of GPUs where `total_gpus` is given."""
        return (self.nodes or 1) if self.total_gpus is None else self.total_gpus

    def counted(self, places: Sequence[EnvironmentInfo]) -> int:
        """Return the number of environments or GPUs, as `target` counts."""
        return len(places) if self.total_gpus is None else sum(place.gpus for place in places)


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that could start now if it had its environments: exactly `named`, or what `select` asks for.

    priority      as requested, a number; `classify_priority` gives its class
    since         when its age began; it keeps it when it was preempted
    place         where a maintainer moved it among the tasks of its project and class; None: by age
    max_run       how long it may still hold its environments; None: unlimited
    expected_run  how long it will probably run, by what tasks like it did; None: unknown
    promised      what the last decision said that it `needs` while others made room for it (MAKING_ROOM): reserved for
                  it until these have gone, whatever comes before it
    """

    task: str
    project: str
    user: str
    cluster: str
    since: float
    named: tuple[str, ...] = ()
    select: Select | None = None
    priority: int = 0
    position: float | None = None
    preemptible: bool = False
    max_run: float | None = None
    expected_run: float | None = None
    promised: tuple[str, ...] = ()
    name: str = ""


@dataclass(frozen=True, slots=True)
class RunningTask:
    """A task that has environments.

    since      when it got them
    until      when it must have released them, by its own `maxRunSeconds`; None: unlimited
    expected   when it will probably release them; None: unknown
    min_run    for so long after `since` it may not be preempted
    saved_at   when its newest checkpoint was saved; None: none since it has these environments
    leaving    it has been asked to end already, and its environments come free soon
    stays      it is never preempted
    """

    task: str
    project: str
    user: str
    places: tuple[str, ...]
    since: float
    priority: int = 0
    preemptible: bool = False
    min_run: float = 0.0
    until: float | None = None
    expected: float | None = None
    saved_at: float | None = None
    leaving: bool = False
    stays: bool = False
    name: str = ""


@dataclass(frozen=True, slots=True)
class Quota:
    """Limits of a user within a project; None = none."""

    most_gpus: int | None = None
    most_tasks: int | None = None
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Project:
    """What a project has used and what it may use; None or empty = no limit.

    used          GPU-seconds with a half-life of seven days, without what its tasks hold now
    guaranteed    shared GPUs that it gets back by preemption when it needs them; beyond them it borrows
    most_gpus     GPUs that its tasks hold at once; most_tasks: tasks that hold any
    gpu_hours     in this month (`spent_hours` so far, with what is held now)
    longest_run   the maximum of `maxRunSeconds`, seconds
    priorities    classes that its members may use
    stopped       why no new task of it starts (`BUDGET_SPENT`), or None; with `only_preemptible`: except preemptible
                  ones
    users         limits by user name; `each_user`: of all other users
    """

    id: str
    name: str = ""
    weight: float = 1.0
    used: float = 0.0
    guaranteed: int | None = None
    most_gpus: int | None = None
    most_tasks: int | None = None
    gpu_hours: float | None = None
    spent_hours: float = 0.0
    spent_by_user: Mapping[str, float] = field(default_factory=dict)
    gpu_types: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    priorities: frozenset[Priority] = frozenset()
    longest_run: float | None = None
    stopped: Problem | None = None
    only_preemptible: bool = False
    users: Mapping[str, Quota] = field(default_factory=dict)
    each_user: Quota = Quota()


@dataclass(frozen=True, slots=True)
class Reservation:
    """Environments that only `project` gets between two times; None: no project gets them, they are in maintenance."""

    id: str
    places: frozenset[str]
    begins: float
    ends: float
    project: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerSnapshot:
    """All that a scheduling decision depends on."""

    now: float
    waiting: tuple[WaitingTask, ...] = ()
    running: tuple[RunningTask, ...] = ()
    places: tuple[EnvironmentInfo, ...] = ()
    projects: Mapping[str, Project] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()


class QueueEntry(NamedTuple):
    """The result for one waiting task. `number`: its position in the queue, from 1.

    start      the environments that it gets now, master first; empty: it waits
    borrowed   it starts beyond its project's guarantee, so it may be preempted even if it is not preemptible
    why        why it waits: a code with texts in `fermi.messages`, and what fills them
    needs      the environments that are reserved for it, where there are some
    begins     when these will all be free by what was declared; None: unknown
    after      tasks that must end first
    room_at    when others may be preempted for it, their `min_run` being over then: those in `after`
    """

    task: str
    number: int
    start: tuple[str, ...] = ()
    borrowed: bool = False
    why: Problem | None = None
    needs: tuple[str, ...] = ()
    begins: float | None = None
    after: tuple[str, ...] = ()
    room_at: float | None = None


@dataclass(frozen=True, slots=True)
class Preemption:
    """`task` is preempted for `by`. `why`: PRIORITY, or GUARANTEE where a project takes back what is its own."""

    task: str
    by: str
    why: str


@dataclass(frozen=True, slots=True)
class Decision:
    """The result of a scheduling pass. `again`: when time alone may change it: a reservation begins or ends, a victim's
    `min_run` is over, …"""

    turns: tuple[QueueEntry, ...] = ()
    preempt: tuple[Preemption, ...] = ()
    again: float | None = None


def classify_priority(priority: int) -> Priority:
    """Return the class of a priority."""
    if priority < 0:
        return Priority.LOW
    if priority == 0:
        return Priority.NORMAL
    return Priority.HIGH if priority < 100 else Priority.URGENT


PRIORITY_NUMBERS: Mapping[str, int] = {"low": -1, "normal": 0, "high": 1, "urgent": 100}
"""The number that each class is stored as."""


def decay_usage(used: float, seconds: float) -> float:
    """Return what of past usage still counts after so many seconds."""
    return used * math.pow(0.5, max(seconds, 0.0) / HALF_LIFE_SECONDS)
