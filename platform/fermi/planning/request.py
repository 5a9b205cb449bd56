"""The request for a training task: names, defaults, bounds, and the command line's flag of each field.

Everything reads it from here: the API and its document (and from that the client's types and the create form), exported
scripts (`fermi.export.request` adds what a platform would look up), groups of workers, and the flags of `fermi submit`.
`docs/adding-a-field.md` follows one field from here to the ranks.

Rules check what a field means beyond its own value (an environment that does not exist, a master that was not chosen).
So what they need may be missing here: empty is what was left out, null what was left out on purpose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from fermi.jobs import json_shape, ranks
from fermi.jobs.spec import DRILL_MINUTES, MAX_RESTARTS, Code, Elastic, Entrypoint, JobSpec, Node, Problem, ResumeRule
from fermi.planning import plugins
from fermi.planning.tags import MAX_TAG_LENGTH, MAX_TAGS, TAG_PATTERN
from fermi.runner.exit_codes import DEFAULT_GRACE_SECONDS
from fermi.scheduler.snapshot import PRIORITY_NUMBERS, Select, classify_priority

MAX_INTEGER = 2**31 - 1
"""The largest number that a database column of four bytes holds."""

MASTER_PORTS = range(1024, 65536)
MAX_RESTARTS_LIMIT = 100
MAX_GRACE_SECONDS = 3600  # seconds
MIN_HANG_SECONDS, MAX_HANG_SECONDS = 5, 86_400  # seconds
MAX_DRILL_MINUTES = 1440  # minutes
MAX_NAME_LENGTH = 100
EXISTING, NEW = "existing", "new"
DEFAULT_MIN_RUN_SECONDS = 300
MAX_MIN_RUN_SECONDS = 86_400
MAX_RUN_SECONDS = 365 * 86_400


def describe_field(
    description: str = "",
    *,
    flag: str = "",
    shown: Mapping[str, Any] | None = None,
    codes: Mapping[str, str] | None = None,
    **rules: Any,
) -> Meta:
    """Return what is known of a field beside its type: its description in the API's document, the command line's flag
    (and how it is `shown`: other choices, another metavar), the codes of its own for rules that it breaks (see
    `fermi.jobs.json_shape`), and the rules. `bounds`: bounds that are documented here and checked by the rules, which
    know more."""
    words = {"x-codes": dict(codes)} if codes else {}
    flags = {"x-flag": {"name": flag, **(shown or {})}} if flag else {}
    trim = {"x-trim": True} if rules.pop("trim", False) else {}
    if bounds := rules.pop("bounds", None):
        words = {"minimum": bounds[0], "maximum": bounds[1], "x-codes": {"minimum": "", "maximum": ""}}
    choices = {"x-enum": rules.pop("choices")} if "choices" in rules else {}
    full = {"minLength": 1, "pattern": json_shape.NOT_BLANK_PATTERN} if rules.pop("full", False) else {}
    return Meta(
        description=description or None,
        extra_json_schema={**words, **flags, **trim, **full, **choices} or None,
        **rules,
    )


def _describe_text(max_length: int, description: str = "", **more: Any) -> Meta:
    """Return what is known of a text that must not be blank; white space around it does not count."""
    return describe_field(description, max_length=max_length, trim=True, full=True, **more)


Key: TypeAlias = Annotated[str, _describe_text(100)]
"""The id of something that exists already."""

KeyOrBlank: TypeAlias = Annotated[str, describe_field(max_length=100, trim=True)]
MAX_NODES = 4096
Keys: TypeAlias = Annotated[tuple[Key, ...], Meta(max_length=MAX_NODES)]
MAX_VARIABLES = 1000
"""Entries of a map whose names the caller chooses."""

Values: TypeAlias = Annotated[dict[str, Any], Meta(max_length=MAX_VARIABLES)]


_Words: TypeAlias = Annotated[tuple[Annotated[str, Meta(max_length=4000)], ...], Meta(max_length=1000)]


class ResumeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """How a script is told to resume, in every attempt that does: {path} is the checkpoint, {step} its step, {folder}
    the folder that it is in, {name} its name there."""

    args: Annotated[
        _Words, describe_field("behind the script's other arguments: --resume_from_checkpoint, {path}")
    ] = ()
    env: Annotated[dict[str, Annotated[str, Meta(max_length=4000)]], describe_field("variables", max_length=100)] = {}
    itself: Annotated[bool, describe_field("the script looks for its newest checkpoint itself, in each attempt")] = (
        False
    )


class EntrypointRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """One of script, module and command."""

    script: Annotated[str, _describe_text(500, "a Python script")] = ""
    module: Annotated[str, _describe_text(500, "a module, which ranks run as `python -m` does: pkg.train")] = ""
    command: Annotated[
        _Words, describe_field("a program and its arguments, as words: torchrun, --nproc_per_node=2, train.py")
    ] = ()
    args: _Words = ()
    processes: Annotated[
        Literal["gpu", "node"],
        describe_field(
            "one process per GPU; or one per node, for a program that starts its ranks itself",
            choices=["gpu", "node"],
        ),
    ] = "gpu"
    resume: Annotated[
        ResumeRequest | None,
        describe_field("how the script is told to resume; by default by FERMI_RESUME_FROM alone"),
    ] = None


class ElasticRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    min_nodes: Annotated[int, describe_field("with fewer it waits", ge=1, le=MAX_NODES)] = 1
    max_nodes: Annotated[int, describe_field("as many as were chosen by default", ge=1, le=MAX_NODES)] | None = None


class SelectRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Capacity in place of environments by name: `fermi.scheduler.snapshot.Select`."""

    nodes: Annotated[int, describe_field("how many environments", ge=1, le=MAX_NODES)] | None = None
    gpus_per_node: Annotated[int, describe_field("GPUs that are used of each", ge=1, le=1024)] | None = None
    total_gpus: (
        Annotated[int, describe_field("in any mixture, in place of gpusPerNode", ge=1, le=MAX_INTEGER)] | None
    ) = None
    gpu_types: Keys = ()
    zones: Annotated[tuple[Key, ...], describe_field("ids or names", max_length=MAX_NODES)] = ()
    same_zone: bool = False
    labels: Annotated[dict[str, Annotated[str, Meta(max_length=100)]], Meta(max_length=32)] = {}
    exclude: Annotated[tuple[Key, ...], describe_field("ids of environments", max_length=MAX_NODES)] = ()


class GitRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    url: Annotated[str, _describe_text(500, "https://… or ssh://…; submodules and LFS are not fetched")]
    revision: Annotated[str, _describe_text(200, "a branch, a tag or a commit; by default the remote's HEAD")] = "HEAD"
    secret: Annotated[
        Annotated[str, _describe_text(63)] | None,
        describe_field("a secret of the project: a token for https, a private key for ssh"),
    ] = None


class CodeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A snapshot, git or environment. A snapshot is run as it is: git or environment beside it state where it came
    from, so that a retry can fetch the code anew from there."""

    snapshot: Annotated[
        Annotated[str, _describe_text(64)] | None, describe_field("the id of a snapshot of the project")
    ] = None
    git: GitRequest | None = None
    environment: Annotated[
        Literal["master"] | None, describe_field("the working directory of the master environment", choices=["master"])
    ] = None
    path: Annotated[str, _describe_text(500, "of the environment: the folder, from its working directory")] = "."
    requirements: Annotated[
        str,
        _describe_text(
            500,
            "packages prepared once per node: auto (uv.lock or requirements.txt in its root), off, or a file of it",
        ),
    ] = "auto"


class NewEnvironmentsRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Environments that are created for the task, with `launchMode` new; all of one template, the first is the
    master."""

    template: Annotated[KeyOrBlank, describe_field("id of an environment template")] = ""
    count: Annotated[int, describe_field("how many environments", ge=1, le=MAX_NODES)] = 1
    afterwards: Annotated[
        Literal["delete", "stop", "keep"],
        describe_field(
            "what becomes of them when the task has ended; stop keeps their disks",
            choices=["delete", "stop", "keep"],
        ),
    ] = "delete"
    cluster_id: Annotated[KeyOrBlank | None, describe_field("where; as the template says by default")] = None
    zone: Annotated[KeyOrBlank | None, describe_field("id or name; as the template says by default")] = None


class AfterRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task of the same project that has to end first, and how."""

    task: Annotated[str, _describe_text(100, "the id of the task")]
    on: Annotated[
        Literal["succeeded", "failed", "ended"],
        describe_field(
            "how it has to end; ended: in any way, so also stopped", choices=["succeeded", "failed", "ended"]
        ),
    ] = "succeeded"
    checkpoint: Annotated[
        Literal["newest", "best"],
        describe_field("which of its checkpoints {after.checkpoint} stands for", choices=["newest", "best"]),
    ] = "newest"


MAX_AFTER = 20
"""Most tasks that a task may wait for."""


class DistributedConfigRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    enabled: bool = True
    node_ids: Keys = ()
    select: Annotated[
        SelectRequest | None,
        describe_field(
            "capacity in place of nodeIds: the platform chooses when the turn comes",
            flag="--select",
            shown={"metavar": "KEY=VALUE,…", "parts": True},
        ),
    ] = None
    master_node: KeyOrBlank | None = None
    framework: Annotated[
        str,
        _describe_text(
            40,
            "see /frameworks",
            flag="--framework",
            codes=dict.fromkeys(("minLength", "null"), "FRAMEWORK_REQUIRED"),
        ),
    ] = plugins.DEFAULT_FRAMEWORK
    master_port: (
        Annotated[
            int,
            describe_field(
                "the first of the platform's range by default",
                flag="--master-port",
                codes=dict.fromkeys(("minimum", "maximum"), "PORT_OUT_OF_RANGE"),
                ge=MASTER_PORTS[0],
                le=MASTER_PORTS[-1],
            ),
        ]
        | UnsetType
    ) = UNSET
    backend: Annotated[
        str,
        _describe_text(
            20,
            "auto, nccl or gloo",
            flag="--backend",
            shown={"choices": ["auto", "nccl", "gloo"]},
        ),
    ] = "auto"
    world_size: Annotated[
        int | None,
        describe_field(
            "how many processes; all by default, with fewer those with the first ranks",
            flag="--world-size",
            bounds=(1, MAX_INTEGER),
        ),
    ] = None
    strategy: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=MAX_INTEGER)]],
        describe_field("dataParallel, tensorParallel, …", flag="--strategy", max_length=MAX_VARIABLES),
    ] = {}
    options: Annotated[Values, describe_field("the framework's own", flag="--option")] = {}
    run_in: Annotated[
        Literal["auto", "environment", "pod", "beside"],
        describe_field(
            "inside the environments, with their GPUs, packages and files, or beside them; auto: for each by itself",
            flag="--run-in",
            choices=["auto", "environment", "pod", "beside"],
        ),
    ] = "auto"
    python: Annotated[
        Annotated[str, describe_field(max_length=500, trim=True)] | None,
        describe_field(
            "the interpreter inside the environments: a path, or the name of a kernel; by default that of the notebook",
            flag="--python",
        ),
    ] = None
    elastic: Annotated[
        ElasticRequest | None,
        describe_field(
            "goes on with fewer nodes when one is lost, and with more when it is back; the global batch stays the same",
            flag="--elastic",
            shown={"metavar": "MIN[:MAX]", "range": ["minNodes", "maxNodes"]},
        ),
    ] = None


_CLASSES = describe_field(choices=["low", "normal", "high", "urgent"])


class TaskRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task. What is missing is reported by the rules, together with everything else that is wrong."""

    task_name: Annotated[
        str,
        _describe_text(
            MAX_NAME_LENGTH,
            "required",
            flag="--name",
            codes={"minLength": "NAME_REQUIRED", "maxLength": "NAME_TOO_LONG"},
        ),
    ] = ""
    dataset_id: Annotated[
        KeyOrBlank | None, describe_field("required; null for a script of one's own that reads none")
    ] = ""
    dataset_version_id: Annotated[KeyOrBlank | None, describe_field("required with datasetId")] = ""
    model_id: Annotated[
        KeyOrBlank | None, describe_field("without one: the reference GPT, or what the script brings")
    ] = ""
    project_id: Annotated[
        KeyOrBlank | None,
        describe_field(
            "whose task it is; by default the project of its environments, or the only one you are a member of"
        ),
    ] = None
    tags: Annotated[
        tuple[
            Annotated[
                str,
                describe_field(
                    max_length=MAX_TAG_LENGTH, trim=True, pattern=TAG_PATTERN, codes={"pattern": "TAG_INVALID"}
                ),
            ],
            ...,
        ],
        describe_field(
            "by which its runs are found again; they can be changed later", flag="--tag", max_length=MAX_TAGS
        ),
    ] = ()
    launch_mode: Annotated[str, _describe_text(100, "existing, or new for environments that are made for the task")] = (
        EXISTING
    )
    new_environments: Annotated[
        NewEnvironmentsRequest | None,
        describe_field(
            "with launchMode new: made for this task from a template",
            flag="--new",
            shown={"metavar": "KEY=VALUE,…", "parts": True},
        ),
    ] = None
    environment_ids: Keys = ()
    spare_environment_ids: Annotated[
        Keys,
        describe_field("between attempts, these take the places of environments that were lost; without any, it waits"),
    ] = ()
    distributed_config: DistributedConfigRequest | None = None
    entrypoint: EntrypointRequest | None = None
    code: Annotated[
        CodeRequest | None,
        describe_field(
            "a snapshot that every node gets before the ranks start in it; relative scripts are looked for there"
        ),
    ] = None
    hyperparameters: Annotated[Values, describe_field(flag="--hp")] = {}
    env: Annotated[
        dict[str, Annotated[str, Meta(max_length=32_000)]],
        describe_field(flag="--set-env", max_length=MAX_VARIABLES),
    ] = {}
    secret_env: Annotated[
        dict[str, Annotated[str, _describe_text(63)]],
        describe_field(
            "variables by name, each with the name of a secret of the project whose value it gets",
            flag="--secret-env",
            shown={"metavar": "KEY=SECRET"},
            max_length=MAX_VARIABLES,
        ),
    ] = {}
    max_restarts: Annotated[
        int,
        describe_field(
            flag="--max-restarts",
            codes=dict.fromkeys(("minimum", "maximum"), "MAX_RESTARTS_OUT_OF_RANGE"),
            ge=0,
            le=MAX_RESTARTS_LIMIT,
        ),
    ] = MAX_RESTARTS
    grace_seconds: Annotated[
        float,
        describe_field(
            "how long ranks may take to end when they are asked to, to save a checkpoint; after it they are killed",
            flag="--grace",
            ge=0,
            le=MAX_GRACE_SECONDS,
        ),
    ] = DEFAULT_GRACE_SECONDS
    priority: Annotated[
        Annotated[int, Meta(ge=-1000, le=1000)] | Annotated[Literal["low", "normal", "high", "urgent"], _CLASSES],
        describe_field(
            "low, normal, high or urgent; as a number: below 0, 0, above 0, from 100",
            flag="--priority",
            shown={"metavar": "low|normal|high|urgent"},
        ),
    ] = 0
    preemptible: Annotated[
        bool,
        describe_field(
            "gives way to tasks of a higher class, and goes on from its checkpoint later", flag="--preemptible"
        ),
    ] = False
    min_run_seconds: Annotated[
        int,
        describe_field(
            "so long it is not preempted once it has its environments", flag="--min-run", ge=0, le=MAX_MIN_RUN_SECONDS
        ),
    ] = DEFAULT_MIN_RUN_SECONDS
    max_run_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_RUN_SECONDS)] | None,
        describe_field(
            "so long it holds its environments at most, all attempts together; then it ends", flag="--max-run"
        ),
    ] = None
    when_in_use: Annotated[
        Literal["start", "wait"],
        describe_field(
            "when a notebook or another program holds memory in one of its environments: start beside it, or wait",
            flag="--when-in-use",
            choices=["start", "wait"],
        ),
    ] = "start"
    resume_from: Annotated[
        Annotated[str, describe_field(max_length=500, trim=True)] | None,
        describe_field(flag="--resume-from"),
    ] = None
    after: Annotated[
        tuple[AfterRequest, ...],
        describe_field(
            "tasks that have to end first; {after.checkpoint} and {after.outputs} in arguments are those of the first",
            max_length=MAX_AFTER,
        ),
    ] = ()
    preflight: Annotated[
        Literal["off", "quick", "full"],
        describe_field(
            "a pre-flight test before the first attempt; a task whose nodes are not fit fails with the culprit",
            flag="--preflight",
            choices=["off", "quick", "full"],  # in this order; msgspec sorts them
        ),
    ] = "off"

    drill: Annotated[
        Literal["off", "on"],
        describe_field(
            "a rehearsal before the first attempt: a rank is killed, and a task that does not resume fails",
            flag="--drill",
            choices=["off", "on"],
        ),
    ] = "off"
    drill_minutes: Annotated[
        float,
        describe_field(
            "how long a drill waits for a checkpoint, and for the resumed step",
            flag="--drill-minutes",
            ge=1,
            le=MAX_DRILL_MINUTES,
        ),
    ] = DRILL_MINUTES

    pulse: Annotated[
        Literal["on", "off"],
        describe_field(
            "a small probe in every rank: steps, stacks and collectives without a line printed",
            flag="--pulse",
            choices=["on", "off"],
        ),
    ] = "on"
    on_hang: Annotated[
        Literal["report", "restart", "stop"],
        describe_field(
            "when a hang is certain: report it, restart from the newest checkpoint, or stop",
            flag="--on-hang",
            choices=["report", "restart", "stop"],
        ),
    ] = "restart"
    hang_seconds: Annotated[
        Annotated[float, Meta(ge=MIN_HANG_SECONDS, le=MAX_HANG_SECONDS)] | None,
        describe_field(
            "without a step, a line or a metric for so long a rank is looked at; by default what its past explains",
            flag="--hang-seconds",
        ),
    ] = None
    on_bad_loss: Annotated[
        Literal["report", "stop", "rollback"],
        describe_field(
            "when the loss is not a number, infinite or jumps; rollback: go on from the newest checkpoint before it",
            flag="--on-bad-loss",
            choices=["report", "stop", "rollback"],
        ),
    ] = "report"
    on_crash_loop: Annotated[
        Literal["stop", "restart"],
        describe_field(
            "when the same rank fails in the same way at the same step twice",
            flag="--on-crash-loop",
            choices=["stop", "restart"],
        ),
    ] = "stop"

    @property
    def priority_number(self) -> int:
        return PRIORITY_NUMBERS[self.priority] if isinstance(self.priority, str) else self.priority

    @property
    def distributed(self) -> DistributedConfigRequest:
        """The configuration that applies: the defaults where there is none, or it is not enabled."""
        config = self.distributed_config
        return config if config and config.enabled else DistributedConfigRequest()


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request as it was sent (`body`), what could be read of it (`task`), and the problems of the other fields."""

    body: Mapping[str, Any]
    task: TaskRequest
    problems: Sequence[Problem] = ()


def parse_request(body: Mapping[str, Any]) -> ParsedRequest:
    """Return the request that a JSON object is. Raises nothing: what is wrong is in `problems`."""
    return ParsedRequest(body, *json_shape.read_object(TaskRequest, body))


def limit_world_size(
    nodes: Sequence[Node], master: str, world_size: int | None
) -> tuple[Sequence[Node], list[Problem]]:
    """Return all of the nodes, or the part of them that has the first `worldSize` ranks, and what is wrong with that
    number."""
    there = sum(node.processes for node in nodes)
    if world_size is None:
        return nodes, []
    if not 1 <= world_size <= there:
        params = {"found": world_size, "high": there}
        return nodes, [Problem("distributedConfig.worldSize", "WORLD_SIZE_TOO_LARGE", params)]
    return ranks.select_first_ranks(nodes, master, world_size), []


def trim_nodes(select: Select, nodes: Sequence[Node], world_size: int | None = None) -> tuple[Node, ...]:
    """Return the part of the chosen environments that was asked for, the first of them being the master. `world_size`:
    the request's."""
    if select.gpus_per_node is not None:
        nodes = [ranks.select_first_ranks([node], node.id, select.gpus_per_node)[0] for node in nodes]
    total = world_size or select.total_gpus or sum(node.processes for node in nodes)
    return ranks.select_first_ranks(nodes, nodes[0].id, total)


def _build_entrypoint(asked: EntrypointRequest) -> Entrypoint:
    resume = ResumeRule(asked.resume.args, asked.resume.env, asked.resume.itself) if asked.resume else None
    return Entrypoint(asked.script, asked.args, asked.module, asked.command, asked.processes, resume)


def build_job(
    request: TaskRequest,
    *,
    task_id: str,
    framework: str,
    nodes: Sequence[Node],
    master: str,
    master_port: int,
    checkpoint_dir: str,
    output_dir: str = "",
    files_dir: str = "",
    files_url: str = "",
    resume_from: str,
    recipe: str = "gpt",
    defaults: Mapping[str, Any] | None = None,
    model_parameters: int | None = None,
    train_data: str = "",
    valid_data: str = "",
    project: str = "",
    project_name: str = "",
    code: Code | None = None,
) -> JobSpec:
    """Return the job that a request describes, with what the caller looked up for it: the nodes of its environments,
    the files of its dataset, the recipe and the default hyperparameters of its model. `master_port`: used where the
    request names none."""
    config, entry = request.distributed, request.entrypoint
    asked = config.elastic
    return JobSpec(
        task_id=task_id,
        framework=framework,
        nodes=tuple(nodes),
        master=master,
        recipe=recipe,
        model_parameters=model_parameters,
        entrypoint=_build_entrypoint(entry) if entry else None,
        hyperparameters={**({} if entry else defaults or {}), **request.hyperparameters},
        strategy=config.strategy,
        options=config.options,
        env=request.env,
        secret_env=request.secret_env,
        backend=config.backend,  # type: ignore[arg-type]  # another name is for the rules to refuse
        master_port=master_port if config.master_port is UNSET else config.master_port,
        train_data=train_data,
        valid_data=valid_data,
        checkpoint_dir=checkpoint_dir,
        output_dir=output_dir,
        files_dir=files_dir,
        files_url=files_url,
        resume_from=resume_from,
        after=tuple(one.task for one in request.after),
        grace_seconds=request.grace_seconds,
        max_restarts=request.max_restarts,
        spares=request.spare_environment_ids,
        when_in_use=request.when_in_use,
        preflight=request.preflight,
        drill=request.drill,
        drill_minutes=request.drill_minutes,
        pulse=request.pulse == "on",
        on_hang=request.on_hang,
        hang_seconds=request.hang_seconds,
        on_bad_loss=request.on_bad_loss,
        on_crash_loop=request.on_crash_loop,
        project=project,
        project_name=project_name,
        priority=classify_priority(request.priority_number).name.lower(),
        max_run=request.max_run_seconds,
        elastic=Elastic(asked.min_nodes, asked.max_nodes or len(nodes)) if asked else None,
        code=code,
        run_in="beside" if config.run_in == "pod" else config.run_in,
        python=config.python or "",
    )
