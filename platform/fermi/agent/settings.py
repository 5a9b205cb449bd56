"""An agent's settings, from options or a configuration file (TOML or YAML, with the same names); options win."""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from fermi.agent.errors import AgentError
from fermi.engines.isolation import DEFAULT_READ_FOLDERS
from fermi.jobs.ranks import parse_worker_name
from fermi.schema import suggestions

LIST_SETTINGS = {"ids": "ids", "reads": "folders", "writes": "folders"}
_NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,60}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Settings:
    """`ids` (or `node` and `gpus`) name the workers. `address`: where other hosts reach this one. `emulate`: CPU
    processes emulate GPUs. `warm`: keep a fork server that has the training stack imported. `confine`: ranks can access
    nothing but what they were given; `reads`, `writes`: folders of this host that all of them are given. `containers`:
    environments with an image run in the host's Podman or Docker, if it has one. `cache_max_gb`: GiB of each project's
    cache of libraries; 0 = no limit."""

    server: str = ""
    token: str = ""
    token_file: str = ""
    ids: tuple[str, ...] = ()
    node: str = ""
    gpus: tuple[int, ...] = ()
    emulate: bool = False
    address: str = ""
    zone: str = ""
    gpu_type: str = ""
    state: str = ""
    workspace: str = ""
    python: str = ""
    warm: bool = True
    confine: bool = True
    reads: tuple[str, ...] = DEFAULT_READ_FOLDERS
    writes: tuple[str, ...] = ()
    containers: bool = True
    cache_max_gb: int = 200

    def workers(self) -> tuple[str, dict[str, int]]:
        """Return the node, and the number of each worker, which is that of its GPU; none = all that the host has.
        Raises AgentError."""
        if not self.ids:
            if not self.node:
                raise AgentError("WORKER_ID_REQUIRED")
            if not _NODE_NAME.fullmatch(self.node):
                raise AgentError("WORKER_NODE_INVALID", node=self.node)
            return self.node, {f"{self.node}-{number}": number for number in self.gpus}
        found: dict[str, int] = {}
        nodes = set()
        for worker in self.ids:
            try:
                node, number = parse_worker_name(worker)
            except ValueError:
                raise AgentError("WORKER_ID_INVALID", id=worker) from None
            if not _NODE_NAME.fullmatch(node):
                raise AgentError("WORKER_ID_INVALID", id=worker)
            if worker in found:
                raise AgentError("WORKER_ID_TWICE", id=worker)
            nodes.add(node)
            found[worker] = number
        if len(nodes) > 1 or (self.node and self.node not in nodes):
            raise AgentError("WORKER_NODES_DIFFER", nodes=", ".join(sorted(nodes | {self.node} - {""})))
        return nodes.pop(), found

    def join_token(self) -> str:
        """Return the token for registration. Raises AgentError when its file cannot be read."""
        if self.token or not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise AgentError("WORKER_FILE_UNREADABLE", path=self.token_file, why=error.strerror) from error

    def state_folder(self, node: str) -> Path:
        """Return the agent's folder."""
        if self.state:
            return Path(self.state).expanduser().resolve()
        if os.geteuid() == 0:
            return Path("/var/lib/fermi-worker")
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return home / "fermi-worker" / node


def load_settings(path: str | None, options: Mapping[str, Any]) -> Settings:
    """Return the settings. `options`: of the command line; None, empty or False = not given. Raises AgentError with
    what is wrong in the file."""
    stored = _read_file(Path(path)) if path else {}
    known = {field.name: type(field.default) for field in fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in known:
            near = suggestions.suggest_name(name, known)
            raise AgentError("WORKER_SETTING_UNKNOWN", path=path, name=name, nearest=near, allowed=", ".join(known))
        values[name] = _check_value(str(path), name, value, known[name])
    values |= {name: value for name, value in options.items() if value not in (None, "", (), False)}
    return Settings(**values)


def parse_numbers(text: str) -> tuple[int, ...]:
    """Return `0,1,4-7` as numbers. Raises AgentError."""
    found: list[int] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 9:
            raise AgentError("WORKER_GPUS_INVALID", found=text)
        found += range(int(first), int(last if dash else first) + 1)
    return tuple(dict.fromkeys(found))


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise AgentError("WORKER_FILE_UNREADABLE", path=str(path), why=error.strerror) from error
    try:
        found = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else tomllib.loads(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError) as error:
        raise AgentError("WORKER_FILE_INVALID", path=str(path), why=str(error)) from error
    if not isinstance(found, dict):
        raise AgentError("WORKER_FILE_INVALID", path=str(path), why="no names and values")
    return found


def _check_value(path: str, name: str, value: Any, kind: type) -> Any:
    if name == "gpus":
        return parse_numbers(",".join(map(str, value)) if isinstance(value, list) else str(value))
    if name in LIST_SETTINGS and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    if kind in (tuple, int) or not isinstance(value, kind):
        expected = {str: "text", bool: "true / false", int: "a whole number"}.get(
            kind, f"a list of {LIST_SETTINGS.get(name, 'ids')}"
        )
        raise AgentError("WORKER_SETTING_INVALID", path=path, name=name, found=str(value), expected=expected)
    return value
