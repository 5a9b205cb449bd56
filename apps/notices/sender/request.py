"""Orders for the process that sends: one message by one channel. Raises DeliveryError; stores nothing."""

import hashlib
import hmac
import time
from typing import Any

import orjson
from django.conf import settings

from apps.accounts import encryption
from apps.notices.models import Channel, ChannelKind, Delivery
from apps.notices.sender import addresses
from apps.notices.sender import message as sent_message
from apps.notices.sender.egress_policy import AllowedHosts
from apps.notices.sender.errors import DeliveryError
from apps.notices.sender.process import CHECK_SECONDS, SEND_SECONDS, SenderProcess
from apps.notices.sender.transport import DELIVERY_HEADER

SIGNATURE_HEADER, EVENT_HEADER = "X-Fermi-Signature", "X-Fermi-Event"
_LEVELS = {"info": "info", "warn": "warning", "fail": "failure"}


def check_address(kind: str, address: str) -> str:
    """Return what may be shown of a new address. Raises DeliveryError if it is not accepted, and SendersBusyError."""
    if kind == ChannelKind.WEBHOOK:
        return addresses.check_webhook(address, AllowedHosts(settings.NOTICE_HOSTS))
    addresses.find_kind(address)
    with SenderProcess() as sender:
        return sender.carry_out({"do": "check", "address": address}, CHECK_SECONDS)


def send_message(delivery: Delivery, channel: Channel, sender: SenderProcess) -> str:
    """Send a message and return the receiver's answer."""
    try:
        address = encryption.decrypt_value(channel.address)
    except encryption.DecryptionError:
        raise DeliveryError("CHANNEL_UNREADABLE", lasting=True) from None
    message = sent_message.build_message(delivery.incident, delivery.what, channel.language, channel=channel.name)
    make = _build_webhook_order if channel.kind == ChannelKind.WEBHOOK else _build_notification_order
    return sender.carry_out({"address": address, **make(delivery, channel, message)}, SEND_SECONDS)


def _build_webhook_order(delivery: Delivery, channel: Channel, message: sent_message.NoticeMessage) -> dict[str, Any]:
    body = orjson.dumps(sent_message.build_webhook_body(delivery, channel, message))
    stamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Fermi",
        DELIVERY_HEADER: delivery.pk,
        EVENT_HEADER: f"incident.{delivery.what}" if delivery.incident_id else "test",
        SIGNATURE_HEADER: f"t={stamp},v1={sign_body(encryption.decrypt_value(channel.secret), stamp, body)}",
    }
    return {"do": "webhook", "body": body.decode(), "headers": headers}


def sign_body(secret: str, stamp: int, body: bytes) -> str:
    """Return the signature of a webhook's body (HMAC-SHA256)."""
    return hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()


def _build_notification_order(
    delivery: Delivery, channel: Channel, message: sent_message.NoticeMessage
) -> dict[str, Any]:
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
