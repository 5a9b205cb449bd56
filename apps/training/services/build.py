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
from apps.common.errors import is_value_unknown, merge_problems
from apps.common.sql import CompiledInstances, CompiledQuery, M, list_columns, make_key_parameters
from apps.environments import memory
from apps.files.services.outputs import get_job_locations
from apps.scheduling.services import admission
from apps.training.core import checkpoints, code
from apps.training.core.engine_access import get_backend
from apps.training.models import Task
from apps.training.queue import load
from apps.training.services import environment_choice, packages
from apps.training.services.environment_choice import EnvironmentChoice
from fermi.engines.base import Backend
from fermi.jobs import credentials, recipes, run_location
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, OUTPUTS_FOLDER
from fermi.planning import elastic_sizes, entry, installed, plugins, scenarios, summary, validate
from fermi.planning.request import EXISTING, NEW, TaskRequest, build_job, limit_world_size, trim_nodes
from fermi.schema import humanize

CONFIG = "distributedConfig"


@dataclass(slots=True)
class TaskDraft:
    """A request and the job that it describes. `job` is None while too little is known for one; with `problems` it is
    as much of the job as can be shown."""

    request: Mapping[str, Any]
    asked: TaskRequest
    name: str
    choice: EnvironmentChoice
    version: DatasetVersion | None
    model: Model | None
    cluster: Cluster | None = None
    job: JobSpec | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    installed: packages.PackageReport = field(default_factory=packages.PackageReport)
    using: memory.MemoryInUse = field(default_factory=memory.MemoryInUse)


def build_draft(
    user: User,
    task_request: TaskRequest,
    request: Mapping[str, Any],
    task_id: str,
    shape_problems: Sequence[Problem] = (),
    *,
    start_surveys: bool = True,
) -> TaskDraft:
    """Return the draft of a request. All problems are in `problems`, at once.

    `task_request`: the parsed `request`; `shape_problems`: problems of fields that could not be parsed.
    `start_surveys`: whether environments whose packages are not known are surveyed, which takes seconds; it is for
    callers that ask again for the result.
    """
    problems: list[Problem] = []
    if not task_request.task_name:
        problems.append(Problem("taskName", "NAME_REQUIRED"))
    if task_request.launch_mode not in (EXISTING, NEW):
        problems.append(Problem("launchMode", "LAUNCH_MODE_UNKNOWN", {"found": task_request.launch_mode}))
    elif task_request.launch_mode == EXISTING and task_request.new_environments:
        problems.append(Problem("newEnvironments", "NEW_WITHOUT_MODE", {"found": task_request.launch_mode}))
    choice = environment_choice.choose_environments(user, task_request, task_id, problems)
    environment_choice.check_spares(user, task_request, choice, problems)
    environments, project = choice.environments, choice.project
    if project:
        problems += secrets.find_unknown_secrets(project.pk, task_request.secret_env)
    version = _find_version(user, project, task_request, problems)
    model = _load_one(_MODELS, user, project, task_request.model_id)
    if model is None and task_request.model_id:
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": task_request.model_id}))
    draft = TaskDraft(request, task_request, task_request.task_name, choice, version, model)
    master = environment_choice.choose_master(task_request, choice, problems)
    framework = (
        None
        if is_value_unknown(shape_problems, f"{CONFIG}.framework")
        else _find_framework(task_request, len(environments), problems)
    )
    job = _build_job(draft, task_request, framework or plugins.DEFAULT_FRAMEWORK, master, task_id, problems)
    brought = code.inspect_code(job)
    problems += [*validate.find_general_problems(job), *brought.problems]
    if version:
        problems += recipes.find_vocabulary_problems(job, version.largest_token)
    if environments:
        draft.cluster, job = environments[0].cluster, elastic_sizes.set_full_size(job)
        named, impossible, unused = _resolve_run_locations(draft.cluster, job)
        job = (
            named if access.is_member(user, project) else replace(named, python="")
        )  # as engines run the interpreter that it names
        problems += impossible
        problems += _check_on_engine(user, draft.cluster, job)
        outside = get_backend(draft.cluster).entry_text(job, entry.MAX_SCRIPT_BYTES)
        problems += entry.find_text_problems(job.entrypoint, outside)
        problems += (
            admission.check_request(user, project, _build_admission_request(task_request, choice, project))
            if project
            else []
        )
        if framework:
            draft.job = job
            problems += validate.find_framework_problems(job) + elastic_sizes.find_problems(job)
            backend = get_backend(draft.cluster)
            problems += installed.find_problems(job, backend)
            draft.using = memory.find_memory_in_use((node.id for node in job.nodes), user)
            draft.warnings = _list_warnings(job, draft.using) + unused + installed.find_warnings(job, backend)
            draft.warnings += _warn_not_shared(job, backend) + _warn_not_queued(job, backend)
            draft.warnings += [*entry.find_warnings(job, outside or brought.entry_text), *brought.warnings]
            draft.installed = packages.compare_packages(
                user, named, environments, code.find_imports(job, outside), start_surveys=start_surveys
            )
            draft.warnings += draft.installed.warnings()
            if not (task_request.model_id or task_request.entrypoint):
                draft.warnings.append(Problem("modelId", "MODEL_NOT_CHOSEN"))
    found = merge_problems(
        shape_problems, (problem for problem in problems if not _may_follow_from(problem, shape_problems))
    )
    draft.problems = sorted(found, key=_get_form_position)
    return draft


def _may_follow_from(problem: Problem, wrong: Sequence[Problem]) -> bool:
    """Return True if the problem may only exist because another field could not be read."""
    needed = next((fields for start, fields in _DEPENDS_ON.items() if problem.field.startswith(start)), ())
    return is_value_unknown(wrong, *needed)


_FORM_ORDER = (
    "taskName", "datasetId", "datasetVersionId", "launchMode", "environmentIds", "newEnvironments",
    f"{CONFIG}.nodeIds", f"{CONFIG}.select", f"{CONFIG}.masterNode", f"{CONFIG}.framework",
)  # fmt: skip
"""The fields in the order in which users fill them in; problems are sorted by it."""


def _get_form_position(problem: Problem) -> int:
    """Return the position of the problem's field in the form; other fields come last."""
    return next(
        (n for n, field in enumerate(_FORM_ORDER) if f"{problem.field}.".startswith(f"{field}.")), len(_FORM_ORDER)
    )


_NODE_FIELDS = ("environmentIds", f"{CONFIG}.nodeIds", f"{CONFIG}.select", f"{CONFIG}.enabled")
_DEPENDS_ON = {
    "environmentIds": _NODE_FIELDS,
    "datasetId": ("entrypoint",),
    "datasetVersionId": ("datasetId", "entrypoint"),
    "modelId": ("entrypoint",),
    "hyperparameters": ("entrypoint",),
    "entrypoint.script": ("entrypoint.module",),
    f"{CONFIG}.nodeIds": _NODE_FIELDS,
    f"{CONFIG}.masterNode": _NODE_FIELDS,
    f"{CONFIG}.framework": _NODE_FIELDS,
    f"{CONFIG}.strategy": (*_NODE_FIELDS, f"{CONFIG}.worldSize"),
    f"{CONFIG}.options": (*_NODE_FIELDS, f"{CONFIG}.worldSize"),
    f"{CONFIG}.worldSize": _NODE_FIELDS,
}
"""By the field of a problem: the fields from whose values it may follow."""


def _filter_usable(rows: Rows, is_superuser: bool, user: int, project: str) -> Rows:
    """Return the rows that the user may see and the task's project may use, as other members of the project will read
    the task."""
    rows = access.filter_visible(rows, access.UserRights(user, is_superuser), shared=True)
    return rows.filter(Q(project=None) | Q(project=project)) if project else rows


_VERSIONS = CompiledInstances(
    DatasetVersion,
    lambda is_superuser, /, key, user=0, project="": DatasetVersion.objects.filter(
        pk=key, dataset__in=_filter_usable(Dataset.objects.all(), is_superuser, user, project)
    ),
)
_MODELS = CompiledInstances(
    Model,
    lambda is_superuser, /, key, user=0, project="": (
        _filter_usable(Model.objects.filter(pk=key), is_superuser, user, project)
    ),
)  # fmt: skip


def _load_one(rows: CompiledInstances[M], user: User, project: Project | None, key: str | None) -> M | None:
    if not key:
        return None
    within = {"project": project.pk} if project else {}
    return rows.first(user.is_superuser, key=key, **access.build_user_params(user), **within)


def _find_version(
    user: User, project: Project | None, asked: TaskRequest, problems: list[Problem]
) -> DatasetVersion | None:
    dataset, version = asked.dataset_id, asked.dataset_version_id
    if dataset is None and version is None and asked.entrypoint:
        return None
    found = _load_one(_VERSIONS, user, project, version)
    known = found is not None and found.dataset_id == dataset
    if not known and not _is_dataset_usable(user, project, dataset):
        problems.append(Problem("datasetId", "DATASET_UNKNOWN", {"dataset": dataset}))
    elif found is None:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_UNKNOWN", {"version": version}))
    elif found.dataset_id != dataset:
        params = {"version": version, "dataset": dataset, "owner": found.dataset_id}
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_MISMATCH", params))
    elif found.status == VersionStatus.FAILED:
        problems.append(Problem("datasetVersionId", "DATASET_VERSION_FAILED", {"version": version}))
    return found


def _is_dataset_usable(user: User, project: Project | None, key: str | None) -> bool:
    rows = Dataset.objects.filter(pk=key)
    return _filter_usable(rows, user.is_superuser, user.pk, project.pk if project else "").exists()


def _find_framework(asked: TaskRequest, nodes: int, problems: list[Problem]) -> str | None:
    name = plugins.resolve_framework_name(asked.distributed.framework)
    if asked.distributed.framework == scenarios.SINGLE and nodes > 1:
        problems.append(Problem(f"{CONFIG}.framework", "SINGLE_NOT_ALONE", {"found": nodes}))
    try:
        plugins.get_framework(name)
    except UnknownNameError as unknown:
        problems.append(Problem(f"{CONFIG}.framework", unknown.code, unknown.params))
        return None
    return name


def _build_job(
    draft: TaskDraft, asked: TaskRequest, framework: str, master: str, task_id: str, problems: list[Problem]
) -> JobSpec:
    """Return the job; it has no nodes while no environment is known."""
    model, version, choice = draft.model, draft.version, draft.choice
    named = [] if choice.select or choice.planned else choice.environments
    brought, wrong = code.resolve_code(
        choice.project, asked.code, next((one for one in named if one.pk == master), None)
    )
    problems += wrong
    first = next(iter(choice.environments), None)
    nodes: Sequence[Node] = clusters.build_nodes(choice.environments)
    if first and choice.select:
        wanted = asked.distributed.world_size
        _, wrong = limit_world_size(trim_nodes(choice.select, nodes), master, wanted)
        problems += wrong
        nodes = trim_nodes(choice.select, nodes, None if wrong else wanted)
    elif first:
        nodes, wrong = limit_world_size(nodes, master, asked.distributed.world_size)
        problems += wrong
    return build_job(
        asked,
        task_id=task_id,
        framework=framework,
        nodes=nodes,
        master=master,
        master_port=settings.MASTER_PORTS.start,
        checkpoint_dir=str(settings.DATA_DIR / CHECKPOINTS_FOLDER / task_id),
        output_dir=str(settings.DATA_DIR / OUTPUTS_FOLDER / task_id),
        **get_job_locations(choice.project.pk if choice.project else ""),
        resume_from=checkpoints.resolve_path(first.cluster, asked.resume_from or "") if first else "",
        recipe=model.recipe if model else "gpt",
        defaults=model.defaults if model else {},
        model_parameters=model.parameters if model and asked.entrypoint else None,
        train_data=version.train_path if version else "",
        valid_data=version.valid_path if version else "",
        project=choice.project.pk if choice.project else "",
        project_name=choice.project.name if choice.project else "",
        code=brought,
    )


def _build_admission_request(
    asked: TaskRequest, choice: EnvironmentChoice, project: Project
) -> admission.AdmissionRequest:
    return admission.AdmissionRequest(
        environments=choice.environments,
        where=choice.where,
        chosen=choice.select is not None,
        spent=lambda: load.load_monthly_spend(now())[project.pk].cost,
        priority=asked.priority_number,
        max_run=asked.max_run_seconds,
        preemptible=asked.preemptible,
    )


def _resolve_run_locations(cluster: Cluster, job: JobSpec) -> tuple[JobSpec, list[Problem], list[Problem]]:
    """Return the job with the run location of each node, the problems and the warnings of that. If the engine cannot be
    asked now, it is decided when the task starts."""
    try:
        known = get_backend(cluster).ways(job)
    except BackendError:
        return job, [], []
    job, impossible = run_location.choose_run_locations(job, known)
    return job, impossible, run_location.find_warnings(job)


def _check_on_engine(user: User, cluster: Cluster, job: JobSpec) -> list[Problem]:
    """Return the engine's problems with the job. For a checkpoint that the user may not read, the problem is the same
    as for one that does not exist."""
    if checkpoints.may_read_checkpoint(user, job.resume_from):
        return get_backend(cluster).problems(job)
    missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
    return [missing, *get_backend(cluster).problems(replace(job, resume_from=""))]


def _warn_not_shared(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warning which environments' files are copied to the platform, and how much at most."""
    found = [node.name for node in job.nodes if node.inside and not backend.shares_data(node)]
    if not found:
        return []
    folder, task = (humanize.format_bytes(gb << 30) for gb in (settings.CARRIED_FOLDER_GB, settings.CARRIED_TASK_GB))
    about = {"environments": ", ".join(found), "folder": folder, "task": task}
    return [Problem(run_location.FIELD, "INSIDE_NOT_SHARED", about)]


def _warn_not_queued(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warning for which environments the engine's own queue is not asked."""
    found = [node.name for node in job.nodes if node.inside and backend.queues]
    return [Problem(run_location.FIELD, "INSIDE_NOT_QUEUED", {"environments": ", ".join(found)})] if found else []


_LEASES = CompiledQuery(
    lambda project, **among: Lease.objects.filter(environment__in=list(among.values())).annotate(
        name=F("environment__name"),
        task=Subquery(Task.objects.filter(pk=OuterRef("holder"), project=project).values("name")[:1]),
    ),
    list_columns(Lease, "holder", name=None, task=None),
)


def _list_warnings(job: JobSpec, using: memory.MemoryInUse) -> list[Problem]:
    """Return the job's warnings. Tasks of other projects are named by their ids."""
    found = summary.find_warnings(job.nodes, job.master) + plugins.get_framework(job.framework).warnings(job)
    found += elastic_sizes.find_warnings(job)
    held = _LEASES.fetch(project=job.project, **make_key_parameters(node.id for node in job.nodes))
    found += credentials.find_warnings(job.env)
    if using.environments:
        found.append(Problem("", "ENVIRONMENTS_IN_USE", {"environments": memory.describe_holders(using.environments)}))
        if left := memory.describe_free_memory(using.environments):
            found.append(Problem("", "GPU_MEMORY_LEFT", {"environments": left}))
    if busy := [f"{lease['name']} ({lease['task'] or lease['holder']})" for lease in held]:
        found.append(Problem("", "ENVIRONMENTS_BUSY", {"environments": ", ".join(busy)}))
    return found
