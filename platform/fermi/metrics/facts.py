"""Parses what nodes report of themselves in records (`fermi.probe.facts`, `fermi.runner.node_facts`). Pure. A rank can
write any bytes, so each fact is checked by itself, and left out if it is malformed.

Long lists come in parts, several records with the same key; `FactParts` joins them.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from fermi.metrics.points import parse_integer
from fermi.schema import sanitize

PACKAGES, VARIABLES = "packages", "variables"
TEXT_FACTS = ("python", "executable", "prefix", "cuda", "rocm", "kernel", "cpu", "driver")
MAX_TEXT_LENGTH, MAX_GPU_KINDS, MAX_COUNT = 500, 16, 1_000_000
MAX_ITEMS, MAX_PARTS, MAX_PART_ITEMS = 3000, 100, 200
_PACKAGE = re.compile(r"([a-z0-9][a-z0-9-]{0,99})==([a-z0-9.+!_-]{1,60})")
_VARIABLE, _HASH = re.compile(r"[!-~]{1,100}"), re.compile(r"(?:[0-9a-f]{16})?")
_KEY, _SHA256, _COMMIT = re.compile(r"[0-9a-f-]{1,40}"), re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40,64}")


@dataclass(frozen=True, slots=True)
class FactPart:
    """A part of a list. `kind`: PACKAGES (version by name) or VARIABLES (hash by name, empty for a secret)."""

    kind: str
    key: str
    place: int
    count: int
    items: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundFacts:
    """The facts of one record: single values by name, and a part of a list."""

    values: Mapping[str, Any] = field(default_factory=dict)
    part: FactPart | None = None


def parse_facts(found: Any) -> FoundFacts | None:
    """Return the facts of a record; None if it has none. Never raises."""
    if not isinstance(found, dict):
        return None
    values: dict[str, Any] = {name: _clean(text) for name in TEXT_FACTS if _is_text(text := found.get(name))}
    cores = parse_integer(found.get("cores"))
    if cores is not None and 0 < cores < MAX_COUNT:
        values["cores"] = cores
    if gpus := _parse_gpus(found.get("gpus")):
        values["gpus"] = gpus
    values |= {name: nested for name, parse in _NESTED.items() if (nested := parse(found.get(name)))}
    part = _parse_part(found)
    return FoundFacts(values, part) if values or part else None


def _parse_gpus(found: Any) -> dict[str, int]:
    if not isinstance(found, dict):
        return {}
    counts = {_clean(model): parse_integer(count) for model, count in list(found.items())[:MAX_GPU_KINDS] if model}
    return {model: count for model, count in counts.items() if count is not None and 0 < count < MAX_COUNT}


def _parse_script(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    path, sha256 = found.get("path"), found.get("sha256")
    return {"path": _clean(path), "sha256": sha256} if _is_text(path) and _matches(sha256, _SHA256) else {}


def _parse_git(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    commit, branch = found.get("commit"), found.get("branch")
    if not _matches(commit, _COMMIT):
        return {}
    return {"commit": commit, **({"branch": _clean(branch)} if _is_text(branch) else {})}


_NESTED = {"script": _parse_script, "git": _parse_git}


def _parse_part(found: dict[str, Any]) -> FactPart | None:
    kind = next((name for name in (PACKAGES, VARIABLES) if name in found), "")
    place, count = parse_integer(found.get("part")), parse_integer(found.get("parts"))
    if not kind or place is None or count is None or not 0 <= place < count <= MAX_PARTS:
        return None
    key, content = found.get("key"), found[kind]
    if not _matches(key, _KEY):
        return None
    items: dict[str, str] = {}
    if kind == PACKAGES and isinstance(content, str):
        items = {one[1]: one[2] for word in content.split()[:MAX_PART_ITEMS] if (one := _PACKAGE.fullmatch(word))}
    elif kind == VARIABLES and isinstance(content, dict):
        named = list(content.items())[:MAX_PART_ITEMS]
        items = {name: value for name, value in named if _VARIABLE.fullmatch(name) and _matches(value, _HASH)}
    return FactPart(kind, key, place, count, items)


def _matches(value: Any, pattern: re.Pattern[str]) -> TypeGuard[str]:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _clean(text: str) -> str:
    return sanitize.sanitize_text(text[:MAX_TEXT_LENGTH])


class FactParts:
    """Joins the parts of lists. `state`: JSON that is kept from one record to the next; of each kind the newest list
    alone is in it, until it is complete."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def add(self, part: FactPart) -> dict[str, str] | None:
        """Return the whole list once its last part has come, at most MAX_ITEMS; None before."""
        known = self.state.get(part.kind)
        if not known or known["key"] != part.key or known["count"] != part.count:
            known = self.state[part.kind] = {"key": part.key, "count": part.count, "parts": {}}
        known["parts"][str(part.place)] = dict(part.items)
        if len(known["parts"]) < part.count:
            return None
        del self.state[part.kind]
        joined = [item for place in range(part.count) for item in known["parts"][str(place)].items()]
        return dict(joined[:MAX_ITEMS])


def compute_digest(kind: str, items: Mapping[str, str]) -> str:
    """Return the key under which a list is stored once, whatever its order: a SHA-256 in hexadecimal digits."""
    return hashlib.sha256(json.dumps([kind, sorted(items.items())]).encode()).hexdigest()
