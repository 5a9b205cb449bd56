"""Finds the environments that a request means, and the project of its task: environments by name, or capacity from
which the platform chooses when the task's turn comes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.accounts import access
from apps.accounts.models import Project, User
from apps.clusters import selectors as clusters
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.scheduling import selectors as sharing
from apps.training.core import task_environments
from apps.training.queue import load
from apps.training.services import planned_environments
from apps.training.services.planned_environments import Planned
from fermi.jobs.spec import Problem
from fermi.planning.request import NEW, SelectRequest, TaskRequest
from fermi.scheduler import placement, request_text
from fermi.scheduler.snapshot import Place, Select, Waiting

CONFIG = "distributedConfig"
SELECT = f"{CONFIG}.select"


@dataclass(slots=True)
class Choice:
    """Environments of a request. `where`: the field that named them. `select`: the requested capacity, for which the
    environments are what suits best now, master first; they may be others when the turn comes. `planned`: environments
    that are to be created."""

    environments: list[DevEnvironment]
    where: str
    project: Project | None = None
    select: Select | None = None
    planned: Planned | None = None


def choose(user: User, asked: TaskRequest, task_id: str, problems: list[Problem]) -> Choice:
    """Return the environments of a request; problems are added to `problems`."""
    if asked.launch_mode == NEW:
        return _to_be_made(user, asked, task_id, problems)
    if asked.distributed.select is not None:
        return _by_capacity(user, asked, asked.distributed.select, problems)
    ids, where = asked.environment_ids, environments_field(asked)
    if where != "environmentIds":
        nodes = asked.distributed.node_ids
        if stray := [key for key in ids if key not in nodes]:
            problems.append(Problem("environmentIds", "ENVIRONMENTS_CONTRADICT", {"environments": ", ".join(stray)}))
        ids = nodes
    found = environments_named(user, ids, where, problems)
    project = _project(user, asked, found, problems)
    if project:
        problems += foreign(project.pk, found, ids, where)
    return Choice(found, where, project)


def environments_field(asked: TaskRequest) -> str:
    """Return the name of the field that decides where the task runs."""
    config = asked.distributed_config
    if asked.launch_mode == NEW:
        return planned_environments.FIELD
    if asked.distributed.select is not None:
        return SELECT
    chosen = config and config.enabled and (config.node_ids or not asked.environment_ids)
    return f"{CONFIG}.nodeIds" if chosen else "environmentIds"


def environments_named(user: User, ids: Sequence[str], where: str, problems: list[Problem]) -> list[DevEnvironment]:
    """Return the environments with these ids that one task can use together; problems are added to `problems`, at the
    field `field_name`."""
    if not ids:
        problems.append(Problem(where, "ENVIRONMENT_REQUIRED"))
    found, wrong = clusters.pick(user, ids, where)
    problems += wrong
    kept = task_environments.kept([environment.pk for environment in found])
    for environment in found:
        at = f"{where}.{ids.index(environment.pk)}"
        if task := kept.get(environment.pk):
            params = {"environment": environment.name, "task": task}
            problems.append(Problem(at, "ENVIRONMENT_MADE_FOR_TASK", params))
        if obstacle := clusters.obstacle(environment.name, environment.status, environment.cordoned):
            problems.append(Problem(at, obstacle.code, obstacle.params))
        problems += _of_another_cluster(at, environment, found[0])
    return found


def foreign(project: str, found: Sequence[DevEnvironment], ids: Sequence[str], where: str) -> list[Problem]:
    """Return a problem for each environment that only tasks of another project may use."""
    first = next((one for one in found if one.project_id == project), found[0] if found else None)
    return [
        Problem(
            f"{where}.{ids.index(one.pk)}",
            "ENVIRONMENT_FOREIGN",
            {"environment": one.name, "first": first.name if first else ""},
        )
        for one in found
        if not one.shared and one.project_id != project
    ]


def check_spares(user: User, asked: TaskRequest, choice: Choice, problems: list[Problem]) -> None:
    """Add the problems of the request's spare environments to `problems`. They need not be usable before an environment
    is lost."""
    ids, where = asked.spare_environment_ids, "spareEnvironmentIds"
    found, wrong = clusters.pick(user, ids, where)
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
            problems += _of_another_cluster(at, spare, first)


def master(asked: TaskRequest, choice: Choice, problems: list[Problem]) -> str:
    """Return the master's id. If it is missing or wrong, a problem is added and the first environment is used, so that
    the rest can be shown."""
    chosen, where = asked.distributed.master_node, f"{CONFIG}.masterNode"
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


def select_of(asked: SelectRequest) -> Select:
    """Return the scheduler's form of a capacity request."""
    return Select(
        nodes=asked.nodes,
        gpus_per_node=asked.gpus_per_node,
        total_gpus=asked.total_gpus,
        gpu_types=asked.gpu_types,
        zones=asked.zones,
        same_zone=asked.same_zone,
        labels=asked.labels,
        exclude=asked.exclude,
    )


def waiting(choice: Choice, user: User, task: str, asked: TaskRequest) -> Waiting:
    """Return the task as it would wait in the queue now."""
    return Waiting(
        task=task,
        name=asked.task_name,
        project=choice.project.pk if choice.project else "",
        user=user.username,
        cluster=choice.environments[0].cluster_id if choice.environments else "",
        since=now().timestamp(),
        named=() if choice.select else tuple(environment.pk for environment in choice.environments),
        select=choice.select,
        priority=asked.priority_number,
        preemptible=asked.preemptible,
        max_run=asked.max_run_seconds,
    )


def _by_capacity(user: User, asked: TaskRequest, wanted: SelectRequest, problems: list[Problem]) -> Choice:
    """Return what suits best of what is free now, else of all there is, in the first cluster that has it. If the
    request says nothing about GPUs, environments with GPUs come first, and others are chosen only if no GPUs suit."""
    named = [*asked.distributed.node_ids, *asked.environment_ids]
    if named:
        problems.append(Problem(SELECT, "SELECT_WITH_NODES", {"environments": ", ".join(named)}))
    twice = wanted.gpus_per_node is not None and wanted.total_gpus is not None
    if twice:
        problems.append(Problem(SELECT, "SELECT_GPUS_TWICE"))
    select = select_of(wanted)
    choice = Choice([], SELECT, _project(user, asked, [], problems), select)
    if choice.project is None or twice:
        return choice
    there, taken = load.places(), set(Lease.objects.values_list("environment_id", flat=True))
    homes = sorted({place.cluster for place in there if place.shared or place.project == choice.project.pk})
    limits = sharing.known(choice.project, sharing.limits_of(choice.project))
    free = [place for place in there if place.id not in taken]
    rounds = [
        (select, free, limits),
        (select, there, limits),
        (select, there, None),
    ]  # the last one finds what a limit forbids
    if wanted.gpus_per_node is None and wanted.total_gpus is None:
        on_gpus = replace(select, on_gpus=True)
        rounds = [(on_gpus, free, limits), (on_gpus, there, limits), *rounds]
    for select, open_ones, within in rounds:
        for cluster in homes:
            asks = Waiting("", choice.project.pk, user.username, cluster, 0.0, select=select)
            if found := placement.choose(asks, open_ones, within):
                rows = DevEnvironment.objects.select_related("zone", "cluster").in_bulk([place.id for place in found])
                choice.environments = [rows[place.id] for place in found if place.id in rows]
                choice.select = select
                return choice
    problems.append(_impossible(choice.select, choice.project.pk, homes, there))
    return choice


def _to_be_made(user: User, asked: TaskRequest, task_id: str, problems: list[Problem]) -> Choice:
    choice = Choice([], planned_environments.FIELD, _project(user, asked, [], problems))
    if choice.project and (found := planned_environments.plan(user, asked, choice.project, task_id, problems)):
        choice.planned, choice.environments = found, found.environments
    return choice


def _impossible(select: Select | None, project: str, homes: Sequence[str], there: Sequence[Place]) -> Problem:
    assert select is not None
    found = request_text.possible(select, project, homes[0] if len(homes) == 1 else "", there)
    return found or Problem(SELECT, "SELECT_IMPOSSIBLE", {"wanted": request_text.text(select), "found": 0})


def _project(
    user: User, asked: TaskRequest, found: Sequence[DevEnvironment], problems: list[Problem]
) -> Project | None:
    """Return the project that the request names; else that of its environments, if others may not use them; else the
    user's only one."""
    mine = access.visible(Project.objects.all(), user, "pk")
    if asked.project_id:
        project = mine.filter(pk=asked.project_id).first()
        if project is None:
            problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": asked.project_id}))
        return project
    owners = [one.project_id for one in found if not one.shared] or [
        one.project_id for one in found if access.is_member(user, one.project_id)
    ]
    if owners:
        return next(one.project for one in found if one.project_id == owners[0])
    if found or asked.distributed.select is not None or asked.launch_mode == NEW:
        several = list(mine.order_by("name")[:20])
        if len(several) == 1:
            return several[0]
        problems.append(Problem("projectId", "PROJECT_REQUIRED", {"allowed": ", ".join(one.name for one in several)}))
    return None


def _of_another_cluster(where: str, environment: DevEnvironment, first: DevEnvironment) -> list[Problem]:
    """Return the problem of two environments in different clusters."""
    if environment.cluster_id == first.cluster_id:
        return []
    return [Problem(where, "CLUSTERS_DIFFER", {"environment": environment.name, "first": first.name})]
