"""ProcGuard's configuration file, converted to the variables that the platform reads.

A key is read, or Fermi has a replacement for it (`texts.toml` has its description, by the key or by its section), or it
is unknown. Keys that are not read are listed, and the platform starts without them. An invalid value of a key that is
read is an error.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fermi.schema import suggestions
from procguard.texts import say

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class Problems(Exception):
    """The file is invalid; the message has sentences for the operator."""


class Settings(NamedTuple):
    """What was read from the file."""
    variables: dict[str, tuple[str, str]]
    """Variable → the key it was read from, and its value."""
    ignored: list[str]
    """A line for each key that is not read, with Fermi's replacement."""


def _port(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("port")
    return str(value)


def _seconds(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("seconds")
    return str(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value


def _level(value: Any) -> str:
    if str(value).upper() not in LEVELS:
        raise ValueError("level")
    return str(value).upper()


def _folder(value: Any) -> str:
    """Return the data directory: the folder of ProcGuard's state file, as Fermi stores more than one file."""
    return str(Path(_text(value)).parent)


READ: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "web.host": ("FERMI_HOST", _text),
    "web.port": ("FERMI_PORT", _port),
    "web.public_url": ("FERMI_PUBLIC_URL", _text),
    "state.state_file": ("FERMI_DATA", _folder),
    "state.data_dir": ("FERMI_DATA", _text),
    "logging.level": ("FERMI_LOG_LEVEL", _level),
    "monitoring.heartbeat_interval": ("FERMI_WORKER_HEARTBEAT", _seconds),
    "monitoring.heartbeat_timeout": ("FERMI_WORKER_LOST", _seconds),
}
"""Key, the variable that it sets, and the parser of its value (which raises ValueError with the name of a text)."""

ALWAYS = ("web.enabled", "state.auto_save")
"""Keys of what Fermi always does: `true` is the only valid value."""

INSTEAD = (
    "logging.file", "logging.format", "communication", "monitoring.interval", "monitoring.zombie_detection",
    "monitoring.cpu_threshold", "monitoring.memory_threshold", "recovery.enable_auto_recovery",
    "recovery.max_recovery_attempts", "recovery.stop_all_on_failure", "recovery.task_reassignment",
    "recovery.recovery_timeout", "workers", "slurm", "pytorch_dist",
)  # fmt: skip
"""Keys of ProcGuard that Fermi has a replacement for. A section stands for all its keys."""


def load(path: Path) -> Settings:
    """Return the settings of the file. Raise ConfigProblemsError where it cannot be read, or with all invalid values.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Problems(say("unreadable", path=path, why=getattr(error, "strerror", None) or error)) from error
    if not isinstance(found, dict | None):
        raise Problems(say("shape", path=path))
    variables: dict[str, tuple[str, str]] = {}
    wrong: list[str] = []
    ignored: list[str] = []
    for key, value in _flat(found or {}):
        if key in READ:
            variable, check = READ[key]
            try:
                variables[variable] = key, check(value)
            except ValueError as expected:
                wrong.append(f"{key}: {say('value', found=repr(value), expected=say(str(expected)))}")
        elif key in ALWAYS:
            if value is not True:
                ignored.append(f"{key}: {say('must_be', value=value, why=say(key))}")
        elif instead := next((one for one in INSTEAD if key == one or key.startswith(f"{one}.")), None):
            ignored.append(f"{key}: {say(instead)}")
        else:
            ignored.append(f"{key}: {say('unknown', near=_near(key))}")
    if wrong:
        raise Problems("\n  ".join([say("problems", path=path, count=len(wrong)), *wrong]))
    return Settings(variables, ignored)


def _flat(found: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `{"web": {"port": 5000}}` as `web.port`. A section that is replaced as a whole is not divided."""
    for name, value in found.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and key not in INSTEAD and not before:
            yield from _flat(value, f"{key}.")
        else:
            yield key, value


def _near(key: str) -> str:
    known = [*READ, *ALWAYS]
    if name := suggestions.suggest_name(key, known):
        return say("near", name=name)
    return say("nothing_near", allowed=", ".join(known))
