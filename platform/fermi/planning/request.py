"""The request for a training task: names, defaults, bounds, and the command line's flag of each field.

Everything reads it from here: the API and its document (and from that the client's types and the create form), exported
scripts (`fermi.export.request` adds what a platform would look up), groups of workers, and the flags of `fermi submit`.
`docs/adding-a-field.md` follows one field from here to the ranks.

Rules check what a field means beyond its own value (an environment that does not exist, a master that was not chosen).
So what they need may be missing here: empty is what was left out, null what was left out on purpose.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from fermi.jobs import json_shape, ranks
from fermi.jobs.spec import DRILL_MINUTES, MAX_RESTARTS, Code, Elastic, Entrypoint, JobSpec, Node, Problem
from fermi.planning import plugins
from fermi.runner.exit_codes import GRACE_SECONDS
from fermi.scheduler.snapshot import NUMBERS, Select, priority_of

LARGEST = 2**31 - 1
"""The largest number that a database column of four bytes holds."""

MASTER_PORTS = range(1024, 65536)
MOST_RESTARTS = 100
LONGEST_GRACE = 3600  # seconds
SHORTEST_PATIENCE, LONGEST_PATIENCE = 5, 86_400  # seconds
LONGEST_DRILL = 1440  # minutes
NAME_LENGTH = 100
EXISTING, NEW = "existing", "new"
MIN_RUN_SECONDS = 300
LONGEST_MIN_RUN = 86_400
LONGEST_RUN = 365 * 86_400


def told(
    said: str = "",
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
    full = {"minLength": 1, "pattern": json_shape.SAYS_SOMETHING} if rules.pop("full", False) else {}
    return Meta(
        description=said or None, extra_json_schema={**words, **flags, **trim, **full, **choices} or None, **rules
    )


def _text(longest: int, said: str = "", **more: Any) -> Meta:
    """Return what is known of a text that must not be blank; white space around it does not count."""
    return told(said, max_length=longest, trim=True, full=True, **more)


Key: TypeAlias = Annotated[str, _text(100)]
"""The id of something that exists already."""

KeyOrBlank: TypeAlias = Annotated[str, told(max_length=100, trim=True)]
MOST_NODES = 4096
Keys: TypeAlias = Annotated[tuple[Key, ...], Meta(max_length=MOST_NODES)]
MOST_VARIABLES = 1000
"""Entries of a map whose names the caller chooses."""

Values: TypeAlias = Annotated[dict[str, Any], Meta(max_length=MOST_VARIABLES)]


class EntrypointRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """One of script and module."""

    script: Annotated[str, _text(500, "a Python script")] = ""
    module: Annotated[str, _text(500, "a module, which ranks run as `python -m` does: pkg.train")] = ""
    args: Annotated[tuple[Annotated[str, Meta(max_length=4000)], ...], Meta(max_length=1000)] = ()


class ElasticRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    min_nodes: Annotated[int, told("with fewer it waits", ge=1, le=MOST_NODES)] = 1
    max_nodes: Annotated[int, told("as many as were chosen by default", ge=1, le=MOST_NODES)] | None = None


class SelectRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Capacity in place of environments by name: `fermi.scheduler.snapshot.Select`."""

    nodes: Annotated[int, told("how many environments", ge=1, le=MOST_NODES)] | None = None
    gpus_per_node: Annotated[int, told("GPUs that are used of each", ge=1, le=1024)] | None = None
    total_gpus: Annotated[int, told("in any mixture, in place of gpusPerNode", ge=1, le=LARGEST)] | None = None
    gpu_types: Keys = ()
    zones: Annotated[tuple[Key, ...], told("ids or names", max_length=MOST_NODES)] = ()
    same_zone: bool = False
    labels: Annotated[dict[str, Annotated[str, Meta(max_length=100)]], Meta(max_length=32)] = {}
    exclude: Annotated[tuple[Key, ...], told("ids of environments", max_length=MOST_NODES)] = ()


class GitRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    url: Annotated[str, _text(500, "https://… or ssh://…; submodules and LFS are not fetched")]
    revision: Annotated[str, _text(200, "a branch, a tag or a commit; by default the remote's HEAD")] = "HEAD"
    secret: Annotated[
        Annotated[str, _text(63)] | None,
        told("a secret of the project: a token for https, a private key for ssh"),
    ] = None


class CodeRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A snapshot, git or environment. A snapshot is run as it is: git or environment beside it state where it came
    from, so that a retry can fetch the code anew from there."""

    snapshot: Annotated[Annotated[str, _text(64)] | None, told("the id of a snapshot of the project")] = None
    git: GitRequest | None = None
    environment: Annotated[
        Literal["master"] | None, told("the working directory of the master environment", choices=["master"])
    ] = None
    path: Annotated[str, _text(500, "of the environment: the folder, from its working directory")] = "."
    requirements: Annotated[
        str,
        _text(
            500,
            "packages prepared once per node: auto (uv.lock or requirements.txt in its root), off, or a file of it",
        ),
    ] = "auto"


class NewEnvironmentsRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """Environments that are created for the task, with `launchMode` new; all of one template, the first is the
    master."""

    template: Annotated[KeyOrBlank, told("id of an environment template")] = ""
    count: Annotated[int, told("how many environments", ge=1, le=MOST_NODES)] = 1
    afterwards: Annotated[
        Literal["delete", "stop", "keep"],
        told(
            "what becomes of them when the task has ended; stop keeps their disks",
            choices=["delete", "stop", "keep"],
        ),
    ] = "delete"
    cluster_id: Annotated[KeyOrBlank | None, told("where; as the template says by default")] = None
    zone: Annotated[KeyOrBlank | None, told("id or name; as the template says by default")] = None


class DistributedConfigRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    enabled: bool = True
    node_ids: Keys = ()
    select: Annotated[
        SelectRequest | None,
        told(
            "capacity in place of nodeIds: the platform chooses when the turn comes",
            flag="--select",
            shown={"metavar": "KEY=VALUE,…", "parts": True},
        ),
    ] = None
    master_node: KeyOrBlank | None = None
    framework: Annotated[
        str,
        _text(
            40,
            "see /frameworks",
            flag="--framework",
            codes=dict.fromkeys(("minLength", "null"), "FRAMEWORK_REQUIRED"),
        ),
    ] = plugins.DEFAULT
    master_port: (
        Annotated[
            int,
            told(
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
        _text(
            20,
            "auto, nccl or gloo",
            flag="--backend",
            shown={"choices": ["auto", "nccl", "gloo"]},
        ),
    ] = "auto"
    world_size: Annotated[
        int | None,
        told(
            "how many processes; all by default, with fewer those with the first ranks",
            flag="--world-size",
            bounds=(1, LARGEST),
        ),
    ] = None
    strategy: Annotated[
        dict[str, Annotated[int, Meta(ge=1, le=LARGEST)]],
        told("dataParallel, tensorParallel, …", flag="--strategy", max_length=MOST_VARIABLES),
    ] = {}
    options: Annotated[Values, told("the framework's own", flag="--option")] = {}
    run_in: Annotated[
        Literal["auto", "environment", "pod", "beside"],
        told(
            "inside the environments, with their GPUs, packages and files, or beside them; auto: for each by itself",
            flag="--run-in",
            choices=["auto", "environment", "pod", "beside"],
        ),
    ] = "auto"
    python: Annotated[
        Annotated[str, told(max_length=500, trim=True)] | None,
        told(
            "the interpreter inside the environments: a path, or the name of a kernel; by default that of the notebook",
            flag="--python",
        ),
    ] = None
    elastic: Annotated[
        ElasticRequest | None,
        told(
            "goes on with fewer nodes when one is lost, and with more when it is back; the global batch stays the same",
            flag="--elastic",
            shown={"metavar": "MIN[:MAX]", "range": ["minNodes", "maxNodes"]},
        ),
    ] = None


_CLASSES = told(choices=["low", "normal", "high", "urgent"])


class TaskRequest(Struct, frozen=True, kw_only=True, rename="camel"):
    """A task. What is missing is reported by the rules, together with everything else that is wrong."""

    task_name: Annotated[
        str,
        _text(
            NAME_LENGTH,
            "required",
            flag="--name",
            codes={"minLength": "NAME_REQUIRED", "maxLength": "NAME_TOO_LONG"},
        ),
    ] = ""
    dataset_id: Annotated[KeyOrBlank | None, told("required; null for a script of one's own that reads none")] = ""
    dataset_version_id: Annotated[KeyOrBlank | None, told("required with datasetId")] = ""
    model_id: Annotated[KeyOrBlank | None, told("without one: the reference GPT, or what the script brings")] = ""
    project_id: Annotated[
        KeyOrBlank | None,
        told("whose task it is; by default the project of its environments, or the only one you are a member of"),
    ] = None
    launch_mode: Annotated[str, _text(100, "existing, or new for environments that are made for the task")] = EXISTING
    new_environments: Annotated[
        NewEnvironmentsRequest | None,
        told(
            "with launchMode new: made for this task from a template",
            flag="--new",
            shown={"metavar": "KEY=VALUE,…", "parts": True},
        ),
    ] = None
    environment_ids: Keys = ()
    spare_environment_ids: Annotated[
        Keys,
        told("between attempts, these take the places of environments that were lost; without any, it waits"),
    ] = ()
    distributed_config: DistributedConfigRequest | None = None
    entrypoint: EntrypointRequest | None = None
    code: Annotated[
        CodeRequest | None,
        told("a snapshot that every node gets before the ranks start in it; relative scripts are looked for there"),
    ] = None
    hyperparameters: Annotated[Values, told(flag="--hp")] = {}
    env: Annotated[
        dict[str, Annotated[str, Meta(max_length=32_000)]],
        told(flag="--set-env", max_length=MOST_VARIABLES),
    ] = {}
    secret_env: Annotated[
        dict[str, Annotated[str, _text(63)]],
        told(
            "variables by name, each with the name of a secret of the project whose value it gets",
            flag="--secret-env",
            shown={"metavar": "KEY=SECRET"},
            max_length=MOST_VARIABLES,
        ),
    ] = {}
    max_restarts: Annotated[
        int,
        told(
            flag="--max-restarts",
            codes=dict.fromkeys(("minimum", "maximum"), "MAX_RESTARTS_OUT_OF_RANGE"),
            ge=0,
            le=MOST_RESTARTS,
        ),
    ] = MAX_RESTARTS
    grace_seconds: Annotated[
        float,
        told(
            "how long ranks may take to end when they are asked to, to save a checkpoint; after it they are killed",
            flag="--grace",
            ge=0,
            le=LONGEST_GRACE,
        ),
    ] = GRACE_SECONDS
    priority: Annotated[
        Annotated[int, Meta(ge=-1000, le=1000)] | Annotated[Literal["low", "normal", "high", "urgent"], _CLASSES],
        told(
            "low, normal, high or urgent; as a number: below 0, 0, above 0, from 100",
            flag="--priority",
            shown={"metavar": "low|normal|high|urgent"},
        ),
    ] = 0
    preemptible: Annotated[
        bool,
        told("gives way to tasks of a higher class, and goes on from its checkpoint later", flag="--preemptible"),
    ] = False
    min_run_seconds: Annotated[
        int,
        told("so long it is not preempted once it has its environments", flag="--min-run", ge=0, le=LONGEST_MIN_RUN),
    ] = MIN_RUN_SECONDS
    max_run_seconds: Annotated[
        Annotated[int, Meta(ge=1, le=LONGEST_RUN)] | None,
        told("so long it holds its environments at most, all attempts together; then it ends", flag="--max-run"),
    ] = None
    when_in_use: Annotated[
        Literal["start", "wait"],
        told(
            "when a notebook or another program holds memory in one of its environments: start beside it, or wait",
            flag="--when-in-use",
            choices=["start", "wait"],
        ),
    ] = "start"
    resume_from: Annotated[
        Annotated[str, told(max_length=500, trim=True)] | None,
        told(flag="--resume-from"),
    ] = None
    preflight: Annotated[
        Literal["off", "quick", "full"],
        told(
            "a pre-flight test before the first attempt; a task whose nodes are not fit fails with the culprit",
            flag="--preflight",
            choices=["off", "quick", "full"],  # in this order; msgspec sorts them
        ),
    ] = "off"

    drill: Annotated[
        Literal["off", "on"],
        told(
            "a rehearsal before the first attempt: a rank is killed, and a task that does not resume fails",
            flag="--drill",
            choices=["off", "on"],
        ),
    ] = "off"
    drill_minutes: Annotated[
        float,
        told(
            "how long a drill waits for a checkpoint, and for the resumed step",
            flag="--drill-minutes",
            ge=1,
            le=LONGEST_DRILL,
        ),
    ] = DRILL_MINUTES

    pulse: Annotated[
        Literal["on", "off"],
        told(
            "a small probe in every rank: steps, stacks and collectives without a line printed",
            flag="--pulse",
            choices=["on", "off"],
        ),
    ] = "on"
    on_hang: Annotated[
        Literal["report", "restart", "stop"],
        told(
            "when a hang is certain: report it, restart from the newest checkpoint, or stop",
            flag="--on-hang",
            choices=["report", "restart", "stop"],
        ),
    ] = "restart"
    hang_seconds: Annotated[
        Annotated[float, Meta(ge=SHORTEST_PATIENCE, le=LONGEST_PATIENCE)] | None,
        told(
            "without a step, a line or a metric for so long a rank is looked at; by default what its past explains",
            flag="--hang-seconds",
        ),
    ] = None
    on_bad_loss: Annotated[
        Literal["report", "stop", "rollback"],
        told(
            "when the loss is not a number, infinite or jumps; rollback: go on from the newest checkpoint before it",
            flag="--on-bad-loss",
            choices=["report", "stop", "rollback"],
        ),
    ] = "report"
    on_crash_loop: Annotated[
        Literal["stop", "restart"],
        told(
            "when the same rank fails in the same way at the same step twice",
            flag="--on-crash-loop",
            choices=["stop", "restart"],
        ),
    ] = "stop"

    @property
    def priority_number(self) -> int:
        return NUMBERS[self.priority] if isinstance(self.priority, str) else self.priority

    @property
    def distributed(self) -> DistributedConfigRequest:
        """The configuration that applies: the defaults where there is none, or it is not enabled."""
        config = self.distributed_config
        return config if config and config.enabled else DistributedConfigRequest()


def places(nodes: Sequence[Node], master: str, wanted: int | None) -> tuple[Sequence[Node], list[Problem]]:
    """Return all of the nodes, or the part of them that has the first `worldSize` ranks, and what is wrong with that
    number."""
    there = sum(node.processes for node in nodes)
    if wanted is None:
        return nodes, []
    if not 1 <= wanted <= there:
        params = {"found": wanted, "high": there}
        return nodes, [Problem("distributedConfig.worldSize", "WORLD_SIZE_TOO_LARGE", params)]
    return ranks.first(nodes, master, wanted), []


def cut(select: Select, nodes: Sequence[Node], wanted: int | None = None) -> tuple[Node, ...]:
    """Return the part of the chosen environments that was asked for, the first of them being the master. `world_size`:
    the request's."""
    if select.gpus_per_node is not None:
        nodes = [ranks.first([node], node.id, select.gpus_per_node)[0] for node in nodes]
    total = wanted or select.total_gpus or sum(node.processes for node in nodes)
    return ranks.first(nodes, nodes[0].id, total)


def job(
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
        entrypoint=Entrypoint(entry.script, entry.args, entry.module) if entry else None,
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
        priority=priority_of(request.priority_number).name.lower(),
        max_run=request.max_run_seconds,
        elastic=Elastic(asked.min_nodes, asked.max_nodes or len(nodes)) if asked else None,
        code=code,
        run_in="beside" if config.run_in == "pod" else config.run_in,
        python=config.python or "",
    )
