"""Requests that clients may make to an environment's daemon, and what the audit trail stores of them: the command,
never its input."""

from collections.abc import Mapping
from typing import Any

from fermi.envd import protocol

MAX_COMMAND_LENGTH = 2000  # characters kept
EnvdRequest = Mapping[str, Any]


def parse_request(text: str) -> EnvdRequest:
    """Return the validated request. Raises ValueError with the name of the invalid field."""
    try:
        asked = protocol.parse_line(text.encode())
    except (protocol.ProtocolError, UnicodeEncodeError):
        raise ValueError("") from None
    match asked.get("open"):
        case "port":
            return _parse_port(asked)
        case "exec":
            return _parse_exec(asked)
    raise ValueError("open")


def _parse_port(request: EnvdRequest) -> EnvdRequest:
    port, door = request.get("port"), request.get("door")
    if isinstance(door, str) and 0 < len(door) <= 63:
        return {"open": "port", "door": door}
    if isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536:
        return {"open": "port", "port": port}
    raise ValueError("port")


def _parse_exec(request: EnvdRequest) -> EnvdRequest:
    command, cwd, env, tty = (
        request.get("command"),
        request.get("cwd") or "",
        request.get("env") or {},
        request.get("tty"),
    )
    if command is not None and not (isinstance(command, list) and command and all(map(_is_text, command))):
        raise ValueError("command")
    if not _is_text(cwd):
        raise ValueError("cwd")
    if not isinstance(env, dict) or not all(_is_text(value) and _is_name(name) for name, value in env.items()):
        raise ValueError("env")
    if tty is not None and not (isinstance(tty, dict) and _is_size(tty.get("columns")) and _is_size(tty.get("rows"))):
        raise ValueError("tty")
    size = tty and {name: tty[name] or usual for name, usual in protocol.DEFAULT_TERMINAL_SIZE.items()}
    return {"open": "exec", "command": command, "cwd": cwd, "env": env, "tty": size}


def describe_for_audit(request: EnvdRequest) -> tuple[str, dict[str, Any]]:
    """Return the verb and the data for the audit trail."""
    if request["open"] == "port":
        return "tunnel", {name: request[name] for name in ("door", "port") if name in request}
    if request["command"] is None:
        return "shell", {}
    return "exec", {"command": " ".join(request["command"])[:MAX_COMMAND_LENGTH]}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_name(name: str) -> bool:
    return bool(name) and "=" not in name and "\0" not in name


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10_000
