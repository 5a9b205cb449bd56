"""Host names of the proxy: each service of an environment has a host name, and so an origin, of its own:

    env-7kq2m9x4td.localhost:8000              its main service, where the console is on this machine
    tensorboard--env-7kq2m9x4td.localhost:8000 another of its services
    env-7kq2m9x4td.fermi-doors.example.org     with FERMI_DOOR_HOST=fermi-doors.example.org

Browsers send cookies of one host to no other, so an environment reads neither the console's nor another one's. Pure
functions.
"""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LOCAL_DOMAIN = "localhost"
LABEL_SEPARATOR = "--"
MAX_LABEL_LENGTH = 63  # of a label, RFC 1035
MAX_PATH_LENGTH = 2000
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """The address of a service. `door` empty: the environment's main one."""

    environment: str
    door: str = ""


def make_label(name: ProxyAddress) -> str | None:
    """Return the first label of the host name, or None if it cannot be one."""
    parts = [part for part in (name.door, name.environment) if part]
    fits = all(_LABEL.fullmatch(part) and LABEL_SEPARATOR not in part for part in parts)
    made = LABEL_SEPARATOR.join(parts)
    return made if fits and len(made) <= MAX_LABEL_LENGTH else None


def split_host(host: str) -> tuple[str, str]:
    """Return the name of a Host header in lower case, and `:port` or an empty text."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:]*?)\.?(:[0-9]{1,5})?", host)
    return (found[1].lower(), found[2] or "") if found else (host.lower(), "")


def parse_host(host: str, door_host: str) -> ProxyAddress | None:
    """Return the address that a Host header names, or None if it is no proxy address. A name below `door_host` that is
    none belongs to no environment."""
    name, _ = split_host(host)
    for base in (split_host(door_host)[0], LOCAL_DOMAIN):
        if base and name.endswith(f".{base}"):
            found = name.removesuffix(f".{base}")
            if _LABEL.fullmatch(found) and len(found) <= MAX_LABEL_LENGTH:
                door, apart, environment = found.partition(LABEL_SEPARATOR)
                return ProxyAddress(environment, door) if apart else ProxyAddress(found)
            return None if base == LOCAL_DOMAIN else ProxyAddress("")
    return None


def is_loopback(host: str) -> bool:
    """Return True for a host name of this machine."""
    return split_host(host)[0] in _LOOPBACK


def make_origin_template(console: str, door_host: str, public_url: str) -> str | None:
    """Return the origin of proxy addresses as `scheme://{}rest`, for a user whose console is at the origin `console`;
    None if there is none."""
    scheme, _, host = console.partition("://")
    _, port = split_host(host)
    if is_loopback(host):
        return f"{scheme}://{{}}.{LOCAL_DOMAIN}{port}"
    if not door_host:
        return None
    public = urlsplit(public_url)
    named, own_port = split_host(door_host)
    port = own_port or (f":{public.port}" if public.port else "" if public_url else port)
    return f"{public.scheme or scheme}://{{}}.{named}{port}"


def make_origin(name: ProxyAddress, console: str, door_host: str, public_url: str) -> str | None:
    """Return the origin of an address, or None."""
    made, where = make_label(name), make_origin_template(console, door_host, public_url)
    return where.format(made) if made and where else None


def check_path(path: str) -> str | None:
    """Return the path, percent-encoded, on the proxy address itself; None if it would lead elsewhere, or to the proxy's
    own paths."""
    path = path or "/"
    quoted = "".join(letter if letter.isascii() else _percent_encode(letter) for letter in path)
    if len(quoted) > MAX_PATH_LENGTH or not _PATH.fullmatch(quoted) or quoted.startswith("/_fermi"):
        return None
    return quoted


def _percent_encode(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "replace"))
