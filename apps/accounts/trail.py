"""The audit trail, as it is read: filtered, page after page, and exported."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Q, QuerySet

from apps.accounts import access
from apps.accounts.models import AuditEvent, Role, User
from apps.common.encoding import encode_json
from apps.common.errors import ApiError
from apps.common.texts import get_request_language
from fermi.messages import list_sentences

MAX_EXPORT_SPAN = timedelta(days=366)
EXPORT_BATCH_ROWS = 1000
FILTERS = {
    "actor": "actor__username",
    "action": "action",
    "target": "target",
    "token": "token",
    "address": "address",
    "begin": "at__gte",
    "end": "at__lt",
}
"""Filters of the API, and what they compare."""


def list_events(user: User, project: str | None = None, **filters: Any) -> QuerySet[AuditEvent, Any]:
    """Return the events of the projects that the user maintains; for an administrator also those without a project.
    Raises ApiError 403 or 404 for a project that the user does not maintain."""
    rows = AuditEvent.objects.all()
    if project:
        access.require_role(user, project, Role.MAINTAINER)
        rows = rows.filter(project=project)
    elif not user.is_superuser:
        rows = rows.filter(project__in=access.select_projects(user, Role.MAINTAINER))
    given = {FILTERS[name]: value for name, value in filters.items() if name in FILTERS and value not in (None, "")}
    if word := filters.get("search"):
        rows = rows.filter(Q(target__icontains=word) | Q(action__icontains=word))
    return rows.filter(**given)


def select_columns(rows: QuerySet[AuditEvent, Any]) -> QuerySet[AuditEvent, Any]:
    """Return the rows as dictionaries for `serialize_event`."""
    return rows.values(
        "id", "at", "action", "target", "data", "token", "address",
        actor_=F("actor__username"), project_=F("project_id"), tokenName=F("token_name"), requestId=F("request_id"),
    )  # fmt: skip


def serialize_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with the API's names: an annotation cannot have the name of a model field, hence the underscores
    in the query."""
    named = {"actor": row["actor_"], "project": row["project_"]}
    return {**{name: value for name, value in row.items() if not name.endswith("_")}, **named}


def list_actions() -> dict[str, str]:
    """Return what each action is called in the language of the request, by the action's name, in alphabetical order."""
    return dict(sorted(list_sentences("actions", get_request_language()).items()))


def describe_events(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of `select_columns` with the texts of their actions; an action without a text is its own."""
    texts = list_actions()
    return [{**serialize_event(row), "actionText": texts.get(row["action"], row["action"])} for row in rows]


def read_page(rows: QuerySet[AuditEvent, Any], before: int | None, size: int) -> dict[str, Any]:
    """Return the newest events, or those before the event with the key `before`."""
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(select_columns(rows).order_by("-pk")[: size + 1])
    return {
        "items": describe_events(found[:size]),
        "total": None,
        "page": None,
        "pageSize": size,
        "nextCursor": str(found[size - 1]["id"]) if len(found) > size else None,
    }


def export_events(rows: QuerySet[AuditEvent, Any], begin: datetime, end: datetime) -> Iterator[bytes]:
    """Return the events of a span of time that are there now, as lines of JSON, oldest first.

    They are read in batches by key, so that neither memory nor one statement grows with their number. Raises ApiError
    400 for a span that is too long, or that ends before it begins.
    """
    if not timedelta(0) < end - begin <= MAX_EXPORT_SPAN:
        raise ApiError(400, "EXPORT_SPAN", "end", days=MAX_EXPORT_SPAN.days)
    newest = AuditEvent.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    return _read_lines(select_columns(rows.filter(at__gte=begin, at__lt=end, pk__lte=newest)))


def _read_lines(rows: QuerySet[AuditEvent, Any]) -> Iterator[bytes]:
    after = 0
    while batch := list(rows.filter(pk__gt=after).order_by("pk")[:EXPORT_BATCH_ROWS]):
        yield b"".join(encode_json(serialize_event(row)) + b"\n" for row in batch)
        after = batch[-1]["id"]
