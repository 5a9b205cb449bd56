"""Queries of notifications, as the API returns them."""

from collections import defaultdict
from typing import Any

from django.db.models import Max, QuerySet

from apps.accounts.models import User
from apps.common.texts import get_request_language, render_text
from apps.notices.kinds import INCIDENT_KINDS, make_kind_code
from apps.notices.models import Channel, Delivery, Incident, Item, Rule
from apps.notices.readers import select_items
from apps.notices.sender import message as sent_message
from apps.notices.services import ownership

DEFAULT_WAIT_SECONDS = 3600
"""Seconds; a rule with another length is notified at that one."""


def list_items(user: User, *, unread: bool = False) -> QuerySet[Item]:
    rows = select_items(user).select_related("incident").order_by("-at", "-pk")
    return rows.filter(read_at=None) if unread else rows


def serialize_item(row: Item) -> dict[str, Any]:
    return {**serialize_incident(row.incident), "at": row.at, "readAt": row.read_at, "ids": [row.incident_id]}


def serialize_incident(row: Incident) -> dict[str, Any]:
    message = sent_message.build_message(row, "opened", get_request_language())
    return {
        "id": row.pk, "kind": row.kind, "level": row.level, "projectId": row.project_id, "title": message.title,
        "body": message.body, "path": row.link, "times": row.times, "openedAt": row.opened_at,
        "updatedAt": row.updated_at, "overAt": row.over_at,
    }  # fmt: skip


def list_channels(user: User) -> QuerySet[Channel]:
    rows = ownership.filter_visible(Channel.objects.all(), user).select_related("created_by")
    return rows.annotate(sent_at=Max("deliveries__ended_at")).order_by("name", "pk")


def serialize_channel(row: Channel) -> dict[str, Any]:
    return {
        "id": row.pk, "name": row.name, "scope": ownership.get_scope(row), "projectId": row.project_id, "kind":
        row.kind, "address": row.shown, "language": row.language, "enabled": row.enabled, "failures": row.failures,
        "restsUntil": row.rests_until, "createdAt": row.created_at,
        "createdBy": row.created_by.username if row.created_by else None,
        "lastSentAt": getattr(row, "sent_at", None),
    }  # fmt: skip


def list_kinds() -> list[dict[str, str]]:
    """Return the kinds of incidents, with texts in the reader's language."""
    texts = [(kind, incident, render_text(make_kind_code(kind))) for kind, incident in INCIDENT_KINDS.items()]
    return [
        {"kind": kind, "level": incident.level, "title": title, "description": description}
        for kind, incident, (title, description) in texts
    ]


def list_rules(user: User) -> QuerySet[Rule]:
    return ownership.filter_visible(Rule.objects.all(), user).prefetch_related("channels").order_by("name", "pk")


def serialize_rule(row: Rule) -> dict[str, Any]:
    return {
        "id": row.pk, "name": row.name, "scope": ownership.get_scope(row), "projectId": row.project_id,
        "channels": [channel.pk for channel in row.channels.all()], "kinds": row.kinds, "level": row.level,
        "restarts": row.restarts, "waitsSeconds": row.waits_seconds, "quietFrom": row.quiet_from,
        "quietTo": row.quiet_to, "timezone": row.timezone, "breaksThrough": row.breaks_through,
        "enabled": row.enabled, "createdAt": row.created_at,
    }  # fmt: skip


def list_deliveries(user: User, key: str) -> QuerySet[Delivery]:
    """Return the messages of a channel, the newest first. Raises ApiError 404."""
    row = ownership.get_owned(Channel.objects.all(), user, key)
    return Delivery.objects.filter(channel=row).select_related("incident", "channel").order_by("-created_at", "pk")


def serialize_delivery(row: Delivery) -> dict[str, Any]:
    message = sent_message.build_message(row.incident, row.what, get_request_language(), channel=row.channel.name)
    return {
        "id": row.pk, "incidentId": row.incident_id, "what": row.what, "title": message.title, "outcome": row.outcome,
        "createdAt": row.created_at, "dueAt": row.due_at, "endedAt": row.ended_at,
        "tries": [_serialize_try(one) for one in row.tries],
    }  # fmt: skip


def _serialize_try(attempt: dict[str, Any]) -> dict[str, Any]:
    """Return a try. One without an end was cut short: its process died, or is still sending."""
    error = attempt.get("error")
    return {
        "at": attempt["at"], "seconds": attempt.get("seconds"), "answer": attempt.get("answer", ""),
        "error": {"code": error["code"], "message": " ".join(render_text(error["code"], error["params"]))} if error else
    None, }  # fmt: skip


class WaitThresholds:
    """From which length on a task's wait is notified: the lengths in the present rules. One query."""

    def __init__(self) -> None:
        self._lengths: defaultdict[tuple[int | None, str | None], set[int]] = defaultdict(set)
        rows = Rule.objects.filter(enabled=True, waits_seconds__gt=0)
        for user, project, kinds, seconds in rows.values_list("user", "project", "kinds", "waits_seconds"):
            if seconds and (not kinds or "task_waits" in kinds):
                self._lengths[user, project].add(seconds)

    def reached(self, project: str, owner: int, seconds: float) -> int:
        """Return the greatest length that a wait of `seconds` has reached, of the rules that apply to this owner's
        tasks in this project; 0 if none."""
        scopes = ((None, None), (None, project), (owner, None))
        lengths = {DEFAULT_WAIT_SECONDS}.union(*(self._lengths.get(scope, ()) for scope in scopes))
        return max((length for length in lengths if length <= seconds), default=0)
