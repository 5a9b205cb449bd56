"""Orders for the process that sends: one message by one channel. Raises DeliveryError; stores nothing."""

import hashlib
import hmac
import time
from typing import Any

import orjson
from django.conf import settings

from apps.accounts import encryption
from apps.notices.models import Channel, Delivery, Kind
from apps.notices.sender import addresses
from apps.notices.sender import message as wording
from apps.notices.sender.egress_policy import Allowed
from apps.notices.sender.errors import Unsent
from apps.notices.sender.process import CHECK_SECONDS, SEND_SECONDS, Sender
from apps.notices.sender.transport import DELIVERY

SIGNATURE, EVENT = "X-Fermi-Signature", "X-Fermi-Event"
_LEVELS = {"info": "info", "warn": "warning", "fail": "failure"}


def check(kind: str, address: str) -> str:
    """Return what may be shown of a new address. Raises DeliveryError if it is not accepted, and SendersBusyError."""
    if kind == Kind.WEBHOOK:
        return addresses.check_webhook(address, Allowed(settings.NOTICE_HOSTS))
    addresses.find_kind(address)
    with Sender() as sender:
        return sender.carry_out({"do": "check", "address": address}, CHECK_SECONDS)


def send(delivery: Delivery, channel: Channel, sender: Sender) -> str:
    """Send a message and return the receiver's answer."""
    try:
        address = encryption.unseal(channel.address)
    except encryption.Unreadable:
        raise Unsent("CHANNEL_UNREADABLE", lasting=True) from None
    message = wording.of(delivery.incident, delivery.what, channel.language, channel=channel.name)
    make = _webhook if channel.kind == Kind.WEBHOOK else _notification
    return sender.carry_out({"address": address, **make(delivery, channel, message)}, SEND_SECONDS)


def _webhook(delivery: Delivery, channel: Channel, message: wording.Message) -> dict[str, Any]:
    body = orjson.dumps(wording.document(delivery, channel, message))
    stamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Fermi",
        DELIVERY: delivery.pk,
        EVENT: f"incident.{delivery.what}" if delivery.incident_id else "test",
        SIGNATURE: f"t={stamp},v1={signature(encryption.unseal(channel.secret), stamp, body)}",
    }
    return {"do": "webhook", "body": body.decode(), "headers": headers}


def signature(secret: str, stamp: int, body: bytes) -> str:
    """Return the signature of a webhook's body (HMAC-SHA256)."""
    return hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()


def _notification(delivery: Delivery, channel: Channel, message: wording.Message) -> dict[str, Any]:
    """Return the order. `sent_for` and `answers` become the Message-IDs of mails: there is one message of each kind for
    each incident and channel."""
    about = f"{delivery.incident_id}.{channel.pk}" if delivery.incident_id else ""
    return {
        "do": "notify",
        "delivery": delivery.pk,
        "title": message.title,
        "text": "\n\n".join(filter(None, (message.body, message.link))),
        "level": _LEVELS[delivery.incident.level] if delivery.incident and delivery.what == "opened" else "success",
        "created": delivery.created_at.timestamp(),
        "sent_for": f"{about}.{delivery.what}" if about else delivery.pk,
        "answers": f"{about}.opened" if delivery.what == "over" else "",
    }
