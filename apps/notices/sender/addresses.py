"""Addresses of channels: which kinds and parameters are accepted, and what of an address may be shown.

Denied by default. Apprise has parameters that name files (`template` of Slack, Discord, Telegram and Workflows,
`pgppub` and `pgpprv` of mail), folders (`store`), a time zone's file (`tz`) and attachments (`attach`), and kinds that
run a program or write to a socket of this machine. So only what is in ADDRESS_KINDS is accepted; it was chosen by
reading what each plug-in does with it (`apprise/plugins`). This module runs in the process that sends, without Django.
"""

from importlib import import_module
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from apps.notices.sender.egress_policy import AllowedHosts
from apps.notices.sender.errors import DeliveryError


class AddressKind(NamedTuple):
    """`plugin`: module and class below `apprise.plugins`. `host`: where it sends to; empty: the address names it.
    `parameters`: accepted ones, separated by spaces. `maps`: first characters of names that the user chooses, such as
    `+` in `+X-Header=value`."""

    plugin: str
    host: str = ""
    parameters: str = ""
    maps: str = ""


ALWAYS_ACCEPTED = frozenset({"emojis", "format", "overflow", "pass", "password", "port", "user", "verify"})
"""Parameters that `NotifyBase` and `URLBase` read and that reach nothing but the message, the login and TLS."""

_WEBEX = AddressKind("webexteams.NotifyWebexTeams", "webexapis.com", "token mode to")
_WORKFLOWS = AddressKind(
    "workflows.NotifyWorkflows",
    parameters="id workflow image pa powerautomate route routeid wrap sig signature ver api-version",
)
_MAIL = AddressKind("email.base.NotifyEmail", parameters="from name smtp mode reply to cc bcc", maps="+")
_JSON = AddressKind("custom_json.NotifyJSON", parameters="method", maps="+-:")
_FORM = AddressKind("custom_form.NotifyForm", parameters="method", maps="+-:")
_NTFY = AddressKind(
    "ntfy.NotifyNtfy", parameters="image avatar_url click delay email priority tags xtags actions mode token auth to"
)
_GOTIFY = AddressKind("gotify.NotifyGotify", parameters="priority")
_BARK = AddressKind(
    "bark.NotifyBark",
    parameters="sound level volume click badge category group image icon call subtitle copy action archive ttl id"
    " delete key to",
)
_MATTERMOST = AddressKind(
    "mattermost.NotifyMattermost", parameters="botname channel channels icon_url image mode team to"
)
_ROCKET = AddressKind("rocketchat.NotifyRocketChat", parameters="avatar mode to webhook")

ADDRESS_KINDS = {
    "slack": AddressKind("slack.NotifySlack", "slack.com", "image footer blocks timestamp mode token to"),
    "discord": AddressKind(
        "discord.NotifyDiscord",
        "discord.com",
        "avatar avatar_url botname fields flags footer footer_logo href url ping thread tts image batch",
    ),
    "tgram": AddressKind(
        "telegram.NotifyTelegram", "api.telegram.org", "content detect mdv preview silent thread to topic"
    ),
    "feishu": AddressKind("feishu.NotifyFeishu", "open.feishu.cn", "token"),
    "lark": AddressKind("lark.NotifyLark", "open.larksuite.com"),
    "dingtalk": AddressKind("dingtalk.NotifyDingTalk", "oapi.dingtalk.com", "secret to token"),
    "wecombot": AddressKind("wecombot.NotifyWeComBot", "qyapi.weixin.qq.com", "key"),
    "gchat": AddressKind("google_chat.NotifyGoogleChat", "chat.googleapis.com", "key thread threadkey token workspace"),
    "pagerduty": AddressKind(
        "pagerduty.NotifyPagerDuty",
        "events.pagerduty.com",
        "action apikey class click component dedup group image integrationkey region severity source",
        maps="+",
    ),
    "opsgenie": AddressKind(
        "opsgenie.NotifyOpsgenie",
        "api.opsgenie.com",
        "action alias apikey batch entity priority region tags to",
        maps="+:",
    ),
    "pover": AddressKind(
        "pushover.NotifyPushover", "api.pushover.net", "e2ee expire interval key priority sound to url url_title"
    ),
    "line": AddressKind("line.NotifyLine", "api.line.me", "image to token"),
    "pushplus": AddressKind("pushplus.NotifyPushplus", "www.pushplus.plus", "channel mode name to token topic"),
    "schan": AddressKind("serverchan.NotifyServerChan", "sctapi.ftqq.com"),
    "wxpusher": AddressKind("wxpusher.NotifyWxPusher", "wxpusher.zjiecode.com", "to token"),
    "wxteams": _WEBEX,
    "webex": _WEBEX,
    "workflow": _WORKFLOWS,
    "workflows": _WORKFLOWS,
    "mailto": _MAIL,
    "mailtos": _MAIL,
    "json": _JSON,
    "jsons": _JSON,
    "form": _FORM,
    "forms": _FORM,
    "ntfy": _NTFY,
    "ntfys": _NTFY,
    "gotify": _GOTIFY,
    "gotifys": _GOTIFY,
    "bark": _BARK,
    "barks": _BARK,
    "mmost": _MATTERMOST,
    "mmosts": _MATTERMOST,
    "rocket": _ROCKET,
    "rockets": _ROCKET,
    "zulip": AddressKind("zulip.NotifyZulip", parameters="to token"),
    "splunk": AddressKind("splunk.NotifySplunk", parameters="action apikey entity_id route routing_key", maps=":"),
    "zoom": AddressKind("zoom.NotifyZoom", parameters="mode token"),
}
"""By the scheme of the address. None of them acts on this machine (syslog, D-Bus, desktops)."""

MAX_ADDRESS_LENGTH = 2000
CONNECT_SECONDS, READ_SECONDS = 5.0, 10.0


def is_mail(address: str) -> bool:
    """Return whether messages to this address are mails."""
    return ADDRESS_KINDS.get(_get_scheme(address)) is _MAIL


def find_kind(address: str) -> AddressKind:
    """Return the kind of an address. Raises DeliveryError if it is not accepted."""
    scheme = _get_scheme(address)
    if "://" not in address or scheme not in ADDRESS_KINDS:
        raise DeliveryError(
            "CHANNEL_SCHEME_UNKNOWN", lasting=True, found=scheme[:40], allowed=", ".join(sorted(ADDRESS_KINDS))
        )
    return ADDRESS_KINDS[scheme]


def make_plugin(address: str) -> Any:
    """Return Apprise's plug-in for an address, with the platform's timeouts; does not connect. Raises DeliveryError for
    a kind or parameter that is not accepted, and for what the plug-in does not understand."""
    scheme, kind = _get_scheme(address), find_kind(address)
    module, _, name = kind.plugin.rpartition(".")
    cls = getattr(import_module(f"apprise.plugins.{module}"), name)  # one: to import all of them takes half a second
    invalid = DeliveryError("CHANNEL_ADDRESS_INVALID", lasting=True, scheme=scheme)
    try:
        parsed = cls.parse_url(address.replace("/#", "/%23"))  # as `apprise.plugins.url_to_dict` prepares it
    except Exception:
        raise invalid from None
    if not parsed:
        raise invalid
    _check_parameters(scheme, kind, parsed.get("qsd") or {})
    try:
        plugin = cls(**parsed)
    except Exception:
        raise invalid from None
    if not plugin.enabled:
        raise invalid
    plugin.socket_connect_timeout, plugin.socket_read_timeout = CONNECT_SECONDS, READ_SECONDS
    plugin.retry = 0
    return plugin


def _check_parameters(scheme: str, kind: AddressKind, parameters: dict[str, str]) -> None:
    """Raise DeliveryError for a parameter that is not accepted. `parameters`: as Apprise itself parses them, so that no
    other spelling passes."""
    accepted = ALWAYS_ACCEPTED | {*kind.parameters.split()}
    for name in parameters:
        if name and name not in accepted and name[0] not in kind.maps:
            words = sorted([*accepted, *(f"{first}…" for first in kind.maps)])
            raise DeliveryError(
                "CHANNEL_PARAMETER_NOT_ALLOWED",
                lasting=True,
                found=name[:40],
                scheme=scheme,
                allowed=", ".join(words),
            )


def check_address(address: str, allowed: AllowedHosts) -> str:
    """Return what may be shown of an address of Apprise. Raises DeliveryError if it is not accepted."""
    plugin = make_plugin(address)
    scheme = _get_scheme(address)
    host = find_kind(address).host or str(getattr(plugin, "smtp_host", "") or getattr(plugin, "host", "") or "")
    if host:
        _check_host(host, allowed)
    if not is_mail(address):
        return f"{scheme}://…"
    return f"{scheme}://{', '.join(mail for _, mail in plugin.targets)}"[:300]


def check_webhook(address: str, allowed: AllowedHosts) -> str:
    """Return what may be shown of the address of a webhook. Raises DeliveryError if it is not accepted."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in ("http", "https") or port == 0:
        raise DeliveryError("CHANNEL_ADDRESS_INVALID", lasting=True, scheme="https")
    _check_host(host, allowed)
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}/…"


def _check_host(host: str, allowed: AllowedHosts) -> None:
    if not allowed.name(host):
        raise DeliveryError("CHANNEL_HOST_NOT_ALLOWED", lasting=True, host=host)


def _get_scheme(address: str) -> str:
    return address.partition("://")[0].lower()
