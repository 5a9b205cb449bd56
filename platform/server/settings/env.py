"""Reads the environment."""

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


def flag(name: str, *, default: bool = False) -> bool:
    value = os.environ.get(name, "")
    return value.lower() not in {"0", "no", "false", "off"} if value else default


def number(name: str, default: float) -> float:
    return float(os.environ.get(name) or default)


def words(name: str) -> list[str]:
    return [word.strip() for word in os.environ.get(name, "").split(",") if word.strip()]


def secret_key(data: Path) -> str:
    """FERMI_SECRET_KEY, or the key kept in the data directory, which the first process to ask makes.

    Made complete under a name of its own and then linked, so that of several processes that start
    together one wins and all read the same whole key.
    """
    if key := os.environ.get("FERMI_SECRET_KEY"):
        return key
    path = data / "secret_key"
    if not path.exists():
        data.mkdir(parents=True, exist_ok=True)
        mine = path.with_name(f".secret_key.{os.getpid()}.{secrets.token_hex(4)}")
        mine.touch(mode=0o600)
        mine.write_text(secrets.token_urlsafe(50))
        try:
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            mine.unlink()
    return path.read_text()


def postgres(url: str) -> dict[str, Any]:
    """DATABASES entry of a PostgreSQL URL.

    The query string becomes connection options; its `host` may be a folder with a socket.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgres", "postgresql"}:
        raise ValueError(f"DATABASE_URL must begin with postgresql://, not {parts.scheme}://")
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or options.pop("user", "")),
        "PASSWORD": unquote(parts.password or options.pop("password", "")),
        "HOST": parts.hostname or options.pop("host", ""),
        "PORT": str(parts.port or ""),
        "OPTIONS": {**options, "pool": {"min_size": 1, "max_size": 20, "timeout": 20}},
    }


def celery_url(redis_url: str) -> str:
    """The same broker as Celery spells it, whose Unix socket transport has a scheme of its own."""
    return redis_url.replace("unix://", "redis+socket://", 1) if redis_url.startswith("unix://") else redis_url


def port_range(name: str, default: str) -> range:
    """`29500-32767`, both ends included."""
    low, _, high = (os.environ.get(name) or default).partition("-")
    return range(int(low), int(high) + 1)
