"""Notifications: inbox, channels and rules."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport
from fermi.client.types import (
    ChannelCreateRequest,
    InboxItem,
    NoticeChannel,
    NoticeChannelCreated,
    NoticeDelivery,
    NoticeKind,
    NoticeRule,
    PatchedChannelChangeRequest,
    PatchedRuleChangeRequest,
    RuleCreateRequest,
)


class Notices:
    """The caller's inbox, and the channels and rules that the caller may see."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def inbox(self, *, unread: bool = False) -> Listing[InboxItem]:
        """Return the caller's notifications, newest first."""
        return Listing(self._transport, "/inbox", {"unread": "true" if unread else None})

    def read(self, ids: Sequence[str] | None = None) -> int:
        """Mark these notifications, or all of them, as read; return how many are unread then."""
        body: dict[str, Any] = {"ids": None if ids is None else [*ids]}
        unread: int = self._transport.call("POST", "/inbox/read", json=body, repeatable=True)["unread"]
        return unread

    def channels(self) -> Listing[NoticeChannel]:
        return Listing(self._transport, "/notice-channels", {})

    def create_channel(self, request: ChannelCreateRequest) -> NoticeChannelCreated:
        """Create a channel. `secret`, of a webhook, is only in this answer."""
        return self._transport.call("POST", "/notice-channels", json=request)

    def change_channel(self, channel_id: str, changes: PatchedChannelChangeRequest) -> NoticeChannel:
        return self._transport.call("PATCH", _path("notice-channels", channel_id), json=changes)

    def delete_channel(self, channel_id: str) -> None:
        self._transport.call("DELETE", _path("notice-channels", channel_id))

    def test_channel(self, channel_id: str) -> NoticeDelivery:
        """Send one test message now and return its delivery."""
        return self._transport.call("POST", _path("notice-channels", channel_id, "/test"))

    def deliveries(self, channel_id: str) -> Listing[NoticeDelivery]:
        return Listing(self._transport, _path("notice-channels", channel_id, "/deliveries"), {})

    def kinds(self) -> list[NoticeKind]:
        """Return the kinds of notifications, with their texts in the caller's language."""
        items: list[NoticeKind] = self._transport.call("GET", "/notice-kinds")["items"]
        return items

    def rules(self) -> Listing[NoticeRule]:
        return Listing(self._transport, "/notice-rules", {})

    def create_rule(self, request: RuleCreateRequest) -> NoticeRule:
        return self._transport.call("POST", "/notice-rules", json=request)

    def change_rule(self, rule_id: str, changes: PatchedRuleChangeRequest) -> NoticeRule:
        return self._transport.call("PATCH", _path("notice-rules", rule_id), json=changes)

    def delete_rule(self, rule_id: str) -> None:
        self._transport.call("DELETE", _path("notice-rules", rule_id))


def _path(what: str, key: str, rest: str = "") -> str:
    return f"/{what}/{quote(key, safe='')}{rest}"
