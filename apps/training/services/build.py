"""Builds the job that a request describes, with all its problems and warnings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db.models import F, OuterRef, Q, Subquery

from apps.accounts import access, secrets
from apps.accounts.access import Rows
from apps.accounts.models import Project, User
from apps.catalog.models import Dataset, DatasetVersion, Model, VersionStatus
from apps.clusters import selectors as clusters
from apps.clusters.models import Lease
from apps.common.clock import now
from apps.common.errors import is_value_unknown, merge_problems
from apps.common.sql import CompiledInstances, CompiledQuery, M, list_columns, make_key_parameters
from apps.environments import memory
from apps.files.services.outputs import get_job_locations
from apps.scheduling.services import admission
from apps.training.core import checkpoint_nodes, checkpoints, code
from apps.training.core.engine_access import get_backend
from apps.training.models import Task
from apps.training.queue import load
from apps.training.services import environment_choice, packages, predecessors
from apps.training.services.environment_choice import EnvironmentChoice
from fermi.diagnosis.collective_groups import format_names
from fermi.engines.base import Backend
from fermi.jobs import credentials, recipes, run_location
from fermi.jobs.errors import BackendError, UnknownNameError
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.jobs.user_paths import CHECKPOINTS_FOLDER, OUTPUTS_FOLDER
from fermi.planning import elastic_sizes, entry, installed, plugins, resume_rules, scenarios, summary, validate
from fermi.planning.request import EXISTING, NEW, ParsedRequest, TaskRequest, build_job, limit_world_size, trim_nodes
from fermi.schema import humanize

CONFIG = "distributedConfig"


@dataclass(slots=True)
class TaskDraft:
    """A request and the job that it describes. `job` is None while too little is known for one; with `problems` it is
    as much of the job as can be shown."""

    parsed: ParsedRequest
    choice: EnvironmentChoice
    version: DatasetVersion | None
    model: Model | None
    job: JobSpec | None = None
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    installed: packages.PackageReport = field(default_factory=packages.PackageReport)
    using: memory.MemoryInUse = field(default_factory=memory.MemoryInUse)
    resume: resume_rules.ProposedRule | None = None

    def build_columns(self) -> dict[str, Any]:
        """Return the columns of a task that hold what it was made from."""
        return {
            "name": self.parsed.task.task_name,
            "dataset_version": self.version,
            "model": self.model,
            "request": self.parsed.body,
        }


def build_draft(user: User, parsed: ParsedRequest, task_id: str, *, start_surveys: bool = True) -> TaskDraft:
    """Return the draft of a request. All problems are in `problems`, at once.

    `start_surveys`: whether environments whose packages are not known are surveyed, which takes seconds; it is for
    callers that ask again for the result.
    """
    request, problems = parsed.task, _check_request(parsed.task)
    choice = environment_choice.choose_environments(user, request, task_id, problems)
    if choice.project:
        problems += secrets.find_unknown_secrets(choice.project.pk, request.secret_env)
        problems += predecessors.find_problems(user, choice.project, request)
    version = _find_version(user, choice.project, request, problems)
    model = _load_one(_MODELS, user, choice.project, request.model_id)
    if model is None and request.model_id:
        problems.append(Problem("modelId", "MODEL_UNKNOWN", {"model": request.model_id}))
    draft = TaskDraft(parsed, choice, version, model)
    framework = (
        None
        if is_value_unknown(parsed.problems, f"{CONFIG}.framework")
        else _find_framework(request, len(choice.environments), problems)
    )
    job = _build_job(draft, framework or plugins.DEFAULT_FRAMEWORK, task_id, problems)
    inspected = code.inspect_code(job)
    problems += [*validate.find_general_problems(job), *inspected.problems]
    if version:
        problems += recipes.find_vocabulary_problems(job, version.largest_token)
    if choice.cluster:
        backend = get_backend(choice.cluster)
        located, location_problems, location_warnings = _resolve_run_locations(
            backend, elastic_sizes.set_full_size(job)
        )
        # engines run the interpreter that it names
        job = located if access.is_member(user, choice.project) else replace(located, python="")
        entry_text = backend.entry_text(job, entry.MAX_SCRIPT_BYTES)
        problems += location_problems + _check_on_engine(user, backend, job)
        problems += entry.find_text_problems(job.entrypoint, entry_text) + _check_admission(user, request, choice)
        if framework:
            draft.job = job
            problems += validate.find_framework_problems(job) + elastic_sizes.find_problems(job)
            problems += installed.find_problems(job, backend)
            draft.using = memory.find_memory_in_use((node.id for node in job.nodes), user)
            draft.installed = packages.compare_packages(
                user, located, choice.environments, code.find_imports(job, entry_text), start_surveys=start_surveys
            )
            if job.entrypoint and not job.entrypoint.resume:
                draft.resume = resume_rules.propose_resume_rule(entry_text or inspected.entry_text)
            draft.warnings = [
                *_list_warnings(job, draft.using),
                *location_warnings,
                *installed.find_warnings(job, backend),
                *_warn_inside(job, backend),
                *_warn_apart(job, backend),
                *entry.find_warnings(job, entry_text or inspected.entry_text),
                *inspected.warnings,
                *draft.installed.warnings(),
            ]
            if not (request.model_id or request.entrypoint):
                draft.warnings.append(Problem("modelId", "MODEL_NOT_CHOSEN"))
    own = [problem for problem in problems if not _may_follow_from(problem, parsed.problems)]
    draft.problems = sorted(merge_problems(parsed.problems, own), key=_get_form_position)
    return draft


def _check_request(request: TaskRequest) -> list[Problem]:
    """Return the problems that need nothing but the request."""
    problems = []
    if not request.task_name:
        problems.append(Problem("taskName", "NAME_REQUIRED"))
    if request.launch_mode not in (EXISTING, NEW):
        problems.append(Problem("launchMode", "LAUNCH_MODE_UNKNOWN", {"found": request.launch_mode}))
    elif request.launch_mode == EXISTING and request.new_environments:
        problems.append(Problem("newEnvironments", "NEW_WITHOUT_MODE", {"found": request.launch_mode}))
    return problems


def _may_follow_from(problem: Problem, shape_problems: Sequence[Problem]) -> bool:
    """Return True if the problem may only exist because another field could not be read."""
    needed = next((fields for start, fields in _DEPENDS_ON.items() if problem.field.startswith(start)), ())
    return is_value_unknown(shape_problems, *needed)


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
    "entrypoint.script": ("entrypoint.module", "entrypoint.command"),
    f"{CONFIG}.nodeIds": _NODE_FIELDS,
    f"{CONFIG}.masterNode": _NODE_FIELDS,
    f"{CONFIG}.framework": _NODE_FIELDS,
    f"{CONFIG}.strategy": (*_NODE_FIELDS, f"{CONFIG}.worldSize"),
    f"{CONFIG}.options": (*_NODE_FIELDS, f"{CONFIG}.worldSize"),
    f"{CONFIG}.worldSize": _NODE_FIELDS,
}
"""By the field of a problem: the fields from whose values it may follow."""


def _filter_usable(rows: Rows, user: access.AnyUser, project: str) -> Rows:
    """Return the rows that the user may see and the task's project may use, as other members of the project will read
    the task."""
    rows = access.filter_visible(rows, user, shared=True)
    return rows.filter(Q(project=None) | Q(project=project)) if project else rows


_VERSIONS = CompiledInstances(
    DatasetVersion,
    lambda rights, /, key, user=0, project="": DatasetVersion.objects.filter(
        pk=key, dataset__in=_filter_usable(Dataset.objects.all(), rights.with_key(user), project)
    ),
)
_MODELS = CompiledInstances(
    Model,
    lambda rights, /, key, user=0, project="": (
        _filter_usable(Model.objects.filter(pk=key), rights.with_key(user), project)
    ),
)  # fmt: skip


def _load_one(rows: CompiledInstances[M], user: User, project: Project | None, key: str | None) -> M | None:
    if not key:
        return None
    within = {"project": project.pk} if project else {}
    return rows.first(access.get_query_shape(user), key=key, **access.build_user_params(user), **within)


def _find_version(
    user: User, project: Project | None, request: TaskRequest, problems: list[Problem]
) -> DatasetVersion | None:
    dataset, version = request.dataset_id, request.dataset_version_id
    if dataset is None and version is None and request.entrypoint:
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
    return _filter_usable(rows, user, project.pk if project else "").exists()


def _find_framework(request: TaskRequest, nodes: int, problems: list[Problem]) -> str | None:
    name = plugins.resolve_framework_name(request.distributed.framework)
    if request.distributed.framework == scenarios.SINGLE and nodes > 1:
        problems.append(Problem(f"{CONFIG}.framework", "SINGLE_NOT_ALONE", {"found": nodes}))
    try:
        plugins.get_framework(name)
    except UnknownNameError as unknown:
        problems.append(Problem(f"{CONFIG}.framework", unknown.code, unknown.params))
        return None
    return name


def _build_job(draft: TaskDraft, framework: str, task_id: str, problems: list[Problem]) -> JobSpec:
    """Return the job; it has no nodes while no environment is known."""
    request, model, version, choice = draft.parsed.task, draft.model, draft.version, draft.choice
    named = [] if choice.select or choice.planned else choice.environments
    master = next((one for one in named if one.pk == choice.master), None)
    brought, wrong = code.resolve_code(choice.project, request.code, master)
    problems += wrong
    nodes: Sequence[Node] = clusters.build_nodes(choice.environments)
    if nodes:
        world_size = request.distributed.world_size
        part = trim_nodes(choice.select, nodes) if choice.select else nodes
        limited, wrong = limit_world_size(part, choice.master, world_size)
        problems += wrong
        nodes = trim_nodes(choice.select, nodes, None if wrong else world_size) if choice.select else limited
    return build_job(
        request,
        task_id=task_id,
        framework=framework,
        nodes=nodes,
        master=choice.master,
        master_port=settings.MASTER_PORTS.start,
        checkpoint_dir=str(settings.DATA_DIR / CHECKPOINTS_FOLDER / task_id),
        output_dir=str(settings.DATA_DIR / OUTPUTS_FOLDER / task_id),
        **get_job_locations(choice.project.pk if choice.project else ""),
        resume_from=checkpoints.resolve_path(choice.cluster, request.resume_from or "") if choice.cluster else "",
        recipe=model.recipe if model else "gpt",
        defaults=model.defaults if model else {},
        model_parameters=model.parameters if model and request.entrypoint else None,
        train_data=version.train_path if version else "",
        valid_data=version.valid_path if version else "",
        project=choice.project.pk if choice.project else "",
        project_name=choice.project.name if choice.project else "",
        code=brought,
    )


def _check_admission(user: User, request: TaskRequest, choice: EnvironmentChoice) -> list[Problem]:
    """Return the project's problems with the request."""
    project = choice.project
    if project is None:
        return []
    wanted = admission.AdmissionRequest(
        environments=choice.environments,
        where=choice.where,
        chosen=choice.select is not None,
        spent=lambda: load.load_monthly_spend(now())[project.pk].cost,
        priority=request.priority_number,
        max_run=request.max_run_seconds,
        preemptible=request.preemptible,
    )
    return admission.check_request(user, project, wanted)


def _resolve_run_locations(backend: Backend, job: JobSpec) -> tuple[JobSpec, list[Problem], list[Problem]]:
    """Return the job with the run location of each node, the problems and the warnings of that. If the engine cannot be
    asked now, it is decided when the task starts."""
    try:
        known = backend.find_run_locations(job)
    except BackendError:
        return job, [], []
    job, impossible = run_location.choose_run_locations(job, known)
    return job, impossible, run_location.find_warnings(job)


def _check_on_engine(user: User, backend: Backend, job: JobSpec) -> list[Problem]:
    """Return the engine's problems with the job. For a checkpoint that the user may not read, the problem is the same
    as for one that does not exist."""
    if checkpoints.may_read_checkpoint(user, job.resume_from):
        is_apart = checkpoint_nodes.find_nodes_apart(backend, job.resume_from) is not None
        return [one for one in backend.problems(job) if not (is_apart and one.code == "RESUME_NOT_FOUND")]
    missing = Problem("resumeFrom", "RESUME_NOT_FOUND", {"path": job.resume_from})
    return [missing, *backend.problems(replace(job, resume_from=""))]


def _warn_apart(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warning which of the job's nodes are not known to have the checkpoint that it resumes from."""
    nodes = checkpoint_nodes.find_nodes_apart(backend, job.resume_from)
    absent = checkpoint_nodes.list_absent_nodes(nodes, [(one.id, one.name) for one in job.nodes]) if nodes else []
    if not nodes or not absent:
        return []
    params = {
        "path": job.resume_from,
        "nodes": format_names(checkpoint_nodes.list_node_names(nodes)),
        "absent": format_names(absent),
    }
    return [Problem("resumeFrom", "RESUME_ON_OTHER_NODES", params)]


def _warn_inside(job: JobSpec, backend: Backend) -> list[Problem]:
    """Return the warnings which environments that ranks run in have their files copied to the platform, and how much at
    most; and for which of them the engine's own queue is not asked."""
    inside = [node for node in job.nodes if node.inside]
    found = []
    if copied := ", ".join(node.name for node in inside if not backend.shares_data(node)):
        params = {
            "environments": copied,
            "folder": humanize.format_bytes(settings.CARRIED_FOLDER_GB << 30),
            "task": humanize.format_bytes(settings.CARRIED_TASK_GB << 30),
        }
        found.append(Problem(run_location.FIELD, "INSIDE_NOT_SHARED", params))
    if inside and backend.queues:
        params = {"environments": ", ".join(node.name for node in inside)}
        found.append(Problem(run_location.FIELD, "INSIDE_NOT_QUEUED", params))
    return found


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
