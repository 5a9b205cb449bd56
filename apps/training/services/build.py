"""From a request to the job it describes, with everything that is wrong with it and everything worth knowing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import access, vault
from apps.accounts.access import Rows
from apps.accounts.models import User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.training.ground import checkpoints
from apps.training.ground.launching import backend_for
from fermi.launch import credentials, ranks, registry, summary, validate
from fermi.launch.errors import UnknownName
from fermi.launch.spec import Entrypoint, JobSpec, Node, Problem
from fermi.launch.userpaths import CHECKPOINTS

NAME_LENGTH = 100
MAX_RESTARTS = 100
CONFIG = "distributedConfig"


@dataclass(slots=True)
class Draft:
    """`job` is None while too little is known for one; with `problems` it is as much of it as makes sense to show."""

    request: Mapping[str, Any]
    name: str
    environments: list[DevEnvironment]
    version: DatasetVersion | None
    model: Model | None
    cluster: Cluster | None = None
    job: JobSpec | None = None
    max_restarts: int = 3
    priority: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def build(user: User, body: Mapping[str, Any], request: Mapping[str, Any], task_id: str) -> Draft:
    """`body` is the validated shape of `request`. Everything wrong is in `problems`, all at once."""
    problems = _name(body["name"])
    if body["launch_mode"] != "existing":
        problems.append(Problem("launchMode", "LAUNCH_MODE_UNKNOWN", {"found": body["launch_mode"]}))
    environments, where = _environments(user, body, problems)
    _check_spares(user, body, environments, problems)
    if environments:
        problems += vault.unknown(environments[0].project_id, body["secret_env"])
    version = _version(_usable(Dataset.objects.all(), user, environments), body, problems)
    own_script = body["entrypoint"] is not None
    model = _usable(Model.objects.all(), user, environments).filter(pk=body["model_id"]).first()
    if model is None and not (own_script and body["model_id"] is None):
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": body["model_id"]}))
    draft = Draft(
        request, body["name"].strip(), environments, version, model,
        max_restarts=body["max_restarts"], priority=body["priority"], problems=problems,
    )  # fmt: skip
    if not 0 <= draft.max_restarts <= MAX_RESTARTS:
        found = {"found": draft.max_restarts, "high": MAX_RESTARTS}
        problems.append(Problem("maxRestarts", "MAX_RESTARTS_OUT_OF_RANGE", found))
    master = _master(body, environments, where, problems)
    framework = _framework(body, problems)
    if environments and framework:
        draft.cluster = environments[0].cluster
        draft.job = _job(draft, body, framework, master, task_id)
        problems += validate.problems(draft.job)
        problems += _on_engine(user, draft.cluster, draft.job)
        draft.warnings = _warnings(draft.job)
    return draft


def _name(name: str) -> list[Problem]:
    if not name.strip():
        return [Problem("taskName", "NAME_REQUIRED")]
    if len(name.strip()) > NAME_LENGTH:
        return [Problem("taskName", "NAME_TOO_LONG", {"found": len(name.strip()), "high": NAME_LENGTH})]
    return []


def _usable(rows: Rows, user: User, environments: list[DevEnvironment]) -> Rows:
    """What the user may see and the task's project may use: others of the project will read the task."""
    rows = access.visible(rows, user, shared=True)
    return rows.filter(Q(project=None) | Q(project=environments[0].project_id)) if environments else rows


def _version(datasets: QuerySet[Dataset], body: Mapping[str, Any], problems: list[Problem]) -> DatasetVersion | None:
    dataset, version = body["dataset_id"], body["version_id"]
    if dataset is None and version is None and body["entrypoint"] is not None:
        return None
    found = DatasetVersion.objects.filter(pk=version, dataset__in=datasets).first()
    if not datasets.filter(pk=dataset).exists():
        problems.append(Problem("datasetId", "DATASET_UNKNOWN", {"dataset": dataset}))
    elif found is None:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_UNKNOWN", {"version": version}))
    elif found.dataset_id != dataset:
        params = {"version": version, "dataset": dataset, "owner": found.dataset_id}
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_MISMATCH", params))
    elif found.status == VersionStatus.FAILED:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_FAILED", {"version": version}))
    return found


def _config(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Empty when there is none, or it is there and not enabled."""
    config = body["distributed"]
    return config if config and config["enabled"] else {}


def _environments(user: User, body: Mapping[str, Any], problems: list[Problem]) -> tuple[list[DevEnvironment], str]:
    """The environments chosen, and the field that named them."""
    ids, where = body["environment_ids"], environments_field(body)
    if where != "environmentIds":
        nodes = _config(body)["node_ids"]
        if stray := [key for key in ids if key not in nodes]:
            problems.append(Problem("environmentIds", "ENVIRONMENTS_CONTRADICT", {"environments": ", ".join(stray)}))
        ids = nodes
    return environments_named(user, ids, where, problems), where


def environments_field(body: Mapping[str, Any]) -> str:
    """Which of the two fields that name environments counts."""
    config = _config(body)
    return f"{CONFIG}.nodeIds" if config and (config["node_ids"] or not body["environment_ids"]) else "environmentIds"


def environments_named(user: User, ids: Sequence[str], where: str, problems: list[Problem]) -> list[DevEnvironment]:
    """Those of `ids` that there are, for one task; what is wrong is added to `problems`, at the field `where`."""
    if not ids:
        problems.append(Problem(where, "ENVIRONMENT_REQUIRED"))
    found, wrong = clusters.pick(user, ids, where)
    problems += wrong
    for environment in found:
        at = f"{where}.{ids.index(environment.pk)}"
        if obstacle := clusters.obstacle(environment.name, environment.status, environment.cordoned):
            problems.append(Problem(at, obstacle.code, obstacle.params))
        problems += _apart(at, environment, found[0])
    return found


def _apart(where: str, environment: DevEnvironment, first: DevEnvironment) -> list[Problem]:
    """Why one task cannot use both."""
    params = {"environment": environment.name, "first": first.name}
    if environment.project_id != first.project_id:
        return [Problem(where, "ENVIRONMENT_FOREIGN", params)]
    return [Problem(where, "CLUSTERS_DIFFER", params)] if environment.cluster_id != first.cluster_id else []


def _check_spares(
    user: User, body: Mapping[str, Any], environments: list[DevEnvironment], problems: list[Problem]
) -> None:
    """They need not be usable before one is lost. The task finds them in its request."""
    ids, where = body["spare_environment_ids"], "spareEnvironmentIds"
    found, wrong = clusters.pick(user, ids, where)
    problems += wrong
    for spare in found:
        at = f"{where}.{ids.index(spare.pk)}"
        if spare in environments:
            problems.append(Problem(at, "SPARE_CHOSEN", {"environment": spare.name}))
        elif environments:
            problems += _apart(at, spare, environments[0])


def _master(body: Mapping[str, Any], environments: list[DevEnvironment], where: str, problems: list[Problem]) -> str:
    """The master's id; where it is missing or wrong, the first environment stands in so that the rest can be shown."""
    chosen = _config(body).get("master")
    ids = [environment.pk for environment in environments]
    if chosen in ids:
        return str(chosen)
    if chosen:
        names = ", ".join(ids) or "–"
        problems.append(Problem(f"{CONFIG}.masterNode", "MASTER_NOT_SELECTED", {"master": chosen, "allowed": names}))
    elif len(ids) > 1:
        problems.append(Problem(f"{CONFIG}.masterNode", "MASTER_REQUIRED", {"allowed": ", ".join(ids)}))
    return ids[0] if ids else ""


def _framework(body: Mapping[str, Any], problems: list[Problem]) -> str | None:
    name = registry.framework_name(_config(body).get("framework", registry.DEFAULT))
    try:
        registry.framework(name)
    except UnknownName as unknown:
        problems.append(Problem(f"{CONFIG}.framework", unknown.code, unknown.params))
        return None
    return name


def _job(draft: Draft, body: Mapping[str, Any], framework: str, master: str, task_id: str) -> JobSpec:
    config = _config(body)
    entry = body["entrypoint"]
    defaults = {} if entry or draft.model is None else draft.model.defaults
    version = draft.version
    return JobSpec(
        task_id=task_id,
        project=draft.environments[0].project_id,
        framework=framework,
        nodes=_nodes(draft, config, master),
        master=master,
        recipe=draft.model.recipe if draft.model else "gpt",
        model_parameters=draft.model.parameters if entry and draft.model else None,
        entrypoint=Entrypoint(entry["script"], tuple(entry["args"])) if entry else None,
        hyperparameters={**defaults, **body["hyperparameters"]},
        strategy=config.get("strategy", {}),
        options=config.get("options", {}),
        env=body["env"],
        secret_env=body["secret_env"],
        backend=cast(Literal["auto", "nccl", "gloo"], config.get("backend", "auto")),
        master_port=config.get("master_port", settings.MASTER_PORTS.start),
        train_data=version.train_path if version else "",
        valid_data=version.valid_path if version else "",
        checkpoint_dir=str(settings.DATA_DIR / CHECKPOINTS / task_id),
        resume_from=checkpoints.named(draft.environments[0].cluster, body["resume_from"] or ""),
    )


def _nodes(draft: Draft, config: Mapping[str, Any], master: str) -> tuple[Node, ...]:
    """All that were chosen, or as much of them as `worldSize` asks for."""
    nodes = tuple(clusters.snapshots(draft.environments))
    wanted, there = config.get("world_size"), sum(node.processes for node in nodes)
    if wanted is None:
        return nodes
    if not 1 <= wanted <= there:
        params = {"found": wanted, "high": there}
        draft.problems.append(Problem(f"{CONFIG}.worldSize", "WORLD_SIZE_TOO_LARGE", params))
        return nodes
    return ranks.first(nodes, master, wanted)


def _on_engine(user: User, cluster: Cluster, job: JobSpec) -> list[Problem]:
    """Of a checkpoint that is not theirs to read, users learn no more than of one that is not there."""
    if checkpoints.may_read(user, job.resume_from):
        return backend_for(cluster).problems(job)
    missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
    return [missing, *backend_for(cluster).problems(replace(job, resume_from=""))]


def _warnings(job: JobSpec) -> list[Problem]:
    found = summary.warnings(job.nodes, job.master) + registry.framework(job.framework).warnings(job)
    held = Lease.objects.filter(environment__in=[node.id for node in job.nodes]).select_related("environment")
    found += credentials.warnings(job.env)
    if busy := [f"{lease.environment.name} ({lease.holder})" for lease in held]:
        found.append(Problem("", "ENVIRONMENTS_BUSY", {"environments": ", ".join(busy)}))
    return found
