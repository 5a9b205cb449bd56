"""Texts of messages."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings

from apps.common.nested_texts import explained, said
from apps.common.texts import text
from apps.notices.models import Channel, Delivery, Incident

TEST, OVER = "NOTICE_TEST", "NOTICE_OVER"


class Message(NamedTuple):
    """A message. `link`: page of the console; empty if the platform does not know its own address."""

    title: str
    body: str
    link: str = ""


def of(incident: Incident | None, what: str, lang: str, *, channel: str = "") -> Message:
    """Return the message of an incident in a language; without an incident, of a test."""
    if incident is None:
        return Message(*text(TEST, {"channel": channel}, lang), link(""))
    title, body = text(incident.code, inside(incident.params, lang), lang)
    if what == "over":
        title = text(OVER, {"title": title}, lang)[0]
    return Message(title, body, link(incident.link))


def inside(params: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """Return the parameters with codes replaced by their texts. `why` may be a text of its own, `{"code": …, "params":
    …}`: it becomes its message, and `advice` its hint."""
    found = explained(params, lang)
    if isinstance(why := params.get("why"), Mapping):
        about = why.get("params") or {}
        found["why"], found["advice"] = said(str(why.get("code", "")), explained(about, lang), lang)
    return found


def link(path: str) -> str:
    """Return the address of a path of the console; empty if it is unknown."""
    return f"{settings.PUBLIC_URL.rstrip('/')}{path}" if settings.PUBLIC_URL and path else ""


def document(delivery: Delivery, channel: Channel, message: Message) -> dict[str, Any]:
    """Return the body of a webhook (docs/notices.md)."""
    incident = delivery.incident
    told: dict[str, Any] = {
        "delivery": delivery.pk,
        "event": f"incident.{delivery.what}" if incident else "test",
        "title": message.title,
        "body": message.body,
        "link": message.link,
    }
    if incident:
        told["incident"] = {
            "id": incident.pk, "kind": incident.kind, "key": incident.key, "level": incident.level,
            "project": incident.project_id, "times": incident.times, "openedAt": incident.opened_at,
            "overAt": incident.over_at, "code": incident.code, "params": incident.params,
        }  # fmt: skip
    return told
