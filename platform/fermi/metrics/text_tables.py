"""Parses tables whose header comes once, and blocks of names and values.

epoch     train_loss  valid_loss  accuracy  time          fastai, CSV, Markdown, YOLO: a header, then rows
0         0.5         0.6         0.9       00:12

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


@dataclass(slots=True)
class Row:
    """What a row or a block says: its counters as (kind, position, total), and its values."""

    key: str
    counters: list[tuple[int, int, int]]
    values: dict[str, float | None]
    strong: bool
    template: str
    units: dict[str, str] = field(default_factory=dict)


def split_cells(text: str) -> tuple[list[str], bool]:
    """Return the cells of a line, and whether a character or wide space separates them."""
    stripped = text.strip()
    if "|" in stripped:
        return [cell.strip() for cell in stripped.strip("|").split("|")], True
    if _WIDE.search(stripped):
        return stripped.split(), True
    if "," in stripped:
        return [cell.strip() for cell in stripped.split(",")], True
    return stripped.split(), False


def parse_header(text: str) -> dict[str, Any] | None:
    """Return the state of the table that the line begins; None if it is no header. A header has no numbers, a column
    that counts (or a first column `Class`, whose row `all` counts with the last line of a curve) and a measure."""
    if len(text) > 400 or text_lines.has_numbers(text) or ":" in text.rstrip(": ") or "=" in text:
        return None
    cells, wide = split_cells(text.rstrip(": "))
    if wide and "|" not in text and len(set(cells)) < len(cells):  # Step      Train loss    Test loss (DeepXDE)
        cells = _WIDE.split(text.strip(" :"))
        text = "|".join(cells)
    if not 2 <= len(cells) <= MAX_COLUMNS or not all(cells) or any(" " in cell and "|" not in text for cell in cells):
        return None
    kinds = [text_lines.get_counter_kind(cell) for cell in cells]
    at = next((index for index, kind in enumerate(kinds) if kind is not None), -1)
    names = [text_lines.make_column_name(cell) for cell in cells]
    if not any(text_lines.is_measure(name) for name in names) or (at > 0 and not wide):
        return None
    if at < 0 and not (wide and cells[0].lower() == "class" and len(cells) > 2):
        return None
    return {"names": names, "at": at, "kind": kinds[at] if at >= 0 else EPOCH, "misses": 0}


def parse_row(table: dict[str, Any], text: str, position: tuple[int, int] | None) -> Row | None:
    """Return the row of the table; None if the line is none. `position`: of the bar behind it, if there is one."""
    cells, _ = split_cells(text)
    names: Sequence[str] = table["names"]
    if len(cells) != len(names):
        return None
    counters, values, units = [], {}, {}
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
