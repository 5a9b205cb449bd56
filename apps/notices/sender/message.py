"""Texts of messages."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings

from apps.common.texts import render_code, render_text, resolve_params
from apps.notices.models import Channel, Delivery, Incident

TEST_CODE, OVER_CODE = "NOTICE_TEST", "NOTICE_OVER"


class NoticeMessage(NamedTuple):
    """A message. `link`: page of the console; empty if the platform does not know its own address."""

    title: str
    body: str
    link: str = ""


def build_message(incident: Incident | None, event: str, lang: str, *, channel: str = "") -> NoticeMessage:
    """Return the message of an incident in a language; without an incident, of a test."""
    if incident is None:
        return NoticeMessage(*render_text(TEST_CODE, {"channel": channel}, lang), make_link(""))
    title, body = render_text(incident.code, resolve_message_params(incident.params, lang), lang)
    if event == "over":
        title = render_text(OVER_CODE, {"title": title}, lang)[0]
    return NoticeMessage(title, body, make_link(incident.link))


def resolve_message_params(params: Mapping[str, Any], lang: str) -> dict[str, Any]:
    """Return the parameters with codes replaced by their texts. `why` may be a text of its own, `{"code": …, "params":
    …}`: it becomes its message, and `advice` its hint."""
    found = resolve_params(params, lang)
    if isinstance(why := params.get("why"), Mapping):
        about = why.get("params") or {}
        found["why"], found["advice"] = render_code(str(why.get("code", "")), resolve_params(about, lang), lang)
    return found


def make_link(path: str) -> str:
    """Return the address of a path of the console; empty if it is unknown."""
    return f"{settings.PUBLIC_URL.rstrip('/')}{path}" if settings.PUBLIC_URL and path else ""


def build_webhook_body(delivery: Delivery, channel: Channel, message: NoticeMessage) -> dict[str, Any]:
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
