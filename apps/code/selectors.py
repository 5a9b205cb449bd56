"""Queries of snapshots. Only members of a project that has a snapshot can see it."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.models import QuerySet

from apps.accounts import access
from apps.accounts.models import User
from apps.code import store
from apps.code.models import Fetch, Snapshot
from apps.common.errors import ApiError
from apps.common.texts import render_text
from fermi.characters import escape_name
from fermi.jobs.snapshot import SnapshotFile

MIN_ID_LENGTH = 8
MAX_SHOWN_BYTES = 1 << 20  # bytes of a file
MAX_DIFF_LENGTH = 200_000  # letters of all differences together
MAX_COMPARED_BYTES = 512 * 1024  # bytes of a file


def list_snapshots(user: User, query: Mapping[str, Any]) -> QuerySet[Snapshot]:
    rows = access.filter_visible(Snapshot.objects.exclude(finished_at=None), user).select_related("created_by")
    if project := query.get("project"):
        rows = rows.filter(project=project)
    if word := query.get("search"):
        rows = rows.filter(digest__startswith=word)
    return rows.order_by("-finished_at")


def get_snapshot(user: User, key: str) -> Snapshot:
    """Return the snapshot by its id or a beginning of it. Raises ApiError 404."""
    rows = list_snapshots(user, {}).filter(digest__startswith=key.lower())[:2] if len(key) >= MIN_ID_LENGTH else []
    found = list(rows)
    if not found or len({one.digest for one in found}) > 1:
        raise ApiError(404, "NOT_FOUND")
    return found[0]


def find_in_project(project_id: str, key: str) -> Snapshot | None:
    """Return the project's snapshot by its id or a beginning of it, or None."""
    if len(key) < MIN_ID_LENGTH:
        return None
    rows = Snapshot.objects.filter(project=project_id, digest__startswith=key.lower()).exclude(finished_at=None)[:2]
    return rows[0] if len(rows) == 1 else None


def serialize_snapshot(row: Snapshot) -> dict[str, Any]:
    return {
        "id": row.digest,
        "projectId": row.project_id,
        "files": row.files,
        "sizeBytes": row.size_bytes,
        "origin": serialize_origin(row.origin),
        "hasPatch": bool(row.patch),
        "createdBy": row.created_by.username,
        "createdAt": row.created_at,
    }


def serialize_origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": origin.get("kind") or "upload",
        "url": origin.get("url") or "",
        "revision": origin.get("revision") or "",
        "commit": origin.get("commit") or "",
        "branch": origin.get("branch") or "",
        "dirty": bool(origin.get("dirty")),
        "environment": origin.get("environment") or "",
        "path": origin.get("path") or "",
    }


def serialize_fetch(row: Fetch) -> dict[str, Any]:
    message, hint = render_text(row.error["code"], row.error) if row.error else ("", "")
    return {
        "id": row.pk,
        "projectId": row.project_id,
        "status": row.status,
        "snapshotId": row.snapshot.digest if row.snapshot else None,
        "error": {"code": row.error["code"], "message": message, "hint": hint} if row.error else None,
        "createdAt": row.created_at,
    }


def list_folder(digest: str, path: str) -> list[dict[str, Any]]:
    """Return what lies directly in a folder, folders first. Raises ApiError 404."""
    inside = f"{path.strip('/')}/" if path.strip("/") else ""
    folders: dict[str, dict[str, Any]] = {}
    leaves = []
    for one in store.list_files(digest):
        if not one.path.startswith(inside):
            continue
        name, slash, _ = one.path[len(inside) :].partition("/")
        if slash:
            made = folders.setdefault(name, _build_entry(name, inside + name, "folder"))
            made["sizeBytes"] += one.size
            made["files"] += 1
        else:
            leaves.append(_build_entry(name, one.path, "link" if one.link else "file", one))
    if inside and not folders and not leaves:
        raise ApiError(404, "NOT_FOUND")
    return [*folders.values(), *leaves]


def _build_entry(name: str, path: str, kind: str, source: SnapshotFile | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "path": path,
        "kind": kind,
        "sizeBytes": source.size if source else 0,
        "files": 1 if source else 0,
        "link": source.link if source else "",
        "executable": bool(source and source.mode & 0o111),
    }


def read_file(digest: str, path: str) -> tuple[SnapshotFile, bytes]:
    """Return a file's entry and content; for a link its target. Raises ApiError 404."""
    one = next((one for one in store.list_files(digest) if one.path == path), None)
    if one is None:
        raise ApiError(404, "NOT_FOUND")
    return one, (one.link.encode() if one.link else store.read_blob(one.sha256))


def serialize_file(digest: str, path: str) -> dict[str, Any]:
    one, content = read_file(digest, path)
    readable = decode_text(content[:MAX_SHOWN_BYTES])
    return {
        "path": one.path,
        "sizeBytes": one.size,
        "sha256": one.sha256,
        "link": one.link,
        "text": readable,
        "cut": readable is not None and len(content) > MAX_SHOWN_BYTES,
    }


def decode_text(content: bytes) -> str | None:
    """Return the content as text, or None if it is not text."""
    if b"\0" in content[:8192]:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:  # cut in the middle of a letter
        return content[: error.start].decode() if len(content) - error.start < 4 else None


def compare_snapshots(before: str, after: str) -> dict[str, Any]:
    """Return the differences between two snapshots, in the order of paths."""
    old = {one.path: one for one in store.list_files(before)}
    new = {one.path: one for one in store.list_files(after)}
    left = MAX_DIFF_LENGTH
    items = []
    for path in sorted(old.keys() | new.keys()):
        if (was := old.get(path)) == (is_now := new.get(path)):
            continue
        change = "added" if was is None else "removed" if is_now is None else "changed"
        said, binary, cut = _compare_file(path, was, is_now, left)
        left -= len(said)
        items.append({"path": path, "change": change, "diff": said, "binary": binary, "cut": cut})
    return {"before": before, "after": after, "items": items}


def _compare_file(
    path: str, before: SnapshotFile | None, after: SnapshotFile | None, max_length: int
) -> tuple[str, bool, bool]:
    """Return the text of the difference, whether there is none because a file is not text, and whether it was cut."""
    if any(one and one.size > MAX_COMPARED_BYTES for one in (before, after)):
        return "", False, True
    texts = [_read_text(before), _read_text(after)]
    if any(one is None for one in texts):
        return "", True, False
    old, new = ((one or "").splitlines(keepends=True) for one in texts)
    shown = escape_name(path)  # a line break in a name would be a line of the difference
    names = ("/dev/null" if before is None else f"a/{shown}", "/dev/null" if after is None else f"b/{shown}")
    said = "".join(_end_lines(_describe_mode_change(before, after), difflib.unified_diff(old, new, *names)))
    return said[: max(max_length, 0)], False, len(said) > max(max_length, 0)


def _describe_mode_change(before: SnapshotFile | None, after: SnapshotFile | None) -> str:
    if before and after and before.mode != after.mode and not (before.link or after.link):
        return f"old mode {before.mode | 0o100000:o}\nnew mode {after.mode | 0o100000:o}\n"
    return ""


def _end_lines(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _read_text(source: SnapshotFile | None) -> str | None:
    if source is None:
        return ""
    return source.link if source.link else decode_text(store.read_blob(source.sha256))
