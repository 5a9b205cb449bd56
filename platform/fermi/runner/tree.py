"""A folder as a snapshot of code: its files, their hashes, and its git origin. Standard library only, Python 3.9 or
later.

.gitignore and .fermiignore of each folder name files to leave out; .git always is, and what Jupyter and Python create
next to files (`DEFAULT_RULES`) unless one of these includes it. A file whose stamp (times, size, inode) is the same as
when it was hashed last is not read again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fermi.runner.code import EXECUTABLE_MODE, GENERATED_FOLDERS, PLAIN_MODE, ManifestError, SnapshotFile
from fermi.runner.gitignore import IgnoreRules

IGNORE_FILES = (".gitignore", ".fermiignore")  # the latter has the last word
DEFAULT_RULES = (("", IgnoreRules([f"{name}/" for name in sorted(GENERATED_FOLDERS)])),)
MIB = 1 << 20
MAX_PATCH_LENGTH = 200_000
MIN_AGE_SECONDS = 2.0
"""A file that was changed so shortly before it was hashed may be changed again without a different stamp."""


@dataclass(frozen=True)
class TreeFile:
    """A file or link. `path`: in the snapshot; `where`: on disk; `link`: the target of a link."""

    path: str
    where: Path
    stamp: os.stat_result
    link: str = ""


def list_files(top: Path) -> list[TreeFile]:
    """Return the files in the order of a manifest. Raises ManifestError for what is neither file, folder nor link, and
    OSError."""
    return sorted(_iter_files(top, "", DEFAULT_RULES), key=lambda one: one.path)


_FolderRules = tuple[tuple[str, IgnoreRules], ...]


def _iter_files(folder: Path, inside: str, above: _FolderRules) -> Iterator[TreeFile]:
    rules = (*above, *_read_rules(folder, inside))
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{inside}{entry.name}"
            is_folder = entry.is_dir(follow_symlinks=False)
            if entry.name == ".git" or _is_ignored(f"{path}/" if is_folder else path, rules):
                continue
            if is_folder:
                yield from _iter_files(Path(entry.path), f"{path}/", rules)
            elif entry.is_symlink():
                yield TreeFile(path, Path(entry.path), entry.stat(follow_symlinks=False), os.readlink(entry.path))
            elif entry.is_file(follow_symlinks=False):
                yield TreeFile(path, Path(entry.path), entry.stat(follow_symlinks=False))
            else:
                raise ManifestError("SNAPSHOT_SPECIAL_FILE", path=path)


def _read_rules(folder: Path, inside: str) -> Iterator[tuple[str, IgnoreRules]]:
    lines: list[str] = []
    for name in IGNORE_FILES:
        with suppress(FileNotFoundError, IsADirectoryError):
            text = (folder / name).read_text("utf-8", "surrogateescape")
            lines += text[text.startswith("\ufeff") :].split("\n")
    if lines:
        yield inside, IgnoreRules(lines)


def _is_ignored(path: str, rules: _FolderRules) -> bool:
    """Return True if the path is ignored; the innermost folder with a matching rule decides."""
    for inside, one in reversed(rules):
        if (said := one.says(path[len(inside) :])) is not None:
            return said
    return False


def check_limits(limits: Mapping[str, int], files: Sequence[TreeFile]) -> None:
    """Check the limits before a byte is hashed. Raises ManifestError, which names the largest files."""
    sizes = {one.path: 0 if one.link else one.stamp.st_size for one in files}
    largest = sorted(sizes, key=lambda path: -sizes[path])[:5]
    named = ", ".join(f"{path} ({sizes[path] / MIB:.1f} MiB)" for path in largest)
    total = sum(sizes.values())
    if len(sizes) > limits["files"]:
        raise ManifestError("SNAPSHOT_TOO_MANY_FILES", found=len(sizes), limit=limits["files"])
    if largest and sizes[largest[0]] > limits["fileMb"] * MIB:
        raise ManifestError("SNAPSHOT_FILE_TOO_LARGE", limit=limits["fileMb"], largest=named)
    if total > limits["totalMb"] * MIB:
        raise ManifestError("SNAPSHOT_TOO_LARGE", found=f"{total / MIB:.1f}", limit=limits["totalMb"], largest=named)


def hash_files(top: Path, files: Sequence[TreeFile]) -> Iterator[SnapshotFile]:
    """Yield the files with their hashes."""
    cache = _HashCache(top)
    for one in files:
        if one.link:
            yield SnapshotFile(one.path, link=one.link)
            continue
        sha256, size = cache.hash_file(one)
        mode = EXECUTABLE_MODE if one.stamp.st_mode & stat.S_IXUSR else PLAIN_MODE
        yield SnapshotFile(one.path, mode, size, sha256)
    cache.save()


class _HashCache:
    """Cache of stamps and hashes by path. Losing it costs time only."""

    def __init__(self, top: Path) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        self._path = home / "fermi" / "code" / f"{hashlib.sha256(os.fsencode(top)).hexdigest()[:32]}.json"
        self._known: dict[str, list[Any]] = {}
        self._now: dict[str, list[Any]] = {}
        with suppress(OSError, ValueError):
            known = json.loads(self._path.read_text("utf-8"))
            self._known = known if isinstance(known, dict) else {}

    def hash_file(self, one: TreeFile) -> tuple[str, int]:
        stamp = [one.stamp.st_mtime_ns, one.stamp.st_ctime_ns, one.stamp.st_size, one.stamp.st_ino]
        known = self._known.get(one.path)
        if known and known[:4] == stamp:
            self._now[one.path] = known
            return known[4], one.stamp.st_size
        digest, size = hashlib.sha256(), 0
        with one.where.open("rb") as file:
            while piece := file.read(MIB):
                digest.update(piece)
                size += len(piece)
        if time.time() - one.stamp.st_mtime_ns / 1e9 > MIN_AGE_SECONDS and size == one.stamp.st_size:
            self._now[one.path] = [*stamp, digest.hexdigest()]
        return digest.hexdigest(), size

    def save(self) -> None:
        if self._now == self._known:
            return
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(self._now), "utf-8")
            fresh.replace(self._path)


def read_origin(top: Path) -> tuple[dict[str, Any], str]:
    """Return commit, branch and so on of the folder's git repository, and the patch of local changes; empty without
    one. A folder inside of a repository that tracks none of its files has no origin."""
    commit = _run_git(top, "rev-parse", "HEAD")
    if not commit or not _run_git(top, "ls-files", "--", "."):
        return {}, ""
    patch = _run_git(top, "diff", "HEAD", "--", ".")
    dirty = bool(patch or _run_git(top, "status", "--porcelain", "--", "."))
    url = re.sub(r"(?<=://)[^/@]*@", "", _run_git(top, "remote", "get-url", "origin"))
    branch = _run_git(top, "branch", "--show-current")
    said = {"url": url[:500], "commit": commit, "branch": branch[:200], "dirty": dirty}
    return said, f"{patch}\n"[:MAX_PATCH_LENGTH] if patch else ""


def _run_git(top: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(top), "--no-optional-locks", *words], capture_output=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip()
