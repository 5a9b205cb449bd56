"""Sends by each kind of address with a path in each parameter, and notes what is opened, started or connected to.

Run as a program, because an audit hook stays and Apprise's plug-ins patch what they import. Prints as JSON:
`reached`: {"slack?template": ["open /tmp/…"]} for what is accepted; `blind`: the same with the check of parameters
turned off; `sent`: kinds that got as far as a request; `unlisted`: kinds and parameters of all plug-ins that were not
refused though they are not accepted.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import requests
from apprise.manager_plugins import NotificationManager

from apps.notices.sender import addresses
from apps.notices.sender.errors import DeliveryError

SAMPLES = {
    "slack": "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops",
    "discord": f"discord://{'1' * 24}/{'a' * 64}",
    "tgram": "tgram://123456789:abcdefg_hijklmnopqrstuvwxyz0123456/12315544/",
    "feishu": "feishu://abcdef123456",
    "lark": "lark://abcdef123456",
    "dingtalk": "dingtalk://abcdef123456",
    "wecombot": "wecombot://abcdef123456",
    "gchat": "gchat://workspace/key/token",
    "pagerduty": "pagerduty://integration@apikey",
    "opsgenie": "opsgenie://106b637f-9b7e-4a1b-8b4e-5a8f4a1b8b4e",
    "pover": f"pover://{'u' * 30}@{'t' * 30}",
    "line": f"line://{'t' * 40}=/{'U' + 'a' * 32}",
    "pushplus": f"pushplus://{'a' * 32}",
    "schan": f"schan://{'a' * 32}",
    "wxpusher": "wxpusher://AT_appid/UID_a",
    "wxteams": f"wxteams://{'a' * 80}",
    "webex": f"webex://{'a' * 80}",
    "workflow": "workflow://host.example.org:443/workflow1/signature1",
    "workflows": "workflows://host.example.org:443/workflow1/signature1",
    "mailto": "mailto://user:secret@smtp.example.org?to=a@example.org",
    "mailtos": "mailtos://user:secret@smtp.example.org?to=a@example.org",
    "zulip": f"zulip://bot@org/{'a' * 32}/stream",
    "splunk": "splunk://route1@3b6b637f-9b7e-4a1b-8b4e-5a8f4a1b8b4e/entity",
    "zoom": "zoom://abcdef123456/token123456",
    "ntfy": "ntfy://host.example.org/topic",
    "ntfys": "ntfys://host.example.org/topic",
    "mmost": f"mmost://host.example.org/{'a' * 26}",
    "mmosts": f"mmosts://host.example.org/{'a' * 26}",
    "rocket": "rocket://user:secret@host.example.org/%23ops",
    "rockets": "rockets://user:secret@host.example.org/%23ops",
    "gotify": "gotify://host.example.org/abcdef123456789",
    "gotifys": "gotifys://host.example.org/abcdef123456789",
    "bark": "bark://host.example.org/devicekey",
    "barks": "barks://host.example.org/devicekey",
    **{scheme: f"{scheme}://user:secret@host.example.org/path" for scheme in ("json", "jsons", "form", "forms")},
}
ANSWER = {"ok": True, "code": 0, "errcode": 0, "status": "success", "success": True, "result": "success"}
events: list[str] = []
sent: set[str] = set()


def note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir", "os.scandir", "os.mkdir", "os.remove", "os.rename"):
        if arguments and MARKER in str(arguments[0]):
            events.append(f"{event} {arguments[0]}")
        elif event == "open" and arguments[1] not in (None, "r", "rb"):
            events.append(f"{event} {arguments[:2]}")
    elif event.startswith(("subprocess.", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "syslog.")):
        events.append(event)
    elif event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"):
        events.append(f"{event} {arguments[1:]}")


def respond(_session: Any, method: str, url: str, **_: Any) -> requests.Response:
    response = requests.Response()
    response.status_code, response.url = 200, url
    response._content = json.dumps(ANSWER).encode()
    sent.add(scheme)
    return response


def try_address(address: str) -> list[str]:
    """Return what was reached on the way from the address to the answer."""
    events.clear()
    with mock.patch("requests.sessions.Session.request", respond), mock.patch("time.sleep"):
        try:
            plugin = addresses.make_plugin(address)
            if not addresses.is_mail(address):
                plugin.notify(title="title", body="body", notify_type="warning")
            else:  # of these only the address is read by Apprise
                sent.add(scheme)
                plugin.url()
        except Exception:
            pass
    return [*events]


def join(address: str, name: str, value: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}{name}={value}"


def is_refused(address: str, code: str) -> bool:
    try:
        addresses.make_plugin(address)
    except DeliveryError as error:
        return error.code == code
    return False


with tempfile.TemporaryDirectory() as folder:
    MARKER = Path(folder).name
    file = Path(folder, "marker")
    file.write_text('{"title": "marker"}', "utf-8")
    values = (str(file), f"file://{file}", f"unix://{file}")
    plugins = NotificationManager()
    everything = {scheme: plugins[scheme] for scheme in plugins.schemas()}
    for scheme in SAMPLES:
        try_address(SAMPLES[scheme])  # what it imports the first time
    sys.addaudithook(note)
    reached: dict[str, list[str]] = {}
    blind: dict[str, list[str]] = {}
    for scheme, sample in SAMPLES.items():
        kind = addresses.ADDRESS_KINDS[scheme]
        accepted = [*addresses.ALWAYS_ACCEPTED, *kind.parameters.split()]
        names = [*accepted, *(f"{quoted}marker" for first in kind.maps for quoted in (f"%{ord(first):x}",))]
        for name in names:
            reached[f"{scheme}?{name}"] = [each for value in values for each in try_address(join(sample, name, value))]
        reached[scheme] = try_address(sample) + try_address(f"{scheme}://{file}") + try_address(f"{sample}/{file}")
        with mock.patch.object(addresses, "_check_parameters"):
            for name in everything[scheme].template_args:
                if name not in accepted:
                    blind[f"{scheme}?{name}"] = [
                        each for value in values for each in try_address(join(sample, name, value))
                    ]
    unlisted = [
        scheme
        for scheme in everything
        if scheme not in addresses.ADDRESS_KINDS
        and not is_refused(f"{scheme}://host.example.org", "CHANNEL_SCHEME_UNKNOWN")
    ]
    for scheme, sample in SAMPLES.items():
        kind = addresses.ADDRESS_KINDS[scheme]
        accepted = [*addresses.ALWAYS_ACCEPTED, *kind.parameters.split()]
        for name in everything[scheme].template_args:
            if name not in accepted and not is_refused(join(sample, name, "x"), "CHANNEL_PARAMETER_NOT_ALLOWED"):
                unlisted.append(f"{scheme}?{name}")
    modules = {scheme: everything[scheme].__module__ for scheme in addresses.ADDRESS_KINDS}

print(json.dumps({
    "reached": {name: found for name, found in reached.items() if found},
    "blind": {name: found for name, found in blind.items() if found},
    "sent": sorted(sent), "unlisted": unlisted, "modules": modules,
}))  # fmt: skip
