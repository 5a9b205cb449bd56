"""Environments that a request creates for its task (`launchMode` new): what they would be, and their creation in the
transaction that stores the task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.environments import services as environments
from apps.environments import specs
from fermi.jobs.spec import Problem
from fermi.planning.request import MAX_NAME_LENGTH, NewEnvironmentsRequest, TaskRequest

FIELD = "newEnvironments"
CONFIG = "distributedConfig"
_FIELDS = {"templateId": f"{FIELD}.template", "clusterId": f"{FIELD}.clusterId", "zone": f"{FIELD}.zone"}


@dataclass(frozen=True, slots=True)
class PlannedEnvironments:
    """Environments to be created. `drafts`: one for each of `environments`, which are stored nowhere yet; the first is
    the master."""

    drafts: Sequence[environments.ValidatedEnvironment]
    environments: list[DevEnvironment]
    afterwards: str


def plan_environments(
    user: User, request: TaskRequest, project: Project, task_id: str, problems: list[Problem]
) -> PlannedEnvironments | None:
    """Return the environments that the request would create; None if too much is wrong to say what they would be.
    Problems are added to `problems`."""
    wanted = request.new_environments
    problems += _list_contradictions(request)
    if wanted is None or not wanted.template:
        problems.append(Problem(FIELD if wanted is None else f"{FIELD}.template", "NEW_ENVIRONMENTS_REQUIRED"))
        return None
    drafts = environments.validate_environments(user, _build_requests(request, wanted, project, task_id))
    for problem in (_to_task_problem(problem) for draft in drafts for problem in draft.problems):
        if problem not in problems:
            problems.append(problem)
    rows = [_build_row(user, draft) for draft in drafts]
    return PlannedEnvironments(drafts, [row for row in rows if row], wanted.afterwards)


def create_environments(user: User, planned: PlannedEnvironments, task_id: str) -> None:
    """Create the environments, in the caller's transaction and before the task's nodes are stored."""
    for draft in planned.drafts:
        environments.create_environment(user, draft.request, draft=draft, task=task_id, afterwards=planned.afterwards)


def _list_contradictions(request: TaskRequest) -> list[Problem]:
    """Return a problem for each field that names existing environments."""
    config, found = request.distributed, []
    if named := [*request.environment_ids, *config.node_ids]:
        where = "environmentIds" if request.environment_ids else f"{CONFIG}.nodeIds"
        found.append(Problem(where, "NEW_WITH_NODES", {"environments": ", ".join(named)}))
    if config.select is not None:
        found.append(Problem(f"{CONFIG}.select", "NEW_WITH_NODES", {"environments": "select"}))
    if config.master_node:
        found.append(Problem(f"{CONFIG}.masterNode", "NEW_MASTER", {"master": config.master_node}))
    return found


def _build_requests(
    request: TaskRequest, wanted: NewEnvironmentsRequest, project: Project, task_id: str
) -> list[environments.CreateRequest]:
    """Return the requests for the environments, named after the task so that tasks with the same name do not
    collide."""
    mark = task_id.rpartition("-")[2][:4]
    return [
        environments.CreateRequest(
            template=wanted.template,
            project=project.pk,
            name=f"{request.task_name[: MAX_NAME_LENGTH - 12]}-{mark}-{number}",
            cluster=wanted.cluster_id or "",
            zone=wanted.zone or "",
        )
        for number in range(1, wanted.count + 1)
    ]


def _to_task_problem(problem: Problem) -> Problem:
    """Return the problem at the field of the task's request; problems that all environments share are reported once."""
    return replace(problem, field=_FIELDS.get(problem.field, FIELD))


def _build_row(user: User, draft: environments.ValidatedEnvironment) -> DevEnvironment | None:
    spec = draft.spec
    if spec is None:
        return None
    return DevEnvironment(
        pk=spec.id,
        name=spec.name,
        project=draft.project,
        owner=user,
        cluster=draft.cluster,
        zone=draft.zone,
        status=EnvironmentStatus.CREATING,
        host=spec.host,
        engine=dict(draft.marks),
        **specs.build_columns(spec),
    )
