"""Saves images, tables, histograms and texts that a script logs, as files in the task's output folder. They are taken
as the tracker's objects offer them; nothing is imported to convert them."""

from __future__ import annotations

import io
import json
import os
import re
from typing import Any

from . import records

MAX_FILE_BYTES = 1 << 20
MAX_FILES_PER_NAME = 200
MAX_NAMES = 200
MAX_NAME_LENGTH = 80
MAX_PER_CALL = 8
"""Images of one call under one name."""
MAX_ROWS, MAX_COLUMNS, MAX_CELL_LENGTH = 1000, 50, 1000

_OTHER = re.compile(r"[^\w.-]+")
_saved: dict[tuple[str, str], int] = {}
_newest: dict[tuple[str, str], tuple[int, int]] = {}
"""By kind and name: the step and the content's hash of what was saved last. A framework gives all of its trackers the
same."""


def save_media(source: str, kind: str, name: str, step: int, content: bytes, suffix: str) -> None:
    """Write a file and record it. Too large and too many files are left out, and so is everything if the task has no
    output folder. Raises OSError."""
    folder = records.media_folder()
    count = _saved.get((source, name), 0)
    if not folder or len(content) > MAX_FILE_BYTES or count >= MAX_FILES_PER_NAME:
        return
    if not count and len(_saved) >= MAX_NAMES:
        return
    mark = (step, hash(content))
    if _newest.get((kind, name)) == mark:
        return
    _newest[kind, name] = mark
    _saved[source, name] = count + 1
    own = os.path.join(folder, (_OTHER.sub("_", name).strip("._") or "unnamed")[:MAX_NAME_LENGTH])
    os.makedirs(own, exist_ok=True)
    place = "-".join(os.environ.get(variable, "0") for variable in ("FERMI_ATTEMPT", "RANK"))
    path = os.path.join(own, f"{step:08d}-{place}-{count}{suffix}")
    with open(f"{path}.partial", "wb") as file:
        file.write(content)
    os.replace(f"{path}.partial", path)
    shown = os.path.relpath(path, os.path.dirname(folder))
    records.add_record({"source": source, "step": step, "media": {"kind": kind, "name": name, "path": shown}})


def save_text(source: str, name: str, step: int, text: str) -> None:
    """Save a text, its beginning if it is too long."""
    save_media(source, "text", name, step, text[:MAX_FILE_BYTES].encode()[:MAX_FILE_BYTES], ".txt")


def save_table(source: str, name: str, step: int, columns: Any, rows: Any) -> None:
    """Save a table as JSON: `columns`, and the first `rows` as texts and numbers."""
    found = [[_to_cell(cell) for cell in list(row)[:MAX_COLUMNS]] for row in list(rows)[:MAX_ROWS]]
    content = {"columns": [str(one)[:MAX_CELL_LENGTH] for one in list(columns)[:MAX_COLUMNS]], "rows": found}
    save_media(source, "table", name, step, json.dumps(content).encode(), ".json")


def save_histogram(source: str, name: str, step: int, edges: Any, counts: Any) -> None:
    """Save a histogram as JSON: `edges`, one more than `counts`."""
    content = {"edges": [float(one) for one in edges], "counts": [float(one) for one in counts]}
    save_media(source, "histogram", name, step, json.dumps(content).encode(), ".json")


def save_image_file(source: str, name: str, step: int, path: str) -> None:
    """Save a copy of an image that a tracker has written. Raises OSError."""
    if os.stat(path).st_size <= MAX_FILE_BYTES:
        with open(path, "rb") as file:
            save_media(source, "image", name, step, file.read(), os.path.splitext(path)[1].lower() or ".png")


def encode_image(image: Any) -> bytes | None:
    """Return an image of Pillow's as PNG, or None for another object."""
    if not (hasattr(image, "save") and hasattr(image, "mode") and hasattr(image, "size")):
        return None
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _to_cell(cell: Any) -> str | int | float | bool | None:
    return cell if cell is None or isinstance(cell, (bool, int, float)) else str(cell)[:MAX_CELL_LENGTH]
