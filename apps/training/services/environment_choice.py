"""Finds the environments that a request means, and the project of its task: environments by name, or capacity from
which the platform chooses when the task's turn comes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.accounts import access
from apps.accounts.models import Project, User
from apps.clusters import selectors as clusters
from apps.clusters.models import Cluster, DevEnvironment, Lease
from apps.common.clock import now
from apps.scheduling import selectors
from apps.training.core import task_environments
from apps.training.queue import load
from apps.training.services import planned_environments
from apps.training.services.planned_environments import PlannedEnvironments
from fermi.jobs.spec import Problem
from fermi.planning.request import NEW, SelectRequest, TaskRequest
from fermi.scheduler import placement, request_text
from fermi.scheduler.snapshot import EnvironmentInfo, Select, WaitingTask

CONFIG = "distributedConfig"
SELECT = f"{CONFIG}.select"


@dataclass(slots=True)
class EnvironmentChoice:
    """Environments of a request. `where`: the field that named them. `select`: the requested capacity, for which the
    environments are what suits best now, master first; they may be others when the turn comes. `planned`: environments
    that are to be created. `master`: the id of one of them; empty without any."""

    environments: list[DevEnvironment]
    where: str
    project: Project | None = None
    select: Select | None = None
    planned: PlannedEnvironments | None = None
    master: str = ""

    @property
    def cluster(self) -> Cluster | None:
        return self.environments[0].cluster if self.environments else None


def choose_environments(user: User, request: TaskRequest, task_id: str, problems: list[Problem]) -> EnvironmentChoice:
    """Return the environments of a request and its master; problems, of its spares too, are added to `problems`."""
    if request.launch_mode == NEW:
        choice = _plan_new_environments(user, request, task_id, problems)
    elif request.distributed.select is not None:
        choice = _choose_by_capacity(user, request, request.distributed.select, problems)
    else:
        choice = _choose_by_name(user, request, problems)
    _check_spares(user, request, choice, problems)
    choice.master = _choose_master(request, choice, problems)
    return choice


def _choose_by_name(user: User, request: TaskRequest, problems: list[Problem]) -> EnvironmentChoice:
    config, ids, where = request.distributed_config, request.environment_ids, "environmentIds"
    if config and config.enabled and (config.node_ids or not ids):
        if stray := [key for key in ids if key not in config.node_ids]:
            problems.append(Problem(where, "ENVIRONMENTS_CONTRADICT", {"environments": ", ".join(stray)}))
        ids, where = config.node_ids, f"{CONFIG}.nodeIds"
    environments = find_named_environments(user, ids, where, problems)
    project = _find_project(user, request, environments, problems)
    if project:
        problems += check_foreign(project.pk, environments, ids, where)
    return EnvironmentChoice(environments, where, project)


def find_named_environments(
    user: User, ids: Sequence[str], field_name: str, problems: list[Problem]
) -> list[DevEnvironment]:
    """Return the environments with these ids that one task can use together; problems are added to `problems`, at the
    field `field_name`."""
    if not ids:
        problems.append(Problem(field_name, "ENVIRONMENT_REQUIRED"))
    found, wrong = clusters.select_environments(user, ids, field_name)
    problems += wrong
    kept = task_environments.find_unfinished_owners([environment.pk for environment in found])
    for environment in found:
        at = f"{field_name}.{ids.index(environment.pk)}"
        if task := kept.get(environment.pk):
            params = {"environment": environment.name, "task": task}
            problems.append(Problem(at, "ENVIRONMENT_MADE_FOR_TASK", params))
        if obstacle := clusters.find_obstacle(environment.name, environment.status, environment.cordoned):
            problems.append(Problem(at, obstacle.code, obstacle.params))
        problems += _check_same_cluster(at, environment, found[0])
    return found


def check_foreign(
    project: str, environments: Sequence[DevEnvironment], ids: Sequence[str], field_name: str
) -> list[Problem]:
    """Return a problem for each environment that only tasks of another project may use."""
    first = next((one for one in environments if one.project_id == project), environments[0] if environments else None)
    return [
        Problem(
            f"{field_name}.{ids.index(one.pk)}",
            "ENVIRONMENT_FOREIGN",
            {"environment": one.name, "first": first.name if first else ""},
        )
        for one in environments
        if not one.shared and one.project_id != project
    ]


def _check_spares(user: User, request: TaskRequest, choice: EnvironmentChoice, problems: list[Problem]) -> None:
    """Add the problems of the request's spare environments to `problems`. They need not be usable before an environment
    is lost."""
    ids, where = request.spare_environment_ids, "spareEnvironmentIds"
    found, wrong = clusters.select_environments(user, ids, where)
    problems += wrong
    for spare in found:
        at = f"{where}.{ids.index(spare.pk)}"
        if spare in choice.environments and choice.select is None:
            problems.append(Problem(at, "SPARE_CHOSEN", {"environment": spare.name}))
        elif choice.environments:
            first = choice.environments[0]
            if choice.project and not spare.shared and spare.project_id != choice.project.pk:
                params = {"environment": spare.name, "first": first.name}
                problems.append(Problem(at, "ENVIRONMENT_FOREIGN", params))
            problems += _check_same_cluster(at, spare, first)


def _choose_master(request: TaskRequest, choice: EnvironmentChoice, problems: list[Problem]) -> str:
    """Return the master's id. If it is missing or wrong, a problem is added and the first environment is used, so that
    the rest can be shown."""
    chosen, where = request.distributed.master_node, f"{CONFIG}.masterNode"
    ids = [environment.pk for environment in choice.environments]
    if choice.select is not None:
        if chosen:
            problems.append(Problem(where, "SELECT_WITH_MASTER", {"master": chosen}))
    elif choice.planned is not None:
        pass  # the first
    elif chosen in ids:
        return chosen
    elif chosen and ids:  # without any, that is what is missing
        problems.append(Problem(where, "MASTER_NOT_SELECTED", {"master": chosen, "allowed": ", ".join(ids)}))
    elif len(ids) > 1:
        problems.append(Problem(where, "MASTER_REQUIRED", {"allowed": ", ".join(ids)}))
    return ids[0] if ids else ""


def build_select(request: SelectRequest) -> Select:
    """Return the scheduler's form of a capacity request."""
    return Select(
        nodes=request.nodes,
        gpus_per_node=request.gpus_per_node,
        total_gpus=request.total_gpus,
        gpu_types=request.gpu_types,
        zones=request.zones,
        same_zone=request.same_zone,
        labels=request.labels,
        exclude=request.exclude,
    )


def build_waiting_task(user: User, request: TaskRequest, choice: EnvironmentChoice, task_id: str) -> WaitingTask:
    """Return the task as it would wait in the queue now."""
    return WaitingTask(
        task=task_id,
        name=request.task_name,
        project=choice.project.pk if choice.project else "",
        user=user.username,
        cluster=choice.environments[0].cluster_id if choice.environments else "",
        since=now().timestamp(),
        named=() if choice.select else tuple(environment.pk for environment in choice.environments),
        select=choice.select,
        priority=request.priority_number,
        preemptible=request.preemptible,
        max_run=request.max_run_seconds,
    )


def _choose_by_capacity(
    user: User, request: TaskRequest, capacity: SelectRequest, problems: list[Problem]
) -> EnvironmentChoice:
    """Return what suits best of what is free now, else of all there is, in the first cluster that has it. If the
    request says nothing about GPUs, environments with GPUs come first, and others are chosen only if no GPUs suit."""
    named = [*request.distributed.node_ids, *request.environment_ids]
    if named:
        problems.append(Problem(SELECT, "SELECT_WITH_NODES", {"environments": ", ".join(named)}))
    has_both = capacity.gpus_per_node is not None and capacity.total_gpus is not None
    if has_both:
        problems.append(Problem(SELECT, "SELECT_GPUS_TWICE"))
    select = build_select(capacity)
    project = _find_project(user, request, [], problems)
    choice = EnvironmentChoice([], SELECT, project, select)
    if project is None or has_both:
        return choice
    known, leased = load.load_environments(), set(Lease.objects.values_list("environment_id", flat=True))
    cluster_ids = sorted({one.cluster for one in known if one.shared or one.project == project.pk})
    limits = selectors.build_project(project, selectors.get_limits(project))
    free = [one for one in known if one.id not in leased]
    rounds = [(select, free, limits), (select, known, limits), (select, known, None)]
    if capacity.gpus_per_node is None and capacity.total_gpus is None:
        on_gpus = replace(select, on_gpus=True)
        rounds = [(on_gpus, free, limits), (on_gpus, known, limits), *rounds]
    for wanted, candidates, within in rounds:  # the last one finds what a limit forbids
        for cluster in cluster_ids:
            waiting = WaitingTask("", project.pk, user.username, cluster, 0.0, select=wanted)
            if found := placement.choose_environments(waiting, candidates, within):
                rows = DevEnvironment.objects.select_related("zone", "cluster").in_bulk([one.id for one in found])
                choice.environments = [rows[one.id] for one in found if one.id in rows]
                choice.select = wanted
                return choice
    problems.append(_explain_impossible(select, project.pk, cluster_ids, known))
    return choice


def _plan_new_environments(
    user: User, request: TaskRequest, task_id: str, problems: list[Problem]
) -> EnvironmentChoice:
    choice = EnvironmentChoice([], planned_environments.FIELD, _find_project(user, request, [], problems))
    if choice.project and (
        found := planned_environments.plan_environments(user, request, choice.project, task_id, problems)
    ):
        choice.planned, choice.environments = found, found.environments
    return choice


def _explain_impossible(
    select: Select, project: str, cluster_ids: Sequence[str], known: Sequence[EnvironmentInfo]
) -> Problem:
    found = request_text.check_possible(select, project, cluster_ids[0] if len(cluster_ids) == 1 else "", known)
    return found or Problem(SELECT, "SELECT_IMPOSSIBLE", {"wanted": request_text.format_request(select), "found": 0})


def _find_project(
    user: User, request: TaskRequest, environments: Sequence[DevEnvironment], problems: list[Problem]
) -> Project | None:
    """Return the project that the request names; else that of its environments, if others may not use them; else the
    user's only one."""
    mine = access.filter_visible(Project.objects.all(), user, "pk")
    if request.project_id:
        project = mine.filter(pk=request.project_id).first()
        if project is None:
            problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": request.project_id}))
        return project
    owners = [one.project_id for one in environments if not one.shared] or [
        one.project_id for one in environments if access.is_member(user, one.project_id)
    ]
    if owners:
        return next(one.project for one in environments if one.project_id == owners[0])
    if environments or request.distributed.select is not None or request.launch_mode == NEW:
        several = list(mine.order_by("name")[:20])
        if len(several) == 1:
            return several[0]
        problems.append(Problem("projectId", "PROJECT_REQUIRED", {"allowed": ", ".join(one.name for one in several)}))
    return None


def _check_same_cluster(where: str, environment: DevEnvironment, first: DevEnvironment) -> list[Problem]:
    """Return the problem of two environments in different clusters."""
    if environment.cluster_id == first.cluster_id:
        return []
    return [Problem(where, "CLUSTERS_DIFFER", {"environment": environment.name, "first": first.name})]
