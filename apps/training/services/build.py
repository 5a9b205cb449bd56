"""From a request to the job it describes, with everything that is wrong with it and everything worth knowing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db.models import Q, QuerySet

from apps.accounts import access, vault
from apps.accounts.access import Rows
from apps.accounts.models import User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.errors import together, unread
from apps.training.ground import checkpoints
from apps.training.ground.launching import backend_for
from fermi.launch import credentials, installed, recipes, registry, scenes, sizes, summary, validate
from fermi.launch.errors import UnknownName
from fermi.launch.request import TaskRequest, job, places
from fermi.launch.spec import JobSpec, Node, Problem
from fermi.launch.userpaths import CHECKPOINTS

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
    priority: int = 0
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


def build(
    user: User, asked: TaskRequest, request: Mapping[str, Any], task_id: str, wrong: Sequence[Problem] = ()
) -> Draft:
    """`asked`: what `request` says, without what is `wrong` with its shape. Everything wrong is in `problems`, all at
    once."""
    problems: list[Problem] = []
    if not asked.task_name:
        problems.append(Problem("taskName", "NAME_REQUIRED"))
    if asked.launch_mode != "existing":
        problems.append(Problem("launchMode", "LAUNCH_MODE_UNKNOWN", {"found": asked.launch_mode}))
    environments, where = _environments(user, asked, problems)
    _check_spares(user, asked, environments, problems)
    if environments:
        problems += vault.unknown(environments[0].project_id, asked.secret_env)
    version = _version(_usable(Dataset.objects.all(), user, environments), asked, problems)
    model = _usable(Model.objects.all(), user, environments).filter(pk=asked.model_id).first()
    if model is None and not (asked.entrypoint and asked.model_id is None):
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": asked.model_id}))
    draft = Draft(request, asked.task_name, environments, version, model, priority=asked.priority_number)
    master = _master(asked, environments, where, problems)
    framework = None if unread(wrong, f"{CONFIG}.framework") else _framework(asked, len(environments), problems)
    job = _job(draft, asked, framework or registry.DEFAULT, master, task_id, problems)
    problems += validate.general(job)
    if version:
        problems += recipes.vocabulary_problems(job, version.largest_token)
    if environments:
        draft.cluster, job = environments[0].cluster, sizes.begin(job)
        problems += _on_engine(user, draft.cluster, job)
        if framework:
            draft.job = job
            problems += validate.of_framework(job) + sizes.problems(job)
            problems += installed.problems(job, backend_for(draft.cluster))
            draft.warnings = _warnings(job) + installed.warnings(job, backend_for(draft.cluster))
    draft.problems = together(wrong, (problem for problem in problems if not _follows(problem, wrong)))
    return draft


def _follows(problem: Problem, wrong: Sequence[Problem]) -> bool:
    """Whether the problem may only be there because another field could not be read."""
    needed = next((fields for start, fields in _NEEDED.items() if problem.field.startswith(start)), ())
    return unread(wrong, *needed)


_NODES = ("environmentIds", f"{CONFIG}.nodeIds", f"{CONFIG}.enabled")
_NEEDED = {
    "environmentIds": _NODES,
    "datasetId": ("entrypoint",),
    "datasetVersionId": ("datasetId", "entrypoint"),
    "modelId": ("entrypoint",),
    "hyperparameters": ("entrypoint",),
    f"{CONFIG}.nodeIds": _NODES,
    f"{CONFIG}.masterNode": _NODES,
    f"{CONFIG}.framework": _NODES,
    f"{CONFIG}.strategy": (*_NODES, f"{CONFIG}.worldSize"),
    f"{CONFIG}.options": (*_NODES, f"{CONFIG}.worldSize"),
    f"{CONFIG}.worldSize": _NODES,
}
"""By the field of a problem: whose value it may follow from."""


def _usable(rows: Rows, user: User, environments: list[DevEnvironment]) -> Rows:
    """What the user may see and the task's project may use: others of the project will read the task."""
    rows = access.visible(rows, user, shared=True)
    return rows.filter(Q(project=None) | Q(project=environments[0].project_id)) if environments else rows


def _version(datasets: QuerySet[Dataset], asked: TaskRequest, problems: list[Problem]) -> DatasetVersion | None:
    dataset, version = asked.dataset_id, asked.dataset_version_id
    if dataset is None and version is None and asked.entrypoint:
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


def _environments(user: User, asked: TaskRequest, problems: list[Problem]) -> tuple[list[DevEnvironment], str]:
    """The environments chosen, and the field that named them."""
    ids, where = asked.environment_ids, environments_field(asked)
    if where != "environmentIds":
        nodes = asked.distributed.node_ids
        if stray := [key for key in ids if key not in nodes]:
            problems.append(Problem("environmentIds", "ENVIRONMENTS_CONTRADICT", {"environments": ", ".join(stray)}))
        ids = nodes
    return environments_named(user, ids, where, problems), where


def environments_field(asked: TaskRequest) -> str:
    """Which of the two fields that name environments counts."""
    config = asked.distributed_config
    chosen = config and config.enabled and (config.node_ids or not asked.environment_ids)
    return f"{CONFIG}.nodeIds" if chosen else "environmentIds"


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


def _check_spares(user: User, asked: TaskRequest, environments: list[DevEnvironment], problems: list[Problem]) -> None:
    """They need not be usable before one is lost."""
    ids, where = asked.spare_environment_ids, "spareEnvironmentIds"
    found, wrong = clusters.pick(user, ids, where)
    problems += wrong
    for spare in found:
        at = f"{where}.{ids.index(spare.pk)}"
        if spare in environments:
            problems.append(Problem(at, "SPARE_CHOSEN", {"environment": spare.name}))
        elif environments:
            problems += _apart(at, spare, environments[0])


def _master(asked: TaskRequest, environments: list[DevEnvironment], where: str, problems: list[Problem]) -> str:
    """The master's id; where it is missing or wrong, the first environment stands in so that the rest can be shown."""
    chosen = asked.distributed.master_node
    ids = [environment.pk for environment in environments]
    if chosen in ids:
        return chosen
    if chosen:
        names = ", ".join(ids) or "–"
        problems.append(Problem(f"{CONFIG}.masterNode", "MASTER_NOT_SELECTED", {"master": chosen, "allowed": names}))
    elif len(ids) > 1:
        problems.append(Problem(f"{CONFIG}.masterNode", "MASTER_REQUIRED", {"allowed": ", ".join(ids)}))
    return ids[0] if ids else ""


def _framework(asked: TaskRequest, nodes: int, problems: list[Problem]) -> str | None:
    name = registry.framework_name(asked.distributed.framework)
    if asked.distributed.framework == scenes.SINGLE and nodes > 1:
        problems.append(Problem(f"{CONFIG}.framework", "SINGLE_NOT_ALONE", {"found": nodes}))
    try:
        registry.framework(name)
    except UnknownName as unknown:
        problems.append(Problem(f"{CONFIG}.framework", unknown.code, unknown.params))
        return None
    return name


def _job(
    draft: Draft, asked: TaskRequest, framework: str, master: str, task_id: str, problems: list[Problem]
) -> JobSpec:
    """Of no nodes while no environment is known."""
    model, version, first = draft.model, draft.version, next(iter(draft.environments), None)
    nodes: Sequence[Node] = clusters.snapshots(draft.environments)
    if first:
        nodes, wrong = places(nodes, master, asked.distributed.world_size)
        problems += wrong
    return job(
        asked,
        task_id=task_id,
        framework=framework,
        nodes=nodes,
        master=master,
        master_port=settings.MASTER_PORTS.start,
        checkpoint_dir=str(settings.DATA_DIR / CHECKPOINTS / task_id),
        resume_from=checkpoints.named(first.cluster, asked.resume_from or "") if first else "",
        recipe=model.recipe if model else "gpt",
        defaults=model.defaults if model else {},
        model_parameters=model.parameters if model and asked.entrypoint else None,
        train_data=version.train_path if version else "",
        valid_data=version.valid_path if version else "",
        project=first.project_id if first else "",
    )


def _on_engine(user: User, cluster: Cluster, job: JobSpec) -> list[Problem]:
    """Of a checkpoint that is not theirs to read, users learn no more than of one that is not there."""
    if checkpoints.may_read(user, job.resume_from):
        return backend_for(cluster).problems(job)
    missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
    return [missing, *backend_for(cluster).problems(replace(job, resume_from=""))]


def _warnings(job: JobSpec) -> list[Problem]:
    found = summary.warnings(job.nodes, job.master) + registry.framework(job.framework).warnings(job)
    found += sizes.warnings(job)
    held = Lease.objects.filter(environment__in=[node.id for node in job.nodes]).select_related("environment")
    found += credentials.warnings(job.env)
    if busy := [f"{lease.environment.name} ({lease.holder})" for lease in held]:
        found.append(Problem("", "ENVIRONMENTS_BUSY", {"environments": ", ".join(busy)}))
    return found
