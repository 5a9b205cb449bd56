"""Changes of reservations: environments for one project, or for none during maintenance."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from apps.accounts import access, audit
from apps.accounts.models import Project, Role, User
from apps.clusters.models import DevEnvironment
from apps.clusters.selectors import select_environments
from apps.common import wakeups
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.scheduling.models import Reservation
from fermi.jobs.spec import Problem


@transaction.atomic
def create_reservation(
    user: User,
    *,
    environment_ids: Sequence[str],
    begins_at: datetime,
    ends_at: datetime,
    project_id: str | None = None,
    note: str = "",
) -> Reservation:
    """Create a reservation. `project_id` None: maintenance. Nothing starts there that would not have ended when it
    begins. Raises ApiError."""
    row = Reservation(
        project_id=project_id, begins_at=begins_at, ends_at=ends_at, note=note, created_at=now(), created_by=user
    )
    environments = check_reservation(user, row, environment_ids)
    check_row_limit("reservations", Reservation.objects.filter(created_by=user, ends_at__gt=row.created_at))
    row.save(force_insert=True)
    row.environments.set(environments)
    audit.record_event(
        user, "reservation.create", row.pk, project=project_id, **_describe_reservation(row, environments)
    )
    wakeups.enqueue_after_commit("training.sweep")
    return row


@transaction.atomic
def change_reservation(user: User, row: Reservation, changes: Mapping[str, Any]) -> None:
    _require_maintainer(user, row.environments.all())
    was = row.project_id
    for name in changes.keys() - {"environment_ids"}:
        setattr(row, name, changes[name])
    before = list(row.environments.order_by("pk").values_list("pk", flat=True))
    environments = check_reservation(user, row, changes.get("environment_ids", before), was)
    row.save()
    row.environments.set(environments)
    audit.record_event(
        user, "reservation.change", row.pk, project=row.project_id, **_describe_reservation(row, environments)
    )
    wakeups.enqueue_after_commit("training.sweep")


@transaction.atomic
def delete_reservation(user: User, row: Reservation) -> None:
    environments = list(row.environments.all())
    _require_maintainer(user, environments)
    audit.record_event(
        user, "reservation.delete", row.pk, project=row.project_id, **_describe_reservation(row, environments)
    )
    row.delete()
    wakeups.enqueue_after_commit("training.sweep")


def list_maintained_projects(user: User) -> set[str]:
    """Return the projects whose environments the user may reserve; administrators may reserve all."""
    return {project for project, role in access.list_roles(user).items() if role is Role.MAINTAINER}


def check_reservation(
    user: User, row: Reservation, ids: Sequence[str], previous_project: str | None = None
) -> list[DevEnvironment]:
    """Return the environments. Raises ProblemsError with all problems of the reservation. `previous_project`: its
    project before the change."""
    problems = [Problem("environmentIds", "ENVIRONMENT_REQUIRED")] if not ids else []
    found, wrong = select_environments(user, ids, "environmentIds")
    problems += wrong
    if found:
        _require_maintainer(user, found)
    if row.ends_at <= row.begins_at:
        problems.append(Problem("endsAt", "RESERVATION_ENDS_FIRST", {"begins": row.begins_at.timestamp()}))
    elif row.ends_at <= now():
        problems.append(Problem("endsAt", "RESERVATION_PAST", {"ends": row.ends_at.timestamp()}))
    theirs = (
        Project.objects.all()
        if row.project_id == previous_project
        else access.filter_visible(Project.objects.all(), user, "pk")
    )
    project = theirs.filter(pk=row.project_id).first()
    if row.project_id is not None and project is None:
        problems.append(Problem("projectId", "PROJECT_UNKNOWN", {"project": row.project_id}))
    for index, one in enumerate(found):
        if project and not one.shared and one.project_id != project.pk:
            params = {"environment": one.name, "project": project.name}
            problems.append(Problem(f"environmentIds.{index}", "RESERVATION_FOREIGN", params))
    problems += _find_overlaps(row, found, ids)
    if problems:
        raise ProblemsError(problems)
    return found


def _find_overlaps(row: Reservation, environments: Sequence[DevEnvironment], ids: Sequence[str]) -> list[Problem]:
    """Return the problems with overlapping reservations. Locks the environments, so that of two requests for the same
    one waits."""
    keys = [one.pk for one in environments]
    list(DevEnvironment.objects.select_for_update().filter(pk__in=keys).order_by("pk").values_list("pk"))
    others: QuerySet[Any, Any] = Reservation.objects.exclude(pk=row.pk).filter(
        environments__in=keys, begins_at__lt=row.ends_at, ends_at__gt=row.begins_at
    )
    rows = others.order_by("begins_at").values_list(
        "environments", "environments__name", "begins_at", "ends_at", "note"
    )
    return [
        Problem(
            f"environmentIds.{ids.index(key)}",
            "RESERVATION_OVERLAPS",
            {"environment": name, "begins": begins.timestamp(), "ends": ends.timestamp(), "note": note or "–"},
        )
        for key, name, begins, ends, note in rows
        if key in keys
    ]


def _require_maintainer(user: User, environments: Iterable[DevEnvironment]) -> None:
    projects = {one.project_id for one in environments}
    if not user.is_superuser and not (projects and projects <= list_maintained_projects(user)):
        raise ApiError(403, "FORBIDDEN")


def _describe_reservation(row: Reservation, environments: Iterable[DevEnvironment]) -> dict[str, Any]:
    return {
        "environments": [one.name for one in environments],
        "begins": row.begins_at.isoformat(),
        "ends": row.ends_at.isoformat(),
        "note": row.note,
    }
