"""Saved views of the table of runs: of a person, or of a project for all of its members."""

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.errors import ApiError
from apps.common.row_bounds import check_row_limit
from apps.runs.models import RunView
from apps.runs.selectors import list_visible_tasks, query_views
from apps.runs.table import parse_text


def create_view(user: User, values: Mapping[str, Any]) -> RunView:
    """Save a view. Raises ApiError 404 or 403 for a project, 400 for runs that are not there or an error in the query,
    and 409 where the name is taken, or there are too many."""
    project = values.get("project")
    if project is not None:
        access.require_role(user, project, Role.MEMBER)
    owner = {"user": user, "project": None} if project is None else {"user": None, "project_id": project}
    check_row_limit("run-views", RunView.objects.filter(**owner))
    view = RunView(**owner)
    _set_values(user, view, values)
    with transaction.atomic():
        _save(view)
        if project is not None:
            audit.record_event(user, "run-view.create", view.pk, project=project, name=view.name)
    return view


def change_view(user: User, view_id: str, values: Mapping[str, Any]) -> RunView:
    """Change a view. Raises what `create_view` raises."""
    view = _find_view(user, view_id)
    _set_values(user, view, {name: value for name, value in values.items() if name != "project"})
    with transaction.atomic():
        _save(view)
        if view.project_id is not None:
            audit.record_event(user, "run-view.change", view.pk, project=view.project_id, name=view.name)
    return view


def delete_view(user: User, view_id: str) -> None:
    """Delete a view. Raises ApiError 404 or 403."""
    view = _find_view(user, view_id)
    with transaction.atomic():
        if view.project_id is not None:
            audit.record_event(user, "run-view.delete", view.pk, project=view.project_id, name=view.name)
        view.delete()


def _find_view(user: User, view_id: str) -> RunView:
    """Return a view that the user may change. Raises ApiError 404 or 403."""
    view = query_views(user).filter(pk=view_id).first()
    if view is None:
        raise ApiError(404, "NOT_FOUND")
    if view.project_id is not None:
        access.require_role(user, view.project_id, Role.MEMBER)
    return view


def _set_values(user: User, view: RunView, values: Mapping[str, Any]) -> None:
    parse_text(values.get("query", ""))
    if pinned := values.get("pinned"):
        pinned = list(dict.fromkeys(pinned))
        _refuse_unknown(user, pinned, "pinned")
        values = {**values, "pinned": pinned}
    if values.get("baseline_id"):
        _refuse_unknown(user, [values["baseline_id"]], "baseline")
    for name, value in values.items():
        if name != "project":
            setattr(view, name, value)


def _refuse_unknown(user: User, keys: list[str], field: str) -> None:
    seen = list_visible_tasks(user, keys)
    if unknown := next((key for key in keys if key not in seen), None):
        raise ApiError(400, "RUN_UNKNOWN", field, task=unknown)


def _save(view: RunView) -> None:
    """Save a view. Raises ApiError 409 where its owner has another one with its name."""
    try:
        with transaction.atomic():
            view.save()
    except IntegrityError as error:
        others = RunView.objects.filter(user=view.user, project=view.project_id, name=view.name).exclude(pk=view.pk)
        if not others.exists():
            raise
        raise ApiError(409, "RUN_VIEW_NAME_TAKEN", "name", name=view.name) from error
