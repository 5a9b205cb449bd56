"""One message by one channel. Raises Unsent; nothing is stored here."""

import hashlib
import hmac
import logging
import time

import orjson

from apps.accounts import sealing
from apps.notices.models import Channel, Delivery, Kind
from apps.notices.sending import addresses, mail, wording
from apps.notices.sending.guard import guarded
from apps.notices.sending.unsent import MOST_ANSWER, Unsent

SIGNATURE, DELIVERY, EVENT = "X-Fermi-Signature", "X-Fermi-Delivery", "X-Fermi-Event"
_LEVELS = {"info": "info", "warn": "warning", "fail": "failure"}


def send(delivery: Delivery, channel: Channel) -> str:
    """What the other side said."""
    try:
        address = sealing.unseal(channel.address)
    except sealing.Unreadable:
        raise Unsent("CHANNEL_UNREADABLE", lasting=True) from None
    message = wording.of(delivery.incident, delivery.what, channel.language, channel=channel.name)
    with guarded() as refused:
        try:
            if channel.kind == Kind.WEBHOOK:
                return _webhook(delivery, channel, address, message)
            return _apprise(delivery, address, message)
        except Unsent:
            if refused.host:
                raise Unsent("CHANNEL_HOST_REFUSED", host=refused.host) from None
            raise


def _webhook(delivery: Delivery, channel: Channel, address: str, message: wording.Message) -> str:
    import httpx  # the worker imports all tasks, and few platforms send any of these

    body = orjson.dumps(wording.document(delivery, channel, message))
    stamp = int(time.time())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Fermi",
        DELIVERY: delivery.pk,
        EVENT: f"incident.{delivery.what}" if delivery.incident_id else "test",
        SIGNATURE: f"t={stamp},v1={signature(sealing.unseal(channel.secret), stamp, body)}",
    }
    timeout = httpx.Timeout(addresses.READ_SECONDS, connect=addresses.CONNECT_SECONDS)
    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", address, content=body, headers=headers) as response,
        ):
            answer = next(response.iter_text(MOST_ANSWER), "")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise Unsent("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
    if not response.is_success:
        raise Unsent("CHANNEL_REFUSES", answer=f"{response.status_code} {answer}", status=response.status_code)
    return f"{response.status_code} {answer}"[:MOST_ANSWER]


def signature(secret: str, stamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()


def _apprise(delivery: Delivery, address: str, message: wording.Message) -> str:
    from apprise.logger import LogCapture, logger

    plugin = addresses.instance(address)
    if plugin is None:
        raise Unsent("CHANNEL_ADDRESS_INVALID", scheme=address.partition("://")[0], lasting=True)
    if isinstance(headers := getattr(plugin, "headers", None), dict):
        headers[DELIVERY] = delivery.pk
    if mail.takes(plugin):
        return mail.send(plugin, mail.made(plugin, delivery, message))
    level = _LEVELS[delivery.incident.level] if delivery.incident and delivery.what == "opened" else "success"
    body = "\n\n".join(filter(None, (message.body, message.link)))
    with LogCapture(level=logging.WARNING, name=logger.name, fmt="%(message)s") as captured:
        try:
            sent = plugin.notify(title=message.title, body=body, notify_type=level)
        except (OSError, TypeError, ValueError) as error:
            raise Unsent("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
        said = str(captured.getvalue()).strip() if captured else ""
    if not sent:
        raise Unsent("CHANNEL_AWAY", why=said.replace("\n", " ")[:MOST_ANSWER] or "apprise")
    return ""
