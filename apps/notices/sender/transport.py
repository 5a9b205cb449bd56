"""Sends messages, in the process that sends: by Apprise, by mail or by a webhook. Each function raises
DeliveryError."""

import logging
from collections.abc import Mapping
from typing import Any

from apps.notices.sender import addresses, mail
from apps.notices.sender.errors import MAX_ANSWER_LENGTH, DeliveryError

DELIVERY_HEADER = "X-Fermi-Delivery"


def post_webhook(order: Mapping[str, Any]) -> str:
    """Return the status and the beginning of the answer."""
    import httpx

    timeout = httpx.Timeout(addresses.READ_SECONDS, connect=addresses.CONNECT_SECONDS)
    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False) as client,
            client.stream("POST", order["address"], content=order["body"], headers=order["headers"]) as response,
        ):
            answer = next(response.iter_text(MAX_ANSWER_LENGTH), "")
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise DeliveryError("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
    if not response.is_success:
        raise DeliveryError("CHANNEL_REFUSES", answer=f"{response.status_code} {answer}", status=response.status_code)
    return f"{response.status_code} {answer}"[:MAX_ANSWER_LENGTH]


def send_notification(order: Mapping[str, Any]) -> str:
    """Return what a mail server said; empty for services that only say whether they accepted the message."""
    plugin = addresses.make_plugin(order["address"])
    if isinstance(headers := getattr(plugin, "headers", None), dict):
        headers[DELIVERY_HEADER] = order["delivery"]
    if addresses.is_mail(order["address"]):
        return mail.send_mail(plugin, mail.build_mail(plugin, order))
    from apprise.logger import LogCapture, logger

    with LogCapture(level=logging.WARNING, name=logger.name, fmt="%(message)s") as captured:
        try:
            sent = plugin.notify(title=order["title"], body=order["text"], notify_type=order["level"])
        except (OSError, TypeError, ValueError) as error:
            raise DeliveryError("CHANNEL_AWAY", why=str(error) or type(error).__name__) from None
        said = str(captured.getvalue()).strip() if captured else ""
    if not sent:
        raise DeliveryError("CHANNEL_AWAY", why=said.replace("\n", " ")[:MAX_ANSWER_LENGTH] or "apprise")
    return ""
