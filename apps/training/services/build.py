"""Builds the job that a request describes, with all its problems and warnings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db.models import F, OuterRef, Q, Subquery

from apps.accounts import access, secrets
from apps.accounts.access import Rows
from apps.accounts.models import Project, User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster, Lease
from apps.common.clock import now
from apps.common.errors import together, unread
from apps.common.sql import CompiledInstances, CompiledQuery, M, columns, key_parameters
from apps.environments import memory
from apps.files.services.outputs import places_of
from apps.scheduling.services import admission
from apps.training.core import checkpoints, code
from apps.training.core.engine_access import backend_for
from apps.training.models import Task
from apps.training.queue import load
from apps.training.services import environment_choice, packages
from apps.training.services.environment_choice import Choice
from fermi.engines.base import Backend
from fermi.jobs import credentials, recipes, run_location
from fermi.jobs.errors import BackendError, UnknownName
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.jobs.user_paths import CHECKPOINTS, OUTPUTS
from fermi.planning import elastic_sizes, entry, installed, plugins, scenarios, summary, validate
from fermi.planning.request import EXISTING, NEW, TaskRequest, cut, job, places
from fermi.schema import humanize

CONFIG = "distributedConfig"


@dataclass(slots=True)
class Draft:
    """A request and the job that it describes. `job` is None while too little is known for one; with `problems` it is
    as much of the job as can be shown."""

    request: Mapping[str, Any]
    asked: TaskRequest
    name: str
    choice: Choice
    version: DatasetVersion | None
    model: Model | None
    cluster: Cluster | None = None
    job: JobSpec | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    installed: packages.Found = field(default_factory=packages.Found)
    using: memory.InUse = field(default_factory=memory.InUse)


def build(
    user: User,
    asked: TaskRequest,
    request: Mapping[str, Any],
    task_id: str,
    wrong: Sequence[Problem] = (),
    *,
    look: bool = True,
) -> Draft:
    """Return the draft of a request. All problems are in `problems`, at once.

    `task_request`: the parsed `request`; `shape_problems`: problems of fields that could not be parsed.
    `start_surveys`: whether environments whose packages are not known are surveyed, which takes seconds; it is for
    callers that ask again for the result.
    """
    problems: list[Problem] = []
    if not asked.task_name:
        problems.append(Problem("taskName", "NAME_REQUIRED"))
    if asked.launch_mode not in (EXISTING, NEW):
        problems.append(Problem("launchMode", "LAUNCH_MODE_UNKNOWN", {"found": asked.launch_mode}))
    elif asked.launch_mode == EXISTING and asked.new_environments:
        problems.append(Problem("newEnvironments", "NEW_WITHOUT_MODE", {"found": asked.launch_mode}))
    choice = environment_choice.choose(user, asked, task_id, problems)
    environment_choice.check_spares(user, asked, choice, problems)
    environments, project = choice.environments, choice.project
    if project:
        problems += secrets.unknown(project.pk, asked.secret_env)
    version = _version(user, project, asked, problems)
    model = _found(_MODELS, user, project, asked.model_id)
    if model is None and asked.model_id:
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": asked.model_id}))
    draft = Draft(request, asked, asked.task_name, choice, version, model)
    master = environment_choice.master(asked, choice, problems)
    framework = None if unread(wrong, f"{CONFIG}.framework") else _framework(asked, len(environments), problems)
    job = _job(draft, asked, framework or plugins.DEFAULT, master, task_id, problems)
    brought = code.inspect(job)
    problems += [*validate.general(job), *brought.problems]
    if version:
        problems += recipes.vocabulary_problems(job, version.largest_token)
    if environments:
        draft.cluster, job = environments[0].cluster, elastic_sizes.begin(job)
        named, impossible, unused = _settled(draft.cluster, job)
        job = (
            named if access.is_member(user, project) else replace(named, python="")
        )  # as engines run the interpreter that it names
        problems += impossible
        problems += _on_engine(user, draft.cluster, job)
        outside = backend_for(draft.cluster).entry_text(job, entry.MAX_TEXT)
        problems += entry.text_problems(job.entrypoint, outside)
        problems += admission.problems_of(user, project, _asks(asked, choice, project)) if project else []
        if framework:
            draft.job = job
            problems += validate.of_framework(job) + elastic_sizes.problems(job)
            backend = backend_for(draft.cluster)
            problems += installed.problems(job, backend)
            draft.using = memory.in_use((node.id for node in job.nodes), user)
            draft.warnings = _warnings(job, draft.using) + unused + installed.warnings(job, backend)
            draft.warnings += _apart(job, backend) + _unasked(job, backend)
            draft.warnings += [*entry.warnings(job, outside or brought.entry_text), *brought.warnings]
            draft.installed = packages.find(user, named, environments, code.imported(job, outside), look=look)
            draft.warnings += draft.installed.warnings()
            if not (asked.model_id or asked.entrypoint):
                draft.warnings.append(Problem("modelId", "MODEL_NOT_CHOSEN"))
    found = together(wrong, (problem for problem in problems if not _follows(problem, wrong)))
    draft.problems = sorted(found, key=_place_in_form)
    return draft


def _follows(problem: Problem, wrong: Sequence[Problem]) -> bool:
    """Return True if the problem may only exist because another field could not be read."""
    needed = next((fields for start, fields in _NEEDED.items() if problem.field.startswith(start)), ())
    return unread(wrong, *needed)


_FORM = (
    "taskName", "datasetId", "datasetVersionId", "launchMode", "environmentIds", "newEnvironments",
    f"{CONFIG}.nodeIds", f"{CONFIG}.select", f"{CONFIG}.masterNode", f"{CONFIG}.framework",
)  # fmt: skip
"""The fields in the order in which users fill them in; problems are sorted by it."""


def _place_in_form(problem: Problem) -> int:
    """Return the position of the problem's field in the form; other fields come last."""
    return next((n for n, field in enumerate(_FORM) if f"{problem.field}.".startswith(f"{field}.")), len(_FORM))


_NODES = ("environmentIds", f"{CONFIG}.nodeIds", f"{CONFIG}.select", f"{CONFIG}.enabled")
_NEEDED = {
    "environmentIds": _NODES,
    "datasetId": ("entrypoint",),
    "datasetVersionId": ("datasetId", "entrypoint"),
    "modelId": ("entrypoint",),
    "hyperparameters": ("entrypoint",),
    "entrypoint.script": ("entrypoint.module",),
    f"{CONFIG}.nodeIds": _NODES,
    f"{CONFIG}.masterNode": _NODES,
    f"{CONFIG}.framework": _NODES,
    f"{CONFIG}.strategy": (*_NODES, f"{CONFIG}.worldSize"),
    f"{CONFIG}.options": (*_NODES, f"{CONFIG}.worldSize"),
    f"{CONFIG}.worldSize": _NODES,
}
"""By the field of a problem: the fields from whose values it may follow."""


def _usable(rows: Rows, is_superuser: bool, user: int, project: str) -> Rows:
    """Return the rows that the user may see and the task's project may use, as other members of the project will read
    the task."""
    rows = access.visible(rows, access.Reader(user, is_superuser), shared=True)
    return rows.filter(Q(project=None) | Q(project=project)) if project else rows


_VERSIONS = CompiledInstances(
    DatasetVersion,
    lambda is_superuser, /, key, user=0, project="": DatasetVersion.objects.filter(
        pk=key, dataset__in=_usable(Dataset.objects.all(), is_superuser, user, project)
    ),
)
_MODELS = CompiledInstances(
    Model,
    lambda is_superuser, /, key, user=0, project="": (
        _usable(Model.objects.filter(pk=key), is_superuser, user, project)
    ),
)  # fmt: skip


def _found(rows: CompiledInstances[M], user: User, project: Project | None, key: str | None) -> M | None:
    if not key:
        return None
    within = {"project": project.pk} if project else {}
    return rows.first(user.is_superuser, key=key, **access.reader(user), **within)


def _version(user: User, project: Project | None, asked: TaskRequest, problems: list[Problem]) -> DatasetVersion | None:
    dataset, version = asked.dataset_id, asked.dataset_version_id
    if dataset is None and version is None and asked.entrypoint:
        return None
    found = _found(_VERSIONS, user, project, version)
    known = found is not None and found.dataset_id == dataset
    datasets = _usable(Dataset.objects.filter(pk=dataset), user.is_superuser, user.pk, project.pk if project else "")
    if not known and not datasets.exists():
        problems.append(Problem("datasetId", "DATASET_UNKNOWN", {"dataset": dataset}))
    elif found is None:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_UNKNOWN", {"version": version}))
    elif found.dataset_id != dataset:
        params = {"version": version, "dataset": dataset, "owner": found.dataset_id}
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_MISMATCH", params))
    elif found.status == VersionStatus.FAILED:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_FAILED", {"version": version}))
    return found


def _framework(asked: TaskRequest, nodes: int, problems: list[Problem]) -> str | None:
    name = plugins.framework_name(asked.distributed.framework)
    if asked.distributed.framework == scenarios.SINGLE and nodes > 1:
        problems.append(Problem(f"{CONFIG}.framework", "SINGLE_NOT_ALONE", {"found": nodes}))
    try:
        plugins.framework(name)
    except UnknownName as unknown:
        problems.append(Problem(f"{CONFIG}.framework", unknown.code, unknown.params))
        return None
    return name


def _job(
    draft: Draft, asked: TaskRequest, framework: str, master: str, task_id: str, problems: list[Problem]
) -> JobSpec:
    """Return the job; it has no nodes while no environment is known."""
    model, version, choice = draft.model, draft.version, draft.choice
    named = [] if choice.select or choice.planned else choice.environments
    brought, wrong = code.named(choice.project, asked.code, next((one for one in named if one.pk == master), None))
    problems += wrong
    first = next(iter(choice.environments), None)
    nodes: Sequence[Node] = clusters.snapshots(choice.environments)
    if first and choice.select:
        wanted = asked.distributed.world_size
        _, wrong = places(cut(choice.select, nodes), master, wanted)
        problems += wrong
        nodes = cut(choice.select, nodes, None if wrong else wanted)
    elif first:
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
        output_dir=str(settings.DATA_DIR / OUTPUTS / task_id),
        **places_of(choice.project.pk if choice.project else ""),
        resume_from=checkpoints.named(first.cluster, asked.resume_from or "") if first else "",
        recipe=model.recipe if model else "gpt",
        defaults=model.defaults if model else {},
        model_parameters=model.parameters if model and asked.entrypoint else None,
        train_data=version.train_path if version else "",
        valid_data=version.valid_path if version else "",
        project=choice.project.pk if choice.project else "",
        project_name=choice.project.name if choice.project else "",
        code=brought,
    )


def _asks(asked: TaskRequest, choice: Choice, project: Project) -> admission.Asked:
    return admission.Asked(
        environments=choice.environments,
        where=choice.where,
        chosen=choice.select is not None,
        spent=lambda: load.spent(now())[project.pk].cost,
        priority=asked.priority_number,
        max_run=asked.max_run_seconds,
        preemptible=asked.preemptible,
    )


def _settled(cluster: Cluster, job: JobSpec) -> tuple[JobSpec, list[Problem], list[Problem]]:
    """Return the job with the run location of each node, the problems and the warnings of that. If the engine cannot be
    asked now, it is decided when the task starts."""
    try:
        known = backend_for(cluster).ways(job)
    except BackendError:
        return job, [], []
    job, impossible = run_location.settle(job, known)
    return job, impossible, run_location.warnings(job)


def _on_engine(user: User, cluster: Cluster, job: JobSpec) -> list[Problem]:
    """Return the engine's problems with the job. For a checkpoint that the user may not read, the problem is the same
    as for one that does not exist."""
    if checkpoints.may_read(user, job.resume_from):
        return backend_for(cluster).problems(job)
    missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
    return [missing, *backend_for(cluster).problems(replace(job, resume_from=""))]


def _apart(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warning which environments' files are copied to the platform, and how much at most."""
    found = [node.name for node in job.nodes if node.inside and not backend.shares_data(node)]
    if not found:
        return []
    folder, task = (humanize.size(gb << 30) for gb in (settings.CARRIED_FOLDER_GB, settings.CARRIED_TASK_GB))
    about = {"environments": ", ".join(found), "folder": folder, "task": task}
    return [Problem(run_location.FIELD, "INSIDE_NOT_SHARED", about)]


def _unasked(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warning for which environments the engine's own queue is not asked."""
    found = [node.name for node in job.nodes if node.inside and backend.queues]
    return [Problem(run_location.FIELD, "INSIDE_NOT_QUEUED", {"environments": ", ".join(found)})] if found else []


_HELD = CompiledQuery(
    lambda project, **among: Lease.objects.filter(environment__in=list(among.values())).annotate(
        name=F("environment__name"),
        task=Subquery(Task.objects.filter(pk=OuterRef("holder"), project=project).values("name")[:1]),
    ),
    columns(Lease, "holder", name=None, task=None),
)


def _warnings(job: JobSpec, using: memory.InUse) -> list[Problem]:
    """Return the job's warnings. Tasks of other projects are named by their ids."""
    found = summary.warnings(job.nodes, job.master) + plugins.framework(job.framework).warnings(job)
    found += elastic_sizes.warnings(job)
    held = _HELD.fetch(project=job.project, **key_parameters(node.id for node in job.nodes))
    found += credentials.warnings(job.env)
    if using.environments:
        found.append(Problem("", "ENVIRONMENTS_IN_USE", {"environments": memory.named(using.environments)}))
        if left := memory.left(using.environments):
            found.append(Problem("", "GPU_MEMORY_LEFT", {"environments": left}))
    if busy := [f"{lease['name']} ({lease['task'] or lease['holder']})" for lease in held]:
        found.append(Problem("", "ENVIRONMENTS_BUSY", {"environments": ", ".join(busy)}))
    return found
