"""Parses the records in the frames of a rank's log (`fermi.runner.record_frames`). Pure. A rank can write any bytes
there, so each part is checked by itself, and left out if it is malformed.

    {"source": "wandb", "step": 10, "values": {"train/loss": 2.3}, "time": 1763703000.5}
    {"source": "wandb", "parameters": {"lr": 0.001, "optimizer": {"name": "adamw"}}}
    {"source": "tensorboard", "step": 10, "media": {"kind": "image", "name": "samples", "path": "media/7.png"}}
    {"source": "runner", "checkpoint": {"path": "/…/checkpoint-500", "step": 500, "size_bytes": 1, "layout": "hf"}}
    {"source": "facts", "facts": {"python": "3.11.4", "prefix": "/opt/env"}}
    {"source": "wandb", "run": {"id": "task-7kq2m9x4td", "entity": "ann", "url": "https://wandb.ai/ann/gpt/runs/task-7…"}}
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from fermi.metrics.facts import FoundFacts, parse_facts
from fermi.metrics.parameters import MAX_NAMES, ParameterValue, flatten_parameters
from fermi.metrics.points import JSON, TEXT, Point, parse_integer, parse_number
from fermi.metrics.tracker_runs import TrackerRun, parse_tracker_run
from fermi.runner.checkpoint_layouts import PART_LAYOUT, WEIGHT_LAYOUTS  # noqa: F401 (for others)
from fermi.schema import sanitize

RESERVED_SOURCES = (JSON, TEXT)
"""Of what a rank prints."""
MEDIA_KINDS = ("image", "text", "table", "histogram")
MAX_NAME_LENGTH, MAX_PATH_LENGTH = 200, 500
MAX_PARTS = 100_000
_IDENTITY = re.compile(r"[0-9a-f]{1,20}-[0-9a-f]{1,20}")
_NUMBERS = re.compile(r"\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?){0,200}")
_SOURCE = re.compile(r"[a-z][a-z0-9_]{0,19}")


@dataclass(frozen=True, slots=True)
class Media:
    """A file with an image, a text, a table or a histogram. `path`: relative to the task's outputs."""

    kind: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """A checkpoint that appeared on a node. `val_loss`: as its own files say; `identity`: the same on all nodes that
    see the same files; `parts`: of what ranks save together, those on this node (`0-3`), if any are missing there, and
    `parts_needed`: how many there are, where the node knows; `best_step`: of the one that the script holds for the
    best."""

    path: str
    step: int | None
    size_bytes: int | None
    layout: str
    val_loss: float | None = None
    identity: str = ""
    parts: str = ""
    parts_needed: int | None = None
    best_step: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """A record. `rank`: of the process that wrote it, where it is not the rank in whose log it is. `parameters`: flat,
    nested names joined with dots. `prompt`, `notice`: as they were written, sanitized."""

    source: str
    step: int | None = None
    time: float | None = None
    rank: int | None = None
    values: Mapping[str, float | None] = field(default_factory=dict)
    parameters: Mapping[str, ParameterValue] = field(default_factory=dict)
    media: Media | None = None
    checkpoint: FoundCheckpoint | None = None
    prompt: Mapping[str, Any] | None = None
    notice: Mapping[str, Any] | None = None
    facts: FoundFacts | None = None
    run: TrackerRun | None = None

    def to_point(self) -> Point | None:
        """Return its values as a point; None if it has none."""
        return Point(self.step, self.values, self.time, self.source) if self.values else None


def parse_record(text: bytes) -> Record | None:
    """Return the record; None if the text is none. Never raises."""
    try:
        found = _parse_json(text)
    except (ValueError, RecursionError):
        return None
    source = found.get("source") if isinstance(found, dict) else None
    if not isinstance(source, str) or not _SOURCE.fullmatch(source) or source in RESERVED_SOURCES:
        return None
    return Record(
        source, parse_integer(found.get("step")), parse_number(found.get("time")),
        parse_integer(found.get("rank")), _parse_values(found.get("values")),
        dict(flatten_parameters(found.get("parameters"))), _parse_media(found.get("media")),
        _parse_checkpoint(found.get("checkpoint")), _parse_object(found.get("prompt")),
        _parse_object(found.get("notice")), parse_facts(found.get("facts")),
        parse_tracker_run(found.get("run")),
    )  # fmt: skip


def _parse_json(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # Python's json writes NaN and Infinity, which orjson does not read
        return json.loads(text)


def _parse_values(found: Any) -> dict[str, float | None]:
    if not isinstance(found, dict):
        return {}
    return {
        _clean(name, MAX_NAME_LENGTH): parse_number(value)
        for name, value in list(found.items())[:MAX_NAMES]
        if name and (value is None or (isinstance(value, int | float) and not isinstance(value, bool)))
    }


def _parse_media(found: Any) -> Media | None:
    if not isinstance(found, dict) or found.get("kind") not in MEDIA_KINDS:
        return None
    name, path = found.get("name"), found.get("path")
    if not isinstance(name, str) or not name or not isinstance(path, str) or not is_output_path(path):
        return None
    return Media(found["kind"], _clean(name, MAX_NAME_LENGTH), path)


def _parse_checkpoint(found: Any) -> FoundCheckpoint | None:
    if not isinstance(found, dict):
        return None
    path, layout = found.get("path"), found.get("layout")
    if not isinstance(path, str) or not 0 < len(path) <= MAX_PATH_LENGTH or path != sanitize.sanitize_text(path):
        return None
    layout = _clean(layout, MAX_NAME_LENGTH) if isinstance(layout, str) else ""
    step, size = parse_integer(found.get("step")), parse_integer(found.get("size_bytes"))
    identity, parts = (one if isinstance(one, str) else "" for one in (found.get("identity"), found.get("parts")))
    return FoundCheckpoint(
        path, step, size, layout, parse_number(found.get("val_loss")),
        identity if _IDENTITY.fullmatch(identity) else "", parts if _NUMBERS.fullmatch(parts) else "",
        parse_integer(found.get("parts_needed")), parse_integer(found.get("best_step")),
    )  # fmt: skip


def parse_numbers(text: str) -> set[int]:
    """Return the numbers in a text such as `0-3,8`, at most MAX_PARTS; none of any other text."""
    found: set[int] = set()
    for part in text.split(",") if _NUMBERS.fullmatch(text) else ():
        first, _, last = part.partition("-")
        found.update(range(int(first), min(int(last or first), int(first) + MAX_PARTS) + 1))
        if len(found) > MAX_PARTS:
            break
    return found


def _parse_object(found: Any) -> Mapping[str, Any] | None:
    return sanitize.sanitize_params(found) if isinstance(found, dict) else None


def is_output_path(path: str) -> bool:
    """Return True for a path that stays within the folder that it is relative to."""
    return (
        0 < len(path) <= MAX_PATH_LENGTH
        and path == sanitize.sanitize_text(path)
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def _clean(text: str, length: int) -> str:
    return sanitize.sanitize_text(text[:length])
