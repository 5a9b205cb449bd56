"""Makes, changes and deletes schedules."""

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.notices.services.incidents import resolve_incidents
from apps.templates import cron
from apps.templates.models import RunOutcome, SavedTemplate, Schedule, ScheduleRun
from apps.templates.services import templates
from apps.training import public
from fermi.jobs.spec import Problem

STOPPED_KIND = "schedule_stopped"
MAX_QUEUED = 10
"""Most moments that wait, for an earlier task to end or for the next pass."""
_CONTENT = frozenset({"template_id", "values", "request"})
"""What a schedule runs: whoever changes it is its owner from then on, as their rights are used."""
_TIMES = frozenset({"cron", "zone", "enabled"})


def create_schedule(user: User, *, project_id: str, **values: Any) -> Schedule:
    """Make a schedule (member); it runs with the rights of `user`. Raises ProblemsError with all problems, and
    ApiError."""
    if access.get_role(user, project_id) is None or not Project.objects.filter(pk=project_id).exists():
        raise ProblemsError([Problem("projectId", "PROJECT_UNKNOWN", {"project": project_id})])
    access.require_role(user, project_id, Role.MEMBER)
    check_row_limit("schedules", Schedule.objects.filter(project=project_id))
    schedule = Schedule(project_id=project_id, owner=user, created_at=now())
    _set_values(user, schedule, values)
    return _save_schedule(user, schedule, "schedule.create")


def change_schedule(user: User, schedule: Schedule, values: Mapping[str, Any]) -> Schedule:
    """Change a schedule (its owner, or a maintainer). Whoever changes what it runs becomes its owner, and so
    does who enables it after its owner has left; one that is enabled begins anew at the next moment. Raises
    ProblemsError and ApiError."""
    require_schedule_role(user, schedule)
    takes_over = bool(values.get("enabled")) and not access.may_act(schedule.owner, schedule.project_id)
    if takes_over or _CONTENT & values.keys():
        schedule.owner = user
    columns = {"template" if name == "template_id" else name for name in values} | {"owner", "updated_at"}
    _set_values(user, schedule, values, check=takes_over)
    if _TIMES & values.keys():
        columns |= {"next_at", "due_at", "stopped", "stopped_params"}
    return _save_schedule(user, schedule, "schedule.change", columns, fields=sorted(values))


@transaction.atomic
def run_schedule(user: User, schedule: Schedule) -> ScheduleRun:
    """Have the next pass create a task of the schedule as at any moment: with its owner's rights, by its policy for
    overlaps (its owner, or a maintainer). Return the moment's row. Raises ApiError."""
    require_schedule_role(user, schedule)
    locked = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule.pk).first()
    if locked is None:
        raise ApiError(404, "NOT_FOUND")
    if not locked.enabled:
        raise ApiError(409, "SCHEDULE_NOT_RUNNING", name=locked.name)
    if locked.runs.filter(outcome=RunOutcome.PENDING).count() >= MAX_QUEUED:
        raise ApiError(409, "SCHEDULE_RUNS_WAIT", name=locked.name, high=MAX_QUEUED)
    moment = now()
    run = locked.runs.create(owner_id=locked.owner_id, moment=moment, outcome=RunOutcome.PENDING, decided_at=moment)
    Schedule.objects.filter(pk=locked.pk).update(due_at=moment)
    audit.record_event(user, "schedule.run", locked.pk, project=locked.project_id, name=locked.name)
    return run


@transaction.atomic
def delete_schedule(user: User, schedule: Schedule) -> None:
    """Delete a schedule with its history; its tasks stay."""
    require_schedule_role(user, schedule)
    audit.record_event(user, "schedule.delete", schedule.pk, project=schedule.project_id, name=schedule.name)
    resolve_incidents(schedule.pk, STOPPED_KIND)
    schedule.delete()


def get_schedule(user: User, key: str) -> Schedule:
    """Return a schedule that the user may see. Raises ApiError 404."""
    return access.get_object(Schedule.objects.select_related("owner", "template"), user, key)


def may_change(user: User, schedule: Schedule) -> bool:
    """Return True if the user may change the schedule."""
    role = access.get_role(user, schedule.project_id)
    return role is Role.MAINTAINER or (role is Role.MEMBER and schedule.owner_id == user.pk)


def require_schedule_role(user: User, schedule: Schedule) -> None:
    """Raise ApiError 403 unless the user may change the schedule."""
    if not may_change(user, schedule):
        raise ApiError(403, "FORBIDDEN")


def list_next_moments(expression: str, zone: str, count: int) -> list[datetime]:
    """Return the next moments of an expression. Raises ProblemsError."""
    moment = now()
    if problems := cron.find_problems(expression, zone, moment):
        raise ProblemsError(problems)
    return list(islice(cron.iterate_moments(expression, zone, moment), count))


def build_request(schedule: Schedule) -> templates.FilledRequest:
    """Return the request that the schedule submits now. Its tasks are of its project alone, whatever its template
    says."""
    if schedule.template is not None:
        filled = templates.fill_template(schedule.template, schedule.values, {}, schedule.project_id)
    else:
        filled = templates.FilledRequest(dict(schedule.request or {}), ())
    return templates.FilledRequest({**filled.request, "projectId": schedule.project_id}, filled.problems)


def _set_values(user: User, schedule: Schedule, values: Mapping[str, Any], *, check: bool = False) -> None:
    problems, moment = [], now()
    for name in values.keys() - {"template_id"}:
        setattr(schedule, name, values[name])
    if "template_id" in values:
        problems += _set_template(user, schedule, values["template_id"])
    if not problems and (schedule.template_id is None) == (schedule.request is None):
        problems.append(Problem("templateId", "SCHEDULE_NEEDS_ONE_SOURCE"))
    if not problems and (check or _CONTENT & values.keys()):
        problems += _check_request(user, schedule)
    problems += cron.find_problems(schedule.cron, schedule.zone, moment)
    if problems:
        raise ProblemsError(problems)
    schedule.updated_at = moment
    if _TIMES & values.keys():
        _set_next(schedule, moment)
        schedule.stopped, schedule.stopped_params = "", {}


def _set_template(user: User, schedule: Schedule, key: str | None) -> list[Problem]:
    schedule.template = None
    if key is None:
        return []
    found = access.filter_visible(SavedTemplate.objects.all(), user, shared=True).filter(pk=key).first()
    if found is None or found.project_id not in (None, schedule.project_id):
        return [Problem("templateId", "TEMPLATE_UNKNOWN", {"template": key})]
    schedule.template = found
    return []


def _check_request(user: User, schedule: Schedule) -> list[Problem]:
    """Return the problems that a task of the schedule would have now. A check of the moment alone, such as an
    environment that is stopped, is one too: the schedule is made when it could run."""
    filled = build_request(schedule)
    if filled.problems:
        return list(filled.problems)
    draft = public.draft_request(user, filled.request, public.PREVIEW_TASK_ID)
    if schedule.template is not None:
        return templates.placeholders.name_parameters(draft.problems, schedule.template.request)
    return [Problem(f"request.{one.field}" if one.field else "", one.code, one.params) for one in draft.problems]


def _set_next(schedule: Schedule, moment: datetime) -> None:
    """Have the next moment be the first one after now; what waits from before an interruption is given up."""
    schedule.next_at = cron.find_next(schedule.cron, schedule.zone, moment) if schedule.enabled else None
    schedule.due_at = schedule.next_at


def _save_schedule(
    user: User, schedule: Schedule, action: str, columns: Collection[str] | None = None, **told: Any
) -> Schedule:
    """Save a schedule, only its `columns` where there are some: a pass may be writing the others."""
    try:
        with transaction.atomic():
            schedule.save(update_fields=columns)
            if not schedule.enabled:
                waiting = schedule.runs.filter(outcome=RunOutcome.PENDING)
                waiting.update(outcome=RunOutcome.SKIPPED, code="SCHEDULE_PAUSED", params={}, decided_at=now())
            else:
                resolve_incidents(schedule.pk, STOPPED_KIND)
            audit.record_event(user, action, schedule.pk, project=schedule.project_id, name=schedule.name, **told)
    except IntegrityError:
        raise ApiError(409, "SCHEDULE_NAME_TAKEN", "name", name=schedule.name) from None
    return schedule
