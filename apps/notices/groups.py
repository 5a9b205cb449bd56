"""The inbox in groups: incidents of many tasks in a day are one entry."""

from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.db.models.functions import TruncDate

from apps.accounts.models import User
from apps.common.texts import render_text
from apps.notices import selectors
from apps.notices.models import Item
from apps.notices.readers import select_items

GROUPED_KINDS = ("task_ended", "task_failed", "task_restarted")
MAX_GROUPED_ITEMS = 500
"""Newest items of a user that are grouped; marking a group as read marks no more than these."""
MAX_NAMED = 5


class InboxGroup(NamedTuple):
    """Items of a group, the newest first."""

    kind: str
    project: str | None
    ids: tuple[str, ...]
    items: tuple[int, ...]


def list_groups(user: User, query: dict[str, Any]) -> dict[str, Any]:
    """Return the inbox in groups: items of one kind, project and day that are read, or unread."""
    groups = _group_items(selectors.list_items(user, unread=query["unread"])[:MAX_GROUPED_ITEMS])
    number, size = query["page"], query["pageSize"]
    shown = groups[(number - 1) * size : number * size]
    keys = [key for group in shown for key in group.items[:MAX_NAMED]]
    rows = Item.objects.select_related("incident").in_bulk(keys)
    newest = [[rows[key] for key in group.items[:MAX_NAMED] if key in rows] for group in shown]
    return {
        "items": [_serialize_group(user, group, left) for group, left in zip(shown, newest, strict=True) if left],
        "total": len(groups),
        "page": number,
        "pageSize": size,
        "unread": count_unread(user),
    }


def count_unread(user: User) -> int:
    """Return how many groups contain something unread."""
    rows = select_items(user).filter(read_at=None).order_by()
    alone = rows.exclude(incident__kind__in=GROUPED_KINDS).count()
    together = rows.filter(incident__kind__in=GROUPED_KINDS).annotate(day=TruncDate("at"))
    return alone + together.values("incident__kind", "incident__project", "day").distinct().count()


def _group_items(rows: Any) -> list[InboxGroup]:
    told = rows.annotate(day=TruncDate("at")).values_list(
        "pk", "incident_id", "incident__kind", "incident__project", "day", "read_at"
    )
    found: dict[tuple[Any, ...], list[tuple[int, str]]] = {}
    for key, incident, kind, project, day, read_at in told:
        which = (kind, project, day, read_at is None, "" if kind in GROUPED_KINDS else incident)
        found.setdefault(which, []).append((key, incident))
    return [
        InboxGroup(which[0], which[1], tuple(incident for _, incident in members), tuple(key for key, _ in members))
        for which, members in found.items()
    ]


def _serialize_group(user: User, group: InboxGroup, newest: list[Item]) -> dict[str, Any]:
    told = {**selectors.serialize_item(newest[0]), "ids": group.ids}
    if len(group.ids) == 1:
        return told
    names = [str(row.incident.params.get("name", "")) for row in newest]
    more = len(group.ids) - len(names)
    title, _ = render_text(f"NOTICE_MANY_{group.kind.upper()}", {"count": len(group.ids)})
    body = ", ".join(names) + (f", … (+{more})" if more > 0 else "")
    return {
        **told,
        "title": title,
        "body": body,
        "path": f"/training?{urlencode({'owner': user.username})}",
        "times": 1,
    }
