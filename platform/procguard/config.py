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
from procguard.texts import render_text

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class ConfigProblemsError(Exception):
    """The file is invalid; the message has sentences for the operator."""


class ProcguardSettings(NamedTuple):
    """What was read from the file."""
    variables: dict[str, tuple[str, str]]
    """Variable → the key it was read from, and its value."""
    ignored: list[str]
    """A line for each key that is not read, with Fermi's replacement."""


def _parse_port(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65535:
        raise ValueError("port")
    return str(value)


def _parse_seconds(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError("seconds")
    return str(value)


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value


def _parse_level(value: Any) -> str:
    if str(value).upper() not in LOG_LEVELS:
        raise ValueError("level")
    return str(value).upper()


def _parse_folder(value: Any) -> str:
    """Return the data directory: the folder of ProcGuard's state file, as Fermi stores more than one file."""
    return str(Path(_parse_text(value)).parent)


READ_KEYS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "web.host": ("FERMI_HOST", _parse_text),
    "web.port": ("FERMI_PORT", _parse_port),
    "web.public_url": ("FERMI_PUBLIC_URL", _parse_text),
    "state.state_file": ("FERMI_DATA", _parse_folder),
    "state.data_dir": ("FERMI_DATA", _parse_text),
    "logging.level": ("FERMI_LOG_LEVEL", _parse_level),
    "monitoring.heartbeat_interval": ("FERMI_WORKER_HEARTBEAT", _parse_seconds),
    "monitoring.heartbeat_timeout": ("FERMI_WORKER_LOST", _parse_seconds),
}
"""Key, the variable that it sets, and the parser of its value (which raises ValueError with the name of a text)."""

ALWAYS_ON_KEYS = ("web.enabled", "state.auto_save")
"""Keys of what Fermi always does: `true` is the only valid value."""

REPLACED_KEYS = (
    "logging.file", "logging.format", "communication", "monitoring.interval", "monitoring.zombie_detection",
    "monitoring.cpu_threshold", "monitoring.memory_threshold", "recovery.enable_auto_recovery",
    "recovery.max_recovery_attempts", "recovery.stop_all_on_failure", "recovery.task_reassignment",
    "recovery.recovery_timeout", "workers", "slurm", "pytorch_dist",
)  # fmt: skip
"""Keys of ProcGuard that Fermi has a replacement for. A section stands for all its keys."""


def load_config(path: Path) -> ProcguardSettings:
    """Return the settings of the file. Raise ConfigProblemsError where it cannot be read, or with all invalid values.
    """
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigProblemsError(render_text("unreadable", path=path, why=getattr(error, "strerror", None) or error)) from error
    if not isinstance(found, dict | None):
        raise ConfigProblemsError(render_text("shape", path=path))
    variables: dict[str, tuple[str, str]] = {}
    wrong: list[str] = []
    ignored: list[str] = []
    for key, value in _flatten(found or {}):
        if key in READ_KEYS:
            variable, check = READ_KEYS[key]
            try:
                variables[variable] = key, check(value)
            except ValueError as expected:
                wrong.append(f"{key}: {render_text('value', found=repr(value), expected=render_text(str(expected)))}")
        elif key in ALWAYS_ON_KEYS:
            if value is not True:
                ignored.append(f"{key}: {render_text('must_be', value=value, why=render_text(key))}")
        elif instead := next((one for one in REPLACED_KEYS if key == one or key.startswith(f"{one}.")), None):
            ignored.append(f"{key}: {render_text(instead)}")
        else:
            ignored.append(f"{key}: {render_text('unknown', near=_describe_near(key))}")
    if wrong:
        raise ConfigProblemsError("\n  ".join([render_text("problems", path=path, count=len(wrong)), *wrong]))
    return ProcguardSettings(variables, ignored)


def _flatten(found: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield `{"web": {"port": 5000}}` as `web.port`. A section that is replaced as a whole is not divided."""
    for name, value in found.items():
        key = f"{before}{name}"
        if isinstance(value, dict) and key not in REPLACED_KEYS and not before:
            yield from _flatten(value, f"{key}.")
        else:
            yield key, value


def _describe_near(key: str) -> str:
    known = [*READ_KEYS, *ALWAYS_ON_KEYS]
    if name := suggestions.suggest_name(key, known):
        return render_text("near", name=name)
    return render_text("nothing_near", allowed=", ".join(known))
