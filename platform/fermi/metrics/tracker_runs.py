"""Runs of experiment trackers, as the records of ranks name them (`fermi.probe.wandb_runs`). Pure. A rank can write
anything there: what does not fit is left out."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from fermi.schema import sanitize

MAX_NAME_LENGTH, MAX_PROJECT_LENGTH, MAX_URL_LENGTH, MAX_FOLDER_LENGTH = 200, 128, 500, 250
_ID = re.compile(r"[^\s/\\#?%:]{1,128}")
_URL = re.compile(r"https?://[!-~]+")


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """A run of a tracker. `url`: its page, empty where there is none; `folder`: with its files, relative to the task's
    outputs; `is_offline`: no server knows of it yet."""

    id: str
    entity: str = ""
    project: str = ""
    name: str = ""
    url: str = ""
    folder: str = ""
    is_offline: bool = False


def parse_tracker_run(found: Any) -> TrackerRun | None:
    """Return the run of a record; None if it has none, or none with an id."""
    if not isinstance(found, dict) or not isinstance(key := found.get("id"), str):
        return None
    if not _ID.fullmatch(key) or key != sanitize.sanitize_text(key):
        return None
    folder = found.get("folder")
    return TrackerRun(
        key, _clean(found.get("entity")), _clean(found.get("project"), MAX_PROJECT_LENGTH),
        _clean(found.get("name")), parse_url(found.get("url")),
        folder if isinstance(folder, str) and is_folder(folder) else "", found.get("offline") is True,
    )  # fmt: skip


def parse_url(found: Any) -> str:
    """Return an address of a web page; empty if it is none, or has a user or a password in it."""
    if not isinstance(found, str) or len(found) > MAX_URL_LENGTH or not _URL.fullmatch(found):
        return ""
    try:
        parts = urlsplit(found)
        return found if parts.hostname and "@" not in parts.netloc else ""
    except ValueError:
        return ""


def is_folder(path: str) -> bool:
    """Return True for the path of a folder that stays within the one that it is relative to."""
    parts = PurePosixPath(path).parts
    return (
        0 < len(path) <= MAX_FOLDER_LENGTH
        and path == sanitize.sanitize_text(path) == "/".join(parts)
        and not {"..", "/"}.intersection(parts)
    )


def _clean(found: Any, length: int = MAX_NAME_LENGTH) -> str:
    return sanitize.sanitize_text(found[:length]) if isinstance(found, str) else ""
