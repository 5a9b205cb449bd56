"""The values that frameworks and engines share: what a distributed job is, what it becomes, and what is observed of it.
All are frozen.

    JobSpec ──framework.plan──▶ Plan ──backend.render──▶ Rendered ──submit──▶ Handle ──observe──▶ Observation

A framework knows no engine and an engine knows no framework; they meet only in `Plan`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from fermi.probe.shared_page import PHASES  # noqa: F401 (for others)
from fermi.runner.exit_codes import DEFAULT_GRACE_SECONDS
from fermi.runner.late_values import LATE_TEXTS, Late, decode_value, encode_value, has_unknown_values, resolve  # noqa: F401 (for others)
from fermi.runner.ports import DEFAULT_MASTER_PORT
from fermi.runner.run_names import build_run_name, parse_run_name
from fermi.schema import sanitize, serialization

MAX_RESTARTS = 3
"""How often a failed attempt is followed by another, by default."""

DRILL_MINUTES = 15.0

PREFLIGHT = "preflight"
"""The framework of pre-flight tests."""

PYTHON_PROGRAMS = ("python", "python3")
"""Names by which commands call the task's interpreter."""
SCRIPT_SUFFIXES = (".py", ".sh", ".bash")

Value: TypeAlias = str | Late | tuple[str | Late, ...]
"""Text, a late value, or pieces of both to be joined."""


@dataclass(frozen=True, slots=True)
class RunLocation:
    """Where the ranks of a node run, inside of its environment or beside it, and why: a code with its texts in
    `fermi.messages`, and their params."""

    inside: bool
    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Node:
    """A dev environment as it was when the task was submitted. `emulated`: CPU processes stand in for its GPUs.
    `engine`: what only its engine understands. `way`: where its ranks run (`fermi.jobs.run_location`); None: its engine
    has one location alone, or it is not decided yet."""

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
    way: RunLocation | None = None

    @property
    def inside(self) -> bool:
        """Whether its ranks run inside of the environment, whose container the platform does not own."""
        return self.way is not None and self.way.inside

    @property
    def address(self) -> str:
        """The address by which other nodes reach it in an exported job, as far as it is known before a job runs."""
        return str(self.engine.get("address") or self.ip or self.host or self.name)

    @property
    def hostname(self) -> str:
        """The address by which an engine's other nodes reach it: Slurm and workers' hosts know each other by name."""
        return str(self.engine.get("address") or self.host or self.ip or self.name)

    @property
    def processes(self) -> int:
        """Ranks on this node: one per GPU, and one on a node that has none."""
        return max(self.gpu_count, 1)

    @property
    def has_cuda(self) -> bool:
        return self.gpu_count > 0 and not self.emulated


AFTER_CHECKPOINT, AFTER_OUTPUTS = "{after.checkpoint}", "{after.outputs}"
"""Placeholders of a task that comes after another one (`fermi.runner.placeholders`)."""
RESUME_PLACEHOLDERS = {
    "{path}": "{resume_from}",
    "{step}": "{resume_step}",
    "{folder}": "{resume_folder}",
    "{name}": "{resume_name}",
}
"""Placeholders of a resume rule, and those of `fermi.runner.placeholders` that a node's runner fills."""


@dataclass(frozen=True, slots=True)
class ResumeRule:
    """How a script is told to resume from a checkpoint: arguments and variables of an attempt that resumes, with
    `{path}`, `{step}`, `{folder}` (in which the checkpoint is) and `{name}` (of the checkpoint there). `itself`: the
    script looks for its newest checkpoint itself, in each attempt."""

    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)  # entry points are keys of caches
    itself: bool = False

    @property
    def filled_args(self) -> tuple[str, ...]:
        """The arguments, with the placeholders that a node's runner knows."""
        return tuple(map(_fill_resume_text, self.args))

    @property
    def filled_env(self) -> dict[str, str]:
        """The variables, with the placeholders that a node's runner knows."""
        return {name: _fill_resume_text(value) for name, value in self.env.items()}


def _fill_resume_text(text: str) -> str:
    for name, placeholder in RESUME_PLACEHOLDERS.items():
        text = text.replace(name, placeholder)
    return text


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """What runs in place of the model's recipe: the user's own script, a module as `python -m` runs it, or any command,
    and its arguments. `processes`: it is started once per GPU, or once per node and starts the node's ranks itself.
    `resume`: how it is told to resume from a checkpoint; None: by FERMI_RESUME_FROM alone, if at all."""

    script: str = ""
    args: tuple[str, ...] = ()
    module: str = ""
    command: tuple[str, ...] = ()
    processes: Literal["gpu", "node"] = "gpu"
    resume: ResumeRule | None = None

    @property
    def starts_ranks(self) -> bool:
        """Whether it is started once per node, and starts the node's ranks itself."""
        return self.processes == "node"

    def build_command(self, appended: Sequence[Value] = (), resumed: Sequence[str] = ()) -> tuple[Value, ...]:
        """Return the words to be executed. `appended`: arguments of the platform's, before the user's own; `resumed`:
        those of the resume rule, behind them. A command that names `python`, or `torchrun` (a script around a module of
        the same interpreter: https://docs.pytorch.org/docs/stable/elastic/run.html), runs with the interpreter of the
        task."""
        args = (*appended, *self.args, *resumed)
        if not self.command:
            return Late.PYTHON, "-u", *self.words, *args
        first, *rest = self.command
        if first in PYTHON_PROGRAMS:
            return Late.PYTHON, *rest, *args
        if first == "torchrun":
            return Late.PYTHON, "-m", "torch.distributed.run", *rest, *args
        return *self.command, *args

    @property
    def words(self) -> tuple[str, ...]:
        """The words after `python -u`, without the arguments; the whole command, if it is one."""
        return self.command or (("-m", self.module) if self.module else (self.script,))

    @property
    def paths(self) -> tuple[str, ...]:
        """The files any of which it may be. Those of a module begin in the folder in which ranks start, where `python
        -m` looks first; it may be an installed module as well. Those of a command are its words that name a script in
        that folder."""
        path = self.module.replace(".", "/")
        if path:
            return f"{path}.py", f"{path}/__main__.py"
        if self.script:
            return (self.script.removeprefix("./"),)
        words = zip(("", *self.command), self.command, strict=False)
        return tuple(word.removeprefix("./") for before, word in words if before != "-c" and _is_script(word))

    @property
    def field(self) -> str:
        """The field of the request that names it."""
        return f"entrypoint.{'command' if self.command else 'module' if self.module else 'script'}"


def _is_script(word: str) -> bool:
    return word.endswith(SCRIPT_SUFFIXES) and not word.startswith(("-", "/"))


@dataclass(frozen=True, slots=True)
class Code:
    """A snapshot that every node gets before its ranks start in it. `snapshot`: its id; empty until it has been
    fetched. `folder`: where it is stored, ready for delivery. `requirements`: `auto`, `off`, or a file of the snapshot.
    `source`: what it is, or was, fetched from, as `Fetch.source` names it; empty: it was uploaded. `origin`: where it
    came from, for people."""

    snapshot: str = ""
    folder: str = ""
    requirements: str = "auto"
    source: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    origin: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Elastic:
    """On how many nodes a job may run, and what stays the same on each number of them (`fermi.jobs.elastic`).

    nodes, master   all that were chosen; the job's own are those it runs on now
    world_size      processes at the size asked for; 0: the job keeps its nodes, as in an exported job
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
    `model_parameters`: number of weights, where the user stated it; else see `recipes.count_model_parameters`.
    `resume_step`: of the checkpoint `resume_from`, where it is known.
    `after`: ids of the tasks that have to end before its first attempt; `after_checkpoint`, `after_outputs`: of the
    first of them, once all have ended as they have to.
    `secret_env`: variables whose values are secrets, with the secrets' names; a value is never part of a job, a plan or
    what is rendered. `spares`: environments that replace lost ones; `left_out`: those that the user excluded from the
    next attempt on; `when_in_use`: what the first attempt does where other programs hold memory; `preflight`: the test
    before it, or off; `drill`: the restart drill before it, or off, for at most `drill_minutes`. `rehearses`: this is a
    drill, and a rank is to be killed once it has saved. `priority`: the class
    (`fermi.scheduler.snapshot.PRIORITY_NUMBERS`); `project`: an id; `max_run`: seconds for which it may still hold its
    environments, None: no limit. `run_in`: where ranks are to run (`fermi.jobs.run_location`); `python`: the
    interpreter that they run with inside of an environment, by its path or as a kernel of its notebook (empty: the
    environment's default). `output_dir`: a folder of the task's own, kept like its checkpoints; `files_dir`,
    `files_url`: where its project's files are, as a folder or in object storage. `pulse`: whether ranks carry the
    probe; `on_hang`, `on_bad_loss`, `on_crash_loop`: what follows from each, and `hang_seconds`: seconds without a sign
    of progress after which a rank is examined (None: derived from its own past)."""

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
    master_port: int = DEFAULT_MASTER_PORT
    train_data: str = ""
    valid_data: str = ""
    checkpoint_dir: str = ""
    output_dir: str = ""
    files_dir: str = ""
    files_url: str = ""
    resume_from: str = ""
    resume_step: int | None = None
    after: tuple[str, ...] = ()
    after_checkpoint: str = ""
    after_outputs: str = ""
    attempt: int = 0
    grace_seconds: float = DEFAULT_GRACE_SECONDS
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
        """Return whether a file is one of the job's code, and not of its node."""
        return self.code is not None and not path.startswith("/")

    @property
    def name(self) -> str:
        return build_run_name(self.task_id, self.attempt)

    def build_watch_options(self) -> dict[str, Any]:
        """Return how a node runner starts and watches its ranks, as keys of a node's spec: the same on every engine."""
        started = {"processes": "node"} if self.starts_ranks else {}
        is_named = self.attempt == 1 and self.resume_from not in ("", "auto")  # by the request
        resumes = {"resumes": True} if self.resume_rule or is_named else {}
        in_place = {"resumes_in_place": True} if self.resumes_in_place else {}
        return {"pulse": self.pulse, "hang_seconds": self.hang_seconds, **started, **resumes, **in_place}

    @property
    def starts_ranks(self) -> bool:
        """Whether one process per node is started, which starts the others."""
        return self.entrypoint is not None and self.entrypoint.starts_ranks

    @property
    def foreign_paths(self) -> tuple[str, ...]:
        """Return the paths in folders of other tasks that this one may read: what it resumes from, and what it was
        given of the task that it came after."""
        return tuple(path for path in (self.resume_from, self.after_checkpoint, self.after_outputs) if path)

    @property
    def head(self) -> Node:
        """The node on which rank 0 runs, and where all others meet."""
        return next(node for node in self.nodes if node.id == self.master)

    @property
    def world_size(self) -> int:
        return sum(node.processes for node in self.nodes)

    @property
    def resume_rule(self) -> ResumeRule | None:
        """How the script of this attempt is told to resume; None where it does not, or no rule is given."""
        given = self.entrypoint.resume if self.entrypoint and self.resume_from not in ("", "auto") else None
        return given if given and not given.itself else None

    @property
    def resumes_in_place(self) -> bool:
        """Whether the script looks for the checkpoint of this attempt where it saves its own, because it is not told
        where it is."""
        rule = self.entrypoint.resume if self.entrypoint and self.resume_from not in ("", "auto") else None
        if rule is None:
            return False
        return not any(place in text for place in ("{path}", "{folder}") for text in (*rule.args, *rule.env.values()))

    def for_attempt(self, number: int, *, master_port: int, resume_from: str, resume_step: int | None = None) -> Self:
        """Return the job with the number, master port and checkpoint of an attempt."""
        return replace(self, attempt=number, master_port=master_port, resume_from=resume_from, resume_step=resume_step)

    def to_json(self) -> dict[str, Any]:
        return serialization.dump(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return serialization.load(cls, data)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a request, or a warning. `field` is a path in the API's spelling; the texts for `code` are
    in `fermi.messages` and are filled from `params` (what was found, what is allowed)."""

    field: str
    code: str
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a framework chooses where the user chose nothing, in the request's own spelling (`strategy`, `options`), and
    the reasons, each a code with its texts in `fermi.messages`."""

    strategy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    reasons: tuple[Problem, ...] = ()

    def to(self, spec: JobSpec) -> JobSpec:
        """Return the job as if the user had given the proposal."""
        strategy, options = {**spec.strategy, **self.strategy}, {**spec.options, **self.options}
        return replace(spec, strategy=strategy, options=options)


@dataclass(frozen=True, slots=True)
class Process:
    """One rank: its numbers, the GPU index that it uses on its node (None = CPU), and the variables that only it
    gets."""

    rank: int
    local_rank: int
    device: int | None
    env: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The plan of one node. `command`: what each of its processes runs; `env`: the variables that they share."""

    node: Node
    node_rank: int
    command: tuple[Value, ...]
    env: Mapping[str, Value]
    processes: tuple[Process, ...]

    def format_ranks(self) -> str:
        """Return `rank 3`, or `ranks 0-3`."""
        first, last = self.processes[0].rank, self.processes[-1].rank
        return f"rank {first}" if first == last else f"ranks {first}-{last}"


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
    grace_seconds: float = DEFAULT_GRACE_SECONDS


@dataclass(frozen=True, slots=True)
class Artifact:
    """One thing that an engine submits: `content` is text, or an object that is sent as JSON or YAML."""

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
        """Return it as JSON that shares the contents: `asdict` would copy every rank's variables, a third of a large
        preview's time."""
        artifacts = [{"kind": a.kind, "name": a.name, "content": a.content} for a in self.artifacts]
        return {"version": serialization.VERSION, "name": self.name, "backend": self.backend, "artifacts": artifacts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return serialization.load(cls, data)


NO_SECRETS: Mapping[str, str] = MappingProxyType({})
"""Values of a job's `secret_env`, by variable: passed to an engine with what was rendered, never stored with it."""


@dataclass(frozen=True, slots=True)
class Handle:
    """An attempt as its engine knows it: `name`, and where its ranks' logs go (`task_id`, `attempt`)."""

    name: str
    task_id: str
    attempt: int
    world_size: int

    @classmethod
    def from_name(cls, name: str) -> Self:
        """Return the handle of a name; the number of ranks is not in it: 0. Raises ValueError for what is no attempt's
        name."""
        task_id, number = parse_run_name(name)
        return cls(name, task_id, int(number), world_size=0)


class Phase(StrEnum):
    """What an engine reports of an attempt. UNKNOWN = it could not tell, and nothing may be done because of it."""

    UNKNOWN = "unknown"
    ABSENT = "absent"
    STARTING = "starting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RankStatus:
    """One rank as its runner reported it."""

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
class RankProgress:
    """The progress of one rank, as its runner saw it at `at`; times in unix seconds, None = unknown. It is read on
    request and is no part of an observation: a healthy rank's steps change nothing.

    phase          one of `fermi.probe.shared_page.PHASES`
    step           optimizer steps of this attempt
    step_seconds   from step to step, over the runner's window
    waiting        share of that window spent in collectives, 0 to 1; None where it cannot be seen
    printed_at     when its output last grew
    gpu_bytes      the most that was allocated on its GPU; rss_bytes: the most of the host's memory
    cpu            processors in use, over the window
    gpu            its `clock` and the `most` it could have in MHz, its `temperature` in °C, and by what it is `slowed`
    starved, throttled, stolen, squeezed   shares of the window, and read, written: bytes per second (see
                   `fermi.runner.pressure`); None where there is nothing to report
    world_size     of the first process group that it makes
    joined_as      the rank as which it joins that, where it is not its own
    trainer        of Hugging Face's Trainer: its `step`, of `total`, its `epoch`; `every` how many steps it logs
    gpu_open       whether a process of it has a GPU open; None: unknown, or it has made too few steps to tell
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
    """What one node of an attempt and its ranks used at `at` (unix seconds, by the node's clock), by key as in
    `fermi.telemetry.metrics`. `emulated`: processes stand in for its GPUs, and their values are these processes' use of
    the processors."""

    node_rank: int
    at: float
    values: Mapping[str, float]
    emulated: bool = False


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an attempt waits or failed: a code and what fills its text. Part of that was printed by scripts and other
    systems; what cannot be stored is removed here. The rest follows from the code alone and is declared once, by the
    engine whose code it is (`fermi.jobs.causes`).

    retry        another attempt may succeed
    patient      waiting for it is never overdue: the engine's own queue admits the attempt in its turn
    free         the number of such ends of a task that cost no restart; further ones are charged
    asked        a user or the platform asked the ranks to end: they may be saving a checkpoint, and get the whole grace
    underlying   comes to light later than what ranks report, and replaces a rank's failure
    lost         the environment itself went away: an elastic task continues without it, at no cost (`restarts`)
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
        object.__setattr__(self, "params", sanitize.sanitize_params(dict(self.params)))

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Observation:
    """An attempt as its engine reports it. `left`: whether anything of the attempt exists or may still start (None =
    unknown). Only False frees its environments; of an attempt that has not started it is False only once `cancel` has
    made a start impossible. `waiting`: why it has not started, where the engine knows."""

    phase: Phase
    left: bool | None = None
    ranks: tuple[RankStatus, ...] = ()
    cause: Cause | None = None
    waiting: Cause | None = None

    def to_json(self) -> dict[str, Any]:
        causes = {"cause": self.cause, "waiting": self.waiting}
        return {**asdict(self), **{name: said and said.to_json() for name, said in causes.items()}}


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of one rank's log from a cursor on. `cursor`: where to continue reading; `end`: nothing more at present."""

    data: bytes
    cursor: int
    end: bool
