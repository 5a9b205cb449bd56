"""Requests that clients may make to an environment's daemon, and what the audit trail stores of them: the command,
never its input."""

from collections.abc import Mapping
from typing import Any

from fermi.envd import protocol

LONGEST_COMMAND = 2000  # characters kept
Request = Mapping[str, Any]


def read(said: str) -> Request:
    """Return the validated request. Raises ValueError with the name of the invalid field."""
    try:
        asked = protocol.read_line(said.encode())
    except (protocol.WireError, UnicodeEncodeError):
        raise ValueError("") from None
    match asked.get("open"):
        case "port":
            return _port(asked)
        case "exec":
            return _exec(asked)
    raise ValueError("open")


def _port(asked: Request) -> Request:
    port, door = asked.get("port"), asked.get("door")
    if isinstance(door, str) and 0 < len(door) <= 63:
        return {"open": "port", "door": door}
    if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536:
        return {"open": "port", "port": port}
    raise ValueError("port")


def _exec(asked: Request) -> Request:
    command, cwd, env, tty = asked.get("command"), asked.get("cwd") or "", asked.get("env") or {}, asked.get("tty")
    if command is not None and not (isinstance(command, list) and command and all(map(_is_text, command))):
        raise ValueError("command")
    if not _is_text(cwd):
        raise ValueError("cwd")
    if not isinstance(env, dict) or not all(_is_text(value) and _is_name(name) for name, value in env.items()):
        raise ValueError("env")
    if tty is not None and not (isinstance(tty, dict) and _is_size(tty.get("columns")) and _is_size(tty.get("rows"))):
        raise ValueError("tty")
    size = tty and {name: tty[name] or usual for name, usual in protocol.SIZE.items()}
    return {"open": "exec", "command": command, "cwd": cwd, "env": env, "tty": size}


def audited(asked: Request) -> tuple[str, dict[str, Any]]:
    """Return the verb and the data for the audit trail."""
    if asked["open"] == "port":
        return "tunnel", {name: asked[name] for name in ("door", "port") if name in asked}
    if asked["command"] is None:
        return "shell", {}
    return "exec", {"command": " ".join(asked["command"])[:LONGEST_COMMAND]}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_name(name: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000
