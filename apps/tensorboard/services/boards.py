"""Opening and ending TensorBoards. Each runs in an environment that the platform creates for it."""

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts import access
from apps.accounts.models import Project, Role, User
from apps.clusters.models import Cluster
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.environments import own_secrets
from apps.environments.models import Hosted, Template
from apps.environments.services.create import create_environment
from apps.environments.services.lifecycle import retire_environment
from apps.environments.states import STATES_AT_REST, DesiredState
from apps.environments.states.reasons import CAUSES, EnvironmentReason
from apps.environments.transitions import EnvironmentInUseError
from apps.environments.validation import (
    CreateRequest,
    ValidatedEnvironment,
    list_environment_clusters,
    validate_environments,
)
from apps.tensorboard import selectors
from apps.tensorboard.models import TensorBoard
from apps.training.public import Task, find_platform_address, find_task
from fermi.jobs.spec import Cause, Problem
from fermi.tensorboard.start_script import build_start_script

MAX_TASKS = 20
MAX_PER_PERSON = 5
IDLE_MINUTES = 30
CPU_CORES, MEMORY_GB = 1, 2
PURPOSE = DOOR = "tensorboard"
FEED_PATH = "/tensorboard-feed"
PORTS = range(24_000, 29_000)
"""Where it listens on loopback: below the ports of rendezvous, and below Linux's ephemeral ones."""
MAX_CLUSTERS = 3
"""Clusters that one request tries."""
KEEP_ENDED = timedelta(minutes=10)
"""How long one that failed is kept, for the reason to be read."""


def open_tensorboard(user: User, task_ids: Sequence[str]) -> TensorBoard:
    """Return the TensorBoard of these tasks; create one where there is none (member). Raises ApiError and
    ProblemsError."""
    tasks = [find_task(user, task_id) for task_id in dict.fromkeys(task_ids)]
    projects = {task.project_id for task in tasks}
    if len(projects) > 1:
        raise ApiError(400, "TENSORBOARD_TWO_PROJECTS", "taskIds", count=len(projects))
    [project] = projects
    access.require_role(user, project, Role.MEMBER)
    key = compute_key(project, [task.pk for task in tasks])
    if found := selectors.find_usable(key):
        return found
    _check_count(user)
    board_id = new_id("tensorboard")
    draft = _draft_environment(user, project, tasks, board_id)
    with transaction.atomic():
        list(Project.objects.select_for_update().filter(pk=project).values_list("pk"))
        if found := selectors.find_usable(key):  # the same was requested at the same time
            return found
        for before in TensorBoard.objects.filter(key=key).select_related("environment__hosted"):
            end_tensorboard(before, user.username)
        _check_count(user)
        environment = create_environment(user, draft.request, purpose=PURPOSE, draft=draft)
        board = TensorBoard(pk=board_id, environment=environment, tasks=[task.pk for task in tasks], key=key)
        board.made_by, board.created_at = user, now()
        board.save(force_insert=True)
    return board


def compute_key(project: str, task_ids: Sequence[str]) -> str:
    """Return what is the same for the same tasks of a project, in any order."""
    return hashlib.sha256("\n".join([project, *sorted(task_ids)]).encode()).hexdigest()


def end_tensorboard(board: TensorBoard, by: str) -> None:
    """Have the environment deleted, with all that it has copied. Repeating it changes nothing. `by`: the user; empty:
    the platform itself. Raises ApiError 409 while a task holds the environment, which users may allow."""
    cause = Cause(EnvironmentReason.DELETED, {"by": by or "–"}, asked=CAUSES[EnvironmentReason.DELETED].asked)
    try:
        with transaction.atomic():
            TensorBoard.objects.filter(pk=board.pk).update(key=None)
            retire_environment(selectors.get_hosted(board), DesiredState.DELETED, cause)
    except EnvironmentInUseError as held:
        raise ApiError(409, "ENVIRONMENT_HELD", environment=board.environment.name, task=held.task) from None


def end_unused() -> int:
    """End the TensorBoards that stopped or failed some time ago, and those whose tasks were all deleted. Returns how
    many. Those that are idle end with their environments."""
    count = 0
    rows = TensorBoard.objects.select_related("environment__hosted")
    for board in rows.exclude(environment__hosted__wanted=DesiredState.DELETED).order_by("created_at")[:1000]:
        hosted = selectors.get_hosted(board)
        at_rest = hosted.state in STATES_AT_REST and hosted.state_since < now() - KEEP_ENDED
        if at_rest or not Task.objects.filter(pk__in=board.tasks).exists():
            with suppress(ApiError):  # a task holds its environment: it is tried again
                end_tensorboard(board, "")
                count += 1
    return count


def _check_count(user: User) -> None:
    """Raise ApiError 409 if the user has as many as a person may have."""
    mine = TensorBoard.objects.filter(made_by=user).exclude(environment__hosted__wanted=DesiredState.DELETED)
    listed = list(mine.order_by("created_at").values_list("pk", flat=True)[:MAX_PER_PERSON])
    if len(listed) >= MAX_PER_PERSON:
        raise ApiError(409, "TENSORBOARD_TOO_MANY", "taskIds", high=MAX_PER_PERSON, oldest=listed[0])


def _draft_environment(user: User, project: str, tasks: Sequence[Task], name: str) -> ValidatedEnvironment:
    """Return the environment in the first cluster that can run it. Raises ApiError 409, and the problems of the first
    cluster that could have run it. Asks engines."""
    problems: list[Problem] = []
    for cluster, address in list(_list_clusters(tasks))[:MAX_CLUSTERS]:
        draft = _draft_in_cluster(user, project, name, cluster)
        if draft.spec and not draft.problems:
            [port] = draft.spec.ports
            variables = {"FERMI_TENSORBOARD_FEED": address + FEED_PATH, "FERMI_TENSORBOARD_PORT": str(port.port)}
            draft.spec = own_secrets.add_own_secrets(replace(draft.spec, env=variables))
            return draft
        problems = problems or draft.problems
    if problems:
        raise ProblemsError(problems)
    raise ApiError(409, "TENSORBOARD_NO_CLUSTER", "taskIds")


def _list_clusters(tasks: Sequence[Task]) -> Iterator[tuple[Cluster, str]]:
    """Yield the clusters whose environments reach the platform, those of the tasks first, each with the address."""
    able = {cluster.pk: cluster for cluster in list_environment_clusters()}
    for key in dict.fromkeys([*(task.cluster_id for task in tasks), *able]):
        if key in able and (address := find_platform_address(able[key])):
            yield able[key], address


def _draft_in_cluster(user: User, project: str, name: str, cluster: Cluster) -> ValidatedEnvironment:
    values: dict[str, Any] = {
        "kind": "custom", "image": "", "packages": settings.TENSORBOARD_PACKAGES, "gpu_type": "", "gpu_count": 0,
        "emulated": False, "cpu_cores": CPU_CORES, "memory_gb": MEMORY_GB, "shared_memory_gb": 0, "disk_gb": 0,
        "ports": [{"name": DOOR, "port": _choose_port()}], "env": {},
        "secret_env": {}, "start_script": build_start_script(), "idle_stop_minutes": IDLE_MINUTES,
    }  # fmt: skip
    request = CreateRequest(template="", project=project, name=name, cluster=cluster.pk, changes=values)
    [draft] = validate_environments(user, [request])
    if not any(problem.code == "IMAGE_NEEDED" for problem in draft.problems):
        return draft
    image = settings.TENSORBOARD_IMAGE or _find_image(cluster)
    if not image:
        draft.problems = [Problem("taskIds", "TENSORBOARD_IMAGE_NEEDED", {"cluster": cluster.name})]
        return draft
    [draft] = validate_environments(user, [replace(request, changes={**values, "image": image})])
    return draft


def _choose_port() -> int:
    """Return a port that no other TensorBoard of the platform has: on some engines environments share a host."""
    ports = Hosted.objects.filter(purpose=PURPOSE).values_list("spec__ports", flat=True)
    used = {port["port"] for listed in ports for port in listed or ()}
    return secrets.choice([port for port in PORTS if port not in used])


def _find_image(cluster: Cluster) -> str:
    """Return the image of the newest template of the catalogue that is for this cluster or for any; "" if none has
    one."""
    rows = Template.objects.filter(project=None, cluster__in=[cluster]) | Template.objects.filter(
        project=None, cluster=None
    )
    return rows.exclude(image="").order_by("-created_at").values_list("image", flat=True).first() or ""
