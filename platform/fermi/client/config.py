"""Address and token of the platform where the caller gives none."""

import json
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fermi.client.errors import NoPlatformError


@dataclass(frozen=True, slots=True)
class Config:
    """Content of the file that `fermi login` writes."""

    url: str = ""
    token: str = ""
    language: str = ""


class Endpoint(NamedTuple):
    """Address without a trailing slash, and a token that was issued there ("" = none known)."""

    url: str
    token: str


def find_endpoint(url: str | None = None, token: str | None = None) -> Endpoint:
    """Return the platform's address and token: the arguments, else FERMI_URL and FERMI_TOKEN, else what `fermi login`
    stored, else the platform of the local data directory. A stored token is only used for the address it was stored
    for. Raise NoPlatformError where no address is known."""
    url = _normalize_url(url or os.environ.get("FERMI_URL", ""))
    token = token or os.environ.get("FERMI_TOKEN", "")
    kept = load_config()
    known = [place for place in (Endpoint(_normalize_url(kept.url), kept.token), find_local_endpoint()) if place.url]
    if not url:
        if not known:
            raise NoPlatformError(
                "no Fermi platform is known here: give an address, set FERMI_URL, or run `fermi login ADDRESS`",
                code="NO_PLATFORM",
            )
        url = known[0].url
    return Endpoint(url, token or next((place.token for place in known if place.url == url and place.token), ""))


def find_local_endpoint() -> Endpoint:
    """Return the platform that runs from `$FERMI_DATA` (else `./var`) on this machine; empty fields without one."""
    data = Path(os.environ.get("FERMI_DATA") or "var")
    return Endpoint(_normalize_url(_read_text(data / "run" / "url")), _read_text(data / "token"))


def get_config_path() -> Path:
    """Return the path of the configuration file."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "fermi" / "config.toml"


def load_config() -> Config:
    """Return the configuration; empty without a file. Raise NoPlatformError for one that cannot be read."""
    try:
        data: dict[str, Any] = tomllib.loads(get_config_path().read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return Config()
    except (OSError, ValueError) as error:
        raise NoPlatformError(f"{get_config_path()} cannot be read: {error}", code="CONFIG_UNREADABLE") from error
    return Config(**{name: str(data[name]) for name in ("url", "token", "language") if name in data})


def save_config(config: Config) -> None:
    """Replace the file atomically; its mode lets only its owner read it."""
    target = get_config_path()
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lines = [
        f"{name} = {json.dumps(value)}\n"
        for name, value in (("url", config.url), ("token", config.token), ("language", config.language))
        if value
    ]
    draft = target.with_name(f"{target.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.writelines(lines)
    draft.replace(target)


def _normalize_url(url: str) -> str:
    """Return the address with a scheme: `host:8000/` → `http://host:8000`."""
    url = url.strip().rstrip("/")
    return url if not url or "://" in url else f"http://{url}"


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError:
        return ""
