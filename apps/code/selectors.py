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
from apps.common.texts import text
from fermi.characters import escape_name
from fermi.jobs.snapshot import File

SHORTEST_ID = 8
MOST_SHOWN = 1 << 20  # bytes of a file
MOST_DIFF = 200_000  # letters of all differences together
LONGEST_COMPARED = 512 * 1024  # bytes of a file


def snapshots(user: User, query: Mapping[str, Any]) -> QuerySet[Snapshot]:
    rows = access.visible(Snapshot.objects.exclude(finished_at=None), user).select_related("created_by")
    if project := query.get("project"):
        rows = rows.filter(project=project)
    if word := query.get("search"):
        rows = rows.filter(digest__startswith=word)
    return rows.order_by("-finished_at")


def find(user: User, key: str) -> Snapshot:
    """Return the snapshot by its id or a beginning of it. Raises ApiError 404."""
    rows = snapshots(user, {}).filter(digest__startswith=key.lower())[:2] if len(key) >= SHORTEST_ID else []
    found = list(rows)
    if not found or len({one.digest for one in found}) > 1:
        raise ApiError(404, "NOT_FOUND")
    return found[0]


def in_project(project_id: str, key: str) -> Snapshot | None:
    """Return the project's snapshot by its id or a beginning of it, or None."""
    if len(key) < SHORTEST_ID:
        return None
    rows = Snapshot.objects.filter(project=project_id, digest__startswith=key.lower()).exclude(finished_at=None)[:2]
    return rows[0] if len(rows) == 1 else None


def shown(row: Snapshot) -> dict[str, Any]:
    return {
        "id": row.digest,
        "projectId": row.project_id,
        "files": row.files,
        "sizeBytes": row.size_bytes,
        "origin": origin_shown(row.origin),
        "hasPatch": bool(row.patch),
        "createdBy": row.created_by.username,
        "createdAt": row.created_at,
    }


def origin_shown(origin: Mapping[str, Any]) -> dict[str, Any]:
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


def fetch_shown(row: Fetch) -> dict[str, Any]:
    message, hint = text(row.error["code"], row.error) if row.error else ("", "")
    return {
        "id": row.pk,
        "projectId": row.project_id,
        "status": row.status,
        "snapshotId": row.snapshot.digest if row.snapshot else None,
        "error": {"code": row.error["code"], "message": message, "hint": hint} if row.error else None,
        "createdAt": row.created_at,
    }


def tree(digest: str, path: str) -> list[dict[str, Any]]:
    """Return what lies directly in a folder, folders first. Raises ApiError 404."""
    inside = f"{path.strip('/')}/" if path.strip("/") else ""
    folders: dict[str, dict[str, Any]] = {}
    leaves = []
    for one in store.files(digest):
        if not one.path.startswith(inside):
            continue
        name, slash, _ = one.path[len(inside) :].partition("/")
        if slash:
            made = folders.setdefault(name, _entry(name, inside + name, "folder"))
            made["sizeBytes"] += one.size
            made["files"] += 1
        else:
            leaves.append(_entry(name, one.path, "link" if one.link else "file", one))
    if inside and not folders and not leaves:
        raise ApiError(404, "NOT_FOUND")
    return [*folders.values(), *leaves]


def _entry(name: str, path: str, kind: str, of: File | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "path": path,
        "kind": kind,
        "sizeBytes": of.size if of else 0,
        "files": 1 if of else 0,
        "link": of.link if of else "",
        "executable": bool(of and of.mode & 0o111),
    }


def file(digest: str, path: str) -> tuple[File, bytes]:
    """Return a file's entry and content; for a link its target. Raises ApiError 404."""
    one = next((one for one in store.files(digest) if one.path == path), None)
    if one is None:
        raise ApiError(404, "NOT_FOUND")
    return one, (one.link.encode() if one.link else store.read_blob(one.sha256))


def file_shown(digest: str, path: str) -> dict[str, Any]:
    one, content = file(digest, path)
    readable = as_text(content[:MOST_SHOWN])
    return {
        "path": one.path,
        "sizeBytes": one.size,
        "sha256": one.sha256,
        "link": one.link,
        "text": readable,
        "cut": readable is not None and len(content) > MOST_SHOWN,
    }


def as_text(content: bytes) -> str | None:
    """Return the content as text, or None if it is not text."""
    if b"\0" in content[:8192]:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError as error:  # cut in the middle of a letter
        return content[: error.start].decode() if len(content) - error.start < 4 else None


def diff(before: str, after: str) -> dict[str, Any]:
    """Return the differences between two snapshots, in the order of paths."""
    old = {one.path: one for one in store.files(before)}
    new = {one.path: one for one in store.files(after)}
    left = MOST_DIFF
    items = []
    for path in sorted(old.keys() | new.keys()):
        if (was := old.get(path)) == (is_now := new.get(path)):
            continue
        change = "added" if was is None else "removed" if is_now is None else "changed"
        said, binary, cut = _difference(path, was, is_now, left)
        left -= len(said)
        items.append({"path": path, "change": change, "diff": said, "binary": binary, "cut": cut})
    return {"before": before, "after": after, "items": items}


def _difference(path: str, was: File | None, now: File | None, most: int) -> tuple[str, bool, bool]:
    """Return the text of the difference, whether there is none because a file is not text, and whether it was cut."""
    if any(one and one.size > LONGEST_COMPARED for one in (was, now)):
        return "", False, True
    texts = [_text(was), _text(now)]
    if any(one is None for one in texts):
        return "", True, False
    old, new = ((one or "").splitlines(keepends=True) for one in texts)
    shown = escape_name(path)  # a line break in a name would be a line of the difference
    names = ("/dev/null" if was is None else f"a/{shown}", "/dev/null" if now is None else f"b/{shown}")
    said = "".join(_lines(_mode(was, now), difflib.unified_diff(old, new, *names)))
    return said[: max(most, 0)], False, len(said) > max(most, 0)


def _mode(was: File | None, now: File | None) -> str:
    if was and now and was.mode != now.mode and not (was.link or now.link):
        return f"old mode {was.mode | 0o100000:o}\nnew mode {now.mode | 0o100000:o}\n"
    return ""


def _lines(first: str, lines: Iterator[str]) -> Iterator[str]:
    yield first
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _text(one: File | None) -> str | None:
    if one is None:
        return ""
    return one.link if one.link else as_text(store.read_blob(one.sha256))
