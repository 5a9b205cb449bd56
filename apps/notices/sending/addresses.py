"""Addresses of channels: what may be one, and what of it may be seen."""

from typing import Any
from urllib.parse import urlsplit

from apps.notices.models import Kind
from apps.notices.sending.guard import Allowed
from fermi.launch.spec import Problem

HOSTS = {
    "slack": "slack.com", "discord": "discord.com", "tgram": "api.telegram.org", "feishu": "open.feishu.cn",
    "lark": "open.larksuite.com", "dingtalk": "oapi.dingtalk.com", "wecombot": "qyapi.weixin.qq.com",
    "gchat": "chat.googleapis.com", "pagerduty": "events.pagerduty.com", "opsgenie": "api.opsgenie.com",
    "pover": "api.pushover.net", "line": "api.line.me", "pushplus": "www.pushplus.plus", "schan": "sctapi.ftqq.com",
    "wxpusher": "wxpusher.zjiecode.com", "wxteams": "webexapis.com", "webex": "webexapis.com",
    "workflow": "", "workflows": "", "mailto": "", "mailtos": "", "json": "", "jsons": "", "form": "", "forms": "",
    "ntfy": "", "ntfys": "", "gotify": "", "gotifys": "", "bark": "", "barks": "", "mmost": "", "mmosts": "",
    "rocket": "", "rockets": "", "zulip": "", "splunk": "", "zoom": "",
}  # fmt: skip
"""Of Apprise's kinds of addresses, those that send in the thread that asks for it and over the network alone (tests
hold this to be so), with the host that each goes to; empty: the address names it."""
LONGEST = 2000


def problems(kind: str, address: str, allowed: Allowed) -> list[Problem]:
    """What is wrong with an address; nothing is connected to."""
    if kind == Kind.WEBHOOK:
        return _of_webhook(address, allowed)
    scheme = address.partition("://")[0].lower()
    if "://" not in address or scheme not in HOSTS:
        return [
            Problem("address", "CHANNEL_SCHEME_UNKNOWN", {"found": scheme[:40], "allowed": ", ".join(sorted(HOSTS))})
        ]
    plugin = instance(address)
    if plugin is None:
        return [Problem("address", "CHANNEL_ADDRESS_INVALID", {"scheme": scheme})]
    host = HOSTS[scheme] or _host_of(plugin)
    if host and not allowed.name(host):
        return [Problem("address", "CHANNEL_HOST_NOT_ALLOWED", {"host": host})]
    return []


def shown(kind: str, address: str) -> str:
    """Without what is secret in it."""
    if kind == Kind.WEBHOOK:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/…"
    scheme = address.partition("://")[0].lower()
    if scheme in ("mailto", "mailtos"):
        plugin = instance(address)
        to = ", ".join(mail for _, mail in getattr(plugin, "targets", ())) if plugin else ""
        return f"{scheme}://{to}"[:300]
    return f"{scheme}://…"


def instance(address: str) -> Any:
    """Apprise's, with our patience; None for what it does not understand."""
    from apprise import Apprise  # what is not sent need not be imported

    plugin = Apprise.instantiate(address, suppress_exceptions=True)
    if plugin is not None:
        plugin.socket_connect_timeout, plugin.socket_read_timeout = CONNECT_SECONDS, READ_SECONDS
        plugin.retry = 0
    return plugin


CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0


def _host_of(plugin: Any) -> str:
    return str(getattr(plugin, "smtp_host", "") or getattr(plugin, "host", "") or "")


def _of_webhook(address: str, allowed: Allowed) -> list[Problem]:
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return [Problem("address", "CHANNEL_ADDRESS_INVALID", {"scheme": "https"})]
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return [Problem("address", "CHANNEL_ADDRESS_INVALID", {"scheme": "https"})]
    if not allowed.name(host):
        return [Problem("address", "CHANNEL_HOST_NOT_ALLOWED", {"host": host})]
    return []
