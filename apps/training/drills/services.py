"""Requests, lists, finds and stops drills."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.training.core import task_store
from apps.training.drills import runs
from apps.training.models import Drill
from apps.training.services import actions, create
from apps.training.states import STATES_BY_STATUS
from fermi.jobs.drill import DRILL
from fermi.jobs.spec import Problem
from fermi.planning.request import NEW


def request_drill(
    user: User, *, task_id: str | None, request: Mapping[str, Any] | None, minutes: float | None
) -> Drill:
    """Start a drill of a task, or of a request that was not submitted, and return it. Raises ProblemsError with all
    problems."""
    if (task_id is None) == (request is None):
        raise ProblemsError([Problem("taskId", "DRILL_OF_WHAT")])
    if task_id is not None:
        task = actions.find_task(user, task_id, Role.MEMBER)
        drill = runs.start_drill_of_task(user, task, minutes=minutes)
        audit.record_event(user, "drill.create", drill.pk, project=task.project_id, task=task.pk)
        return find_drill(user, drill.pk)
    body = {**(request or {}), **({} if minutes is None else {"drillMinutes": minutes})}
    draft = create.draft_request(user, body, new_id(DRILL))
    if draft.parsed.task.launch_mode == NEW:
        draft.problems.append(Problem("launchMode", "DRILL_NEEDS_ENVIRONMENTS"))
    if draft.problems:
        raise ProblemsError(draft.problems)
    assert draft.job
    assert draft.choice.cluster
    access.require_role(user, draft.choice.project, Role.MEMBER)
    drill = runs.start_drill(
        user,
        draft.choice.cluster,
        draft.job,
        **draft.build_columns(),
        **task_store.build_queue_columns(draft.parsed.task, None),
    )
    audit.record_event(user, "drill.create", drill.pk, project=drill.run.project_id)
    return find_drill(user, drill.pk)


def list_drills(user: User, filters: Mapping[str, Any]) -> QuerySet[Drill]:
    """Return the drills that the user may see and that match `filters`."""
    rows = _query_drills(user)
    if status := filters.get("status"):
        rows = rows.filter(run__state__in=STATES_BY_STATUS[status])
    if task := filters.get("task"):
        rows = rows.filter(task=task)
    if word := filters.get("search"):
        rows = rows.filter(run__name__icontains=word) | rows.filter(run__pk__icontains=word)
    return rows


def find_drill(user: User, key: str) -> Drill:
    """Return the drill. Raises ApiError 404."""
    drill = _query_drills(user).filter(pk=key).first()
    if drill is None:
        raise ApiError(404, "NOT_FOUND")
    return drill


def stop_drill(user: User, key: str) -> Drill:
    """Request a stop of the drill and return it. Asking again changes nothing."""
    actions.stop_task_of_any_kind(user, find_drill(user, key).pk)
    return find_drill(user, key)


def _query_drills(user: User) -> QuerySet[Drill]:
    rows = Drill.objects.select_related("run__owner")
    return access.filter_visible(
        rows.annotate(may_change=access.build_may_change_expression(user, "run__project")), user, "run__project"
    )
