"""What a distributed job is, what it becomes, and what is seen of it: frozen values that frameworks and backends share.

    JobSpec ──framework.plan──▶ Plan ──backend.render──▶ Rendered ──submit──▶ Handle ──observe──▶ Observation

A framework knows no engine and a backend knows no framework; they meet only in `Plan`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from fermi.probe.shared_page import PHASES  # noqa: F401 (for others)
from fermi.runner.exit_codes import GRACE_SECONDS
from fermi.runner.late_values import SHOWN, Late, decode, encode, is_open, resolve  # noqa: F401 (for others)
from fermi.runner.ports import MASTER_PORT
from fermi.schema import sanitize, serialization

MAX_RESTARTS = 3
"""How often a failed attempt is followed by another, unless somebody says otherwise."""

DRILL_MINUTES = 15.0

PREFLIGHT = "preflight"
"""The framework of pre-flight tests."""

Value: TypeAlias = str | Late | tuple[str | Late, ...]
"""Text, a late value, or pieces of both to be joined."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where the ranks of a node run, inside of its environment or beside it, and why: a code with its texts in
    `fermi.messages`, and what they take."""

    inside: bool
    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A dev environment as it was when the task was submitted. `emulated`: CPU processes stand in for its GPUs.
    `engine`: what only its backend understands. `way`: where its ranks run (`fermi.jobs.run_location`); None: its
    engine has one way alone, or it has not been decided yet."""

    id: str
    name: str
    host: str = ""
    ip: str = ""
    zone: str = ""
    gpu_type: str = ""
    gpu_count: int = 0
    emulated: bool = False
    cpu_cores: int = 1
    memory_gb: int = 1
    image: str = ""
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    network: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # see `fermi.jobs.network`
    engine: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    way: Way | None = None

    @property
    def inside(self) -> bool:
        """Whether its ranks run inside of the environment, as a container of somebody else's."""
        return self.way is not None and self.way.inside

    @property
    def address(self) -> str:
        """Where other nodes reach it by hand, as far as that is known before a job runs."""
        return str(self.engine.get("address") or self.ip or self.host or self.name)

    @property
    def hostname(self) -> str:
        """Where an engine's other nodes reach it: Slurm and workers' hosts know each other by name."""
        return str(self.engine.get("address") or self.host or self.ip or self.name)

    @property
    def processes(self) -> int:
        """Ranks on this node: one per GPU, and one on a node that has none."""
        return max(self.gpu_count, 1)

    @property
    def has_cuda(self) -> bool:
        return self.gpu_count > 0 and not self.emulated


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """The user's own script, or module as `python -m` runs it, and its arguments, in place of the model's recipe."""

    script: str = ""
    args: tuple[str, ...] = ()
    module: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """What stands behind `python -u`, without the arguments."""
        return ("-m", self.module) if self.module else (self.script,)

    @property
    def paths(self) -> tuple[str, ...]:
        """The files any of which it may be. Those of a module begin in the folder in which ranks start, where `python
        -m` looks first; it may be an installed one as well."""
        path = self.module.replace(".", "/")
        if path:
            return f"{path}.py", f"{path}/__main__.py"
        return (self.script.removeprefix("./"),) if self.script else ()

    @property
    def field(self) -> str:
        """The field of the request that names it."""
        return "entrypoint.module" if self.module else "entrypoint.script"


@dataclass(frozen=True, slots=True)
class Code:
    """A snapshot that every node gets before its ranks begin, in which they then start. `snapshot`: its id; empty
    until it has been fetched. `folder`: where it lies, ready to be carried. `requirements`: `auto`, `off`, or a file
    of its own. `source`: what it is, or was, fetched from, as `Fetch.source` names it; empty: it was sent. `origin`:
    where it came from, as people are told."""

    snapshot: str = ""
    folder: str = ""
    requirements: str = "auto"
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Elastic:
    """On how many nodes a job may run, and what stays the same on each number of them (`fermi.jobs.elastic`).

    nodes, master   all that were chosen; the job's own are those it runs on now
    world_size      processes at the size asked for; 0: the job keeps its nodes, as where it is started by hand
    batch           sequences of an optimizer step, all ranks together; 0: only the user's script knows
    rows            the most of them that one rank computes at once
    even            all ranks must compute equally many
    """

    min_nodes: int
    max_nodes: int
    nodes: tuple[Node, ...] = ()
    master: str = ""
    world_size: int = 0
    batch: int = 0
    rows: int = 0
    even: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """Everything a plan is made from. `master` is a node's id. `attempt` 0 = not launched (a preview).
    `model_parameters`: how many weights, where somebody said so; else see `recipes.parameters`. `secret_env`: variables
    whose values are secrets, with the secrets' names; a value is never part of a job, a plan or what is rendered.
    `spares`: environments that take the places of lost ones; `left_out`: those that somebody asked to do without, from
    the next attempt on; `when_in_use`: what the first attempt does where others hold memory; `preflight`: the test
    before it, or off; `drill`: the rehearsal before it, or off, for at most `drill_minutes`. `rehearses`: this is one,
    and a rank is to be killed once it has saved.
    `priority`: the class (`schedule.scene.NUMBERS`); `project`: an id; `max_run`: so many seconds it may still hold its
    environments, None: as long as it takes.
    `run_in`: where ranks are to run (`fermi.jobs.run_location`); `python`: the interpreter that they run with
    inside of an environment, by its path or as a kernel of its notebook (empty: its own default).
    `output_dir`: a folder of the task's own, kept like its checkpoints; `files_dir`, `files_url`: where its project's
    files are, as a folder or in object storage.
    `pulse`: whether ranks carry the probe; `on_hang`, `on_bad_loss`, `on_crash_loop`: what follows from each, and
    `hang_seconds`: without a sign of progress for so long a rank is looked at (None: what its own past explains)."""

    task_id: str
    framework: str
    nodes: tuple[Node, ...]
    master: str
    recipe: str = "gpt"
    model_parameters: int | None = None
    entrypoint: Entrypoint | None = None
    hyperparameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    strategy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    secret_env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    backend: Literal["auto", "nccl", "gloo"] = "auto"
    master_port: int = MASTER_PORT
    train_data: str = ""
    valid_data: str = ""
    checkpoint_dir: str = ""
    output_dir: str = ""
    files_dir: str = ""
    files_url: str = ""
    resume_from: str = ""
    attempt: int = 0
    grace_seconds: float = GRACE_SECONDS
    max_restarts: int = MAX_RESTARTS
    spares: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    when_in_use: Literal["start", "wait"] = "start"
    preflight: str = "off"
    drill: str = "off"
    drill_minutes: float = DRILL_MINUTES
    rehearses: bool = False
    pulse: bool = True
    on_hang: Literal["report", "restart", "stop"] = "restart"
    hang_seconds: float | None = None
    on_bad_loss: Literal["report", "stop", "rollback"] = "report"
    on_crash_loop: Literal["stop", "restart"] = "stop"
    project: str = ""
    project_name: str = ""
    priority: str = "normal"
    max_run: float | None = None
    elastic: Elastic | None = None
    code: Code | None = None
    run_in: Literal["auto", "environment", "beside"] = "auto"
    python: str = ""

    def brings(self, path: str) -> bool:
        """Whether a file is one of its code, and not of its node."""
        return self.code is not None and not path.startswith("/")

    @property
    def name(self) -> str:
        return attempt_name(self.task_id, self.attempt)

    @property
    def head(self) -> Node:
        """Where rank 0 runs, and all others meet."""
        return next(node for node in self.nodes if node.id == self.master)

    @property
    def world_size(self) -> int:
        return sum(node.processes for node in self.nodes)

    def for_attempt(self, number: int, *, master_port: int, resume_from: str) -> Self:
        return replace(self, attempt=number, master_port=master_port, resume_from=resume_from)

    def to_json(self) -> dict[str, Any]:
        return serialization.dump(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return serialization.load(cls, data)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a request (or, as a warning, worth knowing). `field` is a path in the API's spelling; the
    texts for `code` are in `fermi.messages` and are filled from `params` (what was found, what is allowed)."""

    field: str
    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a framework chooses where the user chose nothing, in the request's own spelling (`strategy`, `options`), and
    why: each reason is a code with its texts in `fermi.messages`."""

    strategy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reasons: tuple[Problem, ...] = ()

    def to(self, spec: JobSpec) -> JobSpec:
        """The job as if the user had given it."""
        strategy, options = {**spec.strategy, **self.strategy}, {**spec.options, **self.options}
        return replace(spec, strategy=strategy, options=options)


@dataclass(frozen=True, slots=True)
class Process:
    """One rank: its place, the GPU index it uses on its node (None = CPU), and the environment only it gets."""

    rank: int
    local_rank: int
    device: int | None
    env: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """`command` is what each process of the node runs; `env` is shared by them."""

    node: Node
    node_rank: int
    command: tuple[Value, ...]
    env: Mapping[str, Value]
    processes: tuple[Process, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A job, decided down to the last argument. `preload`: modules worth importing once before ranks are forked.
    `success`: `all` = every process must exit 0; `head` = node 0 decides."""

    world_size: int
    nodes: tuple[NodePlan, ...]
    files: Mapping[str, Value]
    master_port: int
    preload: tuple[str, ...] = ()
    success: Literal["all", "head"] = "all"
    stop_signal: str = "SIGTERM"
    grace_seconds: float = GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing a backend sends: `content` is text, or an object that would be sent as JSON/YAML."""

    kind: str
    name: str
    content: Any


@dataclass(frozen=True, slots=True)
class Rendered:
    """What `submit` sends, and what the user sees in a preview: the same object."""

    name: str
    backend: str
    artifacts: tuple[Artifact, ...]

    def to_json(self) -> dict[str, Any]:
        """Shares the contents: `asdict` would copy every rank's environment, a third of a large preview's time."""
        artifacts = [{"kind": a.kind, "name": a.name, "content": a.content} for a in self.artifacts]
        return {"version": serialization.VERSION, "name": self.name, "backend": self.backend, "artifacts": artifacts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return serialization.load(cls, data)


NO_SECRETS: Mapping[str, str] = MappingProxyType({})
"""Values of a job's `secret_env`, by variable: handed to an engine with what was rendered, never stored with it."""


def attempt_name(task_id: str, number: int | str) -> str:
    """What engines know an attempt by: never random, so that doing it again is the same thing."""
    return f"{task_id}-{number}"


def attempt_parts(name: str) -> tuple[str, str]:
    """The task's id and the attempt's number; of what is not an attempt's name, whatever comes of it."""
    task_id, _, number = name.rpartition("-")
    return task_id, number


@dataclass(frozen=True, slots=True)
class Handle:
    """An attempt as its engine knows it: `name`, and where its ranks' logs go (`task_id`, `attempt`)."""

    name: str
    task_id: str
    attempt: int
    world_size: int

    @classmethod
    def of(cls, name: str) -> Self:
        """What the name alone tells; how many ranks there are is not in it: 0. Raises ValueError for what is not an
        attempt's name."""
        task_id, number = attempt_parts(name)
        return cls(name, task_id, int(number), world_size=0)


class Phase(StrEnum):
    """What an engine says of an attempt. UNKNOWN = it could not tell, and nothing may happen because of it."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RankSeen:
    rank: int
    node_rank: int
    state: Literal["waiting", "running", "exited"]
    pid: int | None = None
    exit_code: int | None = None  # negative = killed by that signal, as in subprocess
    ended_at: float | None = None  # unix seconds
    asked: bool = False  # it was told to end before it did
    still_since: float | None = None  # unix seconds; it has done nothing at all for long (`fermi.runner.activity`)
    error: Mapping[str, Any] | None = None  # the exception that ended it, where its probe saw one
    stalled: Mapping[str, Any] | None = None  # it has not advanced for longer than its past explains
    kill: Mapping[str, Any] | None = None  # what the kernel has to say of its end (`believed.KILL`)
    called_at: float | None = None  # unix seconds, by its node's clock: its runner was at work
    began_at: float | None = None  # and its process was started
    last_step: int | None = None  # optimizer steps that it had made when it ended, where its pulse was seen
    trainer: Mapping[str, Any] | None = None  # as in `PulseSeen`, when it ended
    joined_as: int | None = None  # the same


@dataclass(frozen=True, slots=True)
class PulseSeen:
    """How one rank gets on, as its runner saw it at `at`; moments in unix seconds, None = not known. It is asked for by
    whoever looks, and is no part of an observation: a healthy rank's steps are no news.

    phase          one of `fermi.probe.shared_page.PHASES`
    step           optimizer steps of this attempt
    step_seconds   from step to step, over the runner's window
    waiting        share of that window spent in collectives, 0 to 1; None where it cannot be seen
    printed_at     when its output last grew
    gpu_bytes      the most that was allocated on its GPU; rss_bytes: the most of the host's memory
    cpu            processors in use, over the window
    gpu            its `clock` and the `most` it could have in MHz, its `temperature` in °C, and by what it is `slowed`
    starved, throttled, stolen, squeezed   shares of the window, and read, written: bytes per second (see
                   `fermi.runner.pressure`); None where there is nothing to tell
    world_size     of the first process group that it makes
    joined_as      the rank as which it joins that, where it is not its own
    trainer        of Hugging Face's Trainer: its `step`, of `total`, its `epoch`; `every` how many steps it logs
    gpu_open       whether a process of it has a GPU open; None: not known, or it has made too few steps to tell
    cpu_build      its torch was built without support for GPUs
    compiles       how often something was compiled, `compiling`: seconds in it; `recompiled`: in how many steps after
                   the first ones, `recompiled_at`: the newest of them; `compiler`: the function that it `gave_up`
    place          where its main thread is between collectives (see `fermi.probe.stack_samples`)
    """

    rank: int
    at: float
    phase: str = "starting"
    step: int | None = None
    stepped_at: float | None = None
    step_seconds: float | None = None
    collectives: int | None = None
    waiting: float | None = None
    printed_at: float | None = None
    gpu_bytes: int | None = None
    rss_bytes: int | None = None
    cpu: float | None = None
    starved: float | None = None
    throttled: float | None = None
    stolen: float | None = None
    squeezed: float | None = None
    read: int | None = None
    written: int | None = None
    world_size: int | None = None
    joined_as: int | None = None
    trainer: Mapping[str, Any] | None = None
    gpu_open: bool | None = None
    cpu_build: bool | None = None
    compiles: int | None = None
    compiling: float | None = None
    recompiled: int | None = None
    recompiled_at: int | None = None
    compiler: Mapping[str, Any] | None = None
    place: Mapping[str, Any] | None = None
    gpu: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What one node of an attempt and its ranks used at `at` (unix seconds, by the node's clock): by key, as
    `fermi.telemetry.metrics` has them. `emulated`: its GPUs are stood in for by processes, and their values are what
    these use of the processors."""

    node_rank: int
    at: float
    values: Mapping[str, float]
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt waits or failed: a code and what fills its text. Part of that was printed by scripts and other
    systems; what cannot be stored is taken out here. The rest follows from the code alone and is declared once, by the
    engine whose code it is (`fermi.jobs.causes`).

    retry        another attempt may go well
    patient      waiting for it is never overdue: a queue of the engine's own admits the attempt when its turn comes
    free         so many such ends of a task are nobody's fault and cost no restart; what comes after is charged
    asked        somebody asked the ranks to end: they may be saving a checkpoint, and get the task's whole grace
    underlying   comes to light later than what ranks say of it, and takes the place of a rank's failure
    lost         the environment itself went away: an elastic task goes on without it, at no cost (`restarts`)
    halts        an attempt that has run and waits for it is over: it must not run again under the same name
    """

    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    retry: bool = dataclasses.field(default=False, compare=False, kw_only=True)
    patient: bool = dataclasses.field(default=False, compare=False, kw_only=True)
    free: int = dataclasses.field(default=0, compare=False, kw_only=True)
    asked: bool = dataclasses.field(default=False, compare=False, kw_only=True)
    underlying: bool = dataclasses.field(default=False, compare=False, kw_only=True)
    lost: bool = dataclasses.field(default=False, compare=False, kw_only=True)
    halts: bool = dataclasses.field(default=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "params", sanitize.params(dict(self.params)))

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Observation:
    """`left`: whether anything of the attempt exists or may still begin (None = not known). Only False frees its
    environments; of an attempt that has not begun it is False only once `cancel` has made it impossible. `waiting`: why
    it has not begun yet, where the engine knows."""

    phase: Phase
    left: bool | None = None
    ranks: tuple[RankSeen, ...] = ()
    cause: Cause | None = None
    waiting: Cause | None = None

    def to_json(self) -> dict[str, Any]:
        causes = {"cause": self.cause, "waiting": self.waiting}
        return {**asdict(self), **{name: said and said.to_json() for name, said in causes.items()}}


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one rank's log from a cursor on. `cursor` is where to go on reading; `end` = nothing more right now."""

    data: bytes
    cursor: int
    end: bool
