"""Parses tables whose header comes once, and blocks of names and values.

epoch     train_loss  valid_loss  accuracy  time          fastai, CSV, Markdown, YOLO: a header, then rows
0         0.5         0.6         0.9       00:12

Step      Train loss              Test loss             spaCy, DeepXDE, scikit-learn: columns of several words,
0         [2.72e-01, 1.1e+00]     [2.34e-01, 9.0e-01]   cells of several numbers

| rollout/           |      |                             Stable-Baselines3 (`common/logger.py`): a block of two
|    ep_rew_mean     | 21.3 |                             columns between lines of dashes
| time/              |      |
|    total_timesteps | 2048 |
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fermi.metrics import text_lines
from fermi.metrics.text_lines import EPOCH, STEP

MAX_COLUMNS = 24
MAX_BLOCK_VALUES = 40
MAX_MISSES = 50
"""Lines that begin like rows and are none, after which a table has ended."""
_WIDE = re.compile(r"\s{2,}|\t")
_DASHES = re.compile(r"[-=+|: ]*$")
_BRACKETS = re.compile(r"\[([^\[\]]{1,300})\]$")


@dataclass(slots=True)
class Row:
    """What a row or a block says: its counters as (kind, position, total), and its values."""

    key: str
    counters: list[tuple[int, int, int]]
    values: dict[str, float | None]
    strong: bool
    template: str
    units: dict[str, str] = field(default_factory=dict)


def split_cells(text: str, of_words: bool = False) -> tuple[list[str], bool]:
    """Return the cells of a line, and whether a character or wide space separates them. `of_words`: single spaces are
    part of a cell where wide ones separate."""
    stripped = text.strip()
    if "|" in stripped:
        return [cell.strip() for cell in stripped.strip("|").split("|")], True
    if _WIDE.search(stripped):
        return (_WIDE.split(stripped) if of_words else stripped.split()), True
    if "," in stripped:
        return [cell.strip() for cell in stripped.split(",")], True
    return stripped.split(), False


def parse_header(text: str) -> dict[str, Any] | None:
    """Return the state of the table that the line begins; None if it is no header. A header has no numbers, a column
    that counts (or a first column `Class`, whose row `all` counts with the last line of a curve) and a measure."""
    if len(text) > 400 or text_lines.has_numbers(text) or ":" in text.rstrip(": ") or "=" in text:
        return None
    of_words = "|" not in text and _WIDE.search(text.strip()) is not None
    return (_parse_header(text, True) if of_words else None) or _parse_header(text, False)


def _parse_header(text: str, of_words: bool) -> dict[str, Any] | None:
    cells, wide = split_cells(text.rstrip(": "), of_words)
    if not 2 + of_words <= len(cells) <= MAX_COLUMNS or not all(cells):
        return None
    if any(" " in cell for cell in cells) and "|" not in text and not of_words:
        return None
    kinds = [text_lines.get_counter_kind(cell) for cell in cells]
    names = [text_lines.make_column_name(cell) for cell in cells]
    if cells[:2] == ["E", "#"]:  # spaCy's epoch and step (`training/loggers.py`)
        kinds[:2], names[0] = [None, STEP], ""
    at = next((index for index, kind in enumerate(kinds) if kind is not None), -1)
    if not any(text_lines.is_measure(name) for name in names) or (at > 0 and not wide):
        return None
    if at < 0 and not (wide and cells[0].lower() == "class" and len(cells) > 2):
        return None
    table = {"names": names, "at": at, "kind": kinds[at] if at >= 0 else EPOCH, "misses": 0}
    return table | {"words": 1} if any(" " in cell for cell in cells) and "|" not in text else table


def parse_row(table: dict[str, Any], text: str, position: tuple[int, int] | None) -> Row | None:
    """Return the row of the table; None if the line is none. `position`: of the bar behind it, if there is one."""
    cells, _ = split_cells(text, of_words="words" in table)
    names: Sequence[str] = table["names"]
    if len(cells) != len(names):
        return None
    values: dict[str, float | None] = {}
    counters, units = [], {}
    for index, (name, cell) in enumerate(zip(names, cells, strict=True)):
        if index == table["at"]:
            place = text_lines.parse_position(cell)
            if place is None:
                return None
            counters.append((int(table["kind"]), *place))
            continue
        if table["at"] < 0 and index == 0:
            if cell != "all":
                return None
            continue
        if cell.startswith("[") and (inner := _BRACKETS.match(cell)):
            parts = inner[1].split(",")
            if len(parts) > 1 and text_lines.is_measure_column(name):
                _add_parts(values, name, parts)
                continue
            cell = inner[1].strip()
        found = text_lines.parse_cell(cell, name)
        if found is None:
            if cell and not text_lines.is_duration(cell):
                return None
            continue
        if text_lines.is_measure_column(name):
            values[name], units[name] = found
    if position and counters and counters[0][0] == EPOCH:
        counters.append((text_lines.BATCH, *position))
    template = " ".join(f"{name}={{{name}}}" for name in names)
    return Row(_make_key("table", names), counters, values, True, template, units) if values else None


def _add_parts(values: dict[str, float | None], name: str, parts: Sequence[str]) -> None:
    """Add the numbers of one cell: `train_loss_1`, `train_loss_2`, …"""
    for number, part in enumerate(parts, 1):
        found = text_lines.parse_cell(part.strip(), name)
        if found is not None and len(values) < MAX_BLOCK_VALUES:
            values[f"{name}_{number}"] = found[0]


def add_to_block(block: dict[str, Any], text: str) -> bool:
    """Add a line `| name | value |` to the block; return False if it is none."""
    cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
    if len(cells) != 2 or not cells[0] or " " in cells[0]:
        return False
    name, value = cells
    if not value:
        block["section"] = name if name.endswith("/") else ""
        return True
    number = text_lines.parse_cell(value)
    if number is not None and len(block.setdefault("values", {})) < MAX_BLOCK_VALUES:
        section = block.get("section", "") if "/" not in name else ""
        block["values"][(section + name).lower()[: text_lines.MAX_NAME_LENGTH]] = number[0]
    return True


def is_rule(text: str) -> bool:
    """Return True if the line is drawn of dashes."""
    return bool(_DASHES.match(text))


def parse_block(block: Mapping[str, Any]) -> Row | None:
    """Return what the block says; None if nothing in it counts."""
    counters, values = [], {}
    for name, value in block.get("values", {}).items():
        kind = text_lines.get_counter_kind(name.rpartition("/")[2].replace("total_", "").replace("n_", ""))
        if kind is not None and value is not None and value == int(value) and value >= 0:
            counters.append((kind, int(value), 0))
        elif text_lines.is_measure_column(name.rpartition("/")[2]):
            values[name] = value
    if not counters or not values:
        return None
    strong = any(text_lines.is_measure(name) for name in values)
    kinds = ",".join(str(kind) for kind, *_ in counters if kind >= STEP) or "other"
    template = " ".join(f"{name}={{{name}}}" for name in values)
    return Row(_make_key("block", [kinds]), counters, values, strong, template)


def _make_key(kind: str, names: Sequence[str]) -> str:
    return hashlib.blake2b("\x00".join((kind, *names)).encode("utf-8", "replace"), digest_size=5).hexdigest()
