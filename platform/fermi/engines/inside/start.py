"""Start a node's runner inside of an environment; where the node does not see the platform's data directory, after its
files were sent there (`upload`), and before that what it may still have of an older attempt was downloaded."""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fermi.engines.inside import upload
from fermi.engines.inside.download import NodeDownload, TransferLimits, build_record_path
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.engines.inside.upload import UploadFile
from fermi.jobs.errors import BackendError

PIECE_BYTES = 512 << 10
BUDGET_SECONDS = 10.0
"""Time for sending files in one call; the next one continues."""
OpenSession = Callable[[], InsideSession]


def start_node(
    enter: OpenSession, order: Mapping[str, Any], head: str, secrets: Mapping[str, str], data_dir: Path,
    seconds: float = BUDGET_SECONDS,
) -> None:  # fmt: skip
    """Start a node; what was started, or was cancelled, is not started again. Raise BackendError, `INSIDE_FILES_COMING`
    where sending files takes more than `seconds` (call again)."""
    with enter() as session:
        if not order["data"]:
            for path in _list_code_files(order, data_dir):
                _send_code_file(session, path, data_dir)
            _upload_files(session, order, data_dir, time.monotonic() + seconds)
        session.request("begin", order=order, head=head, secrets=dict(secrets))


def download_leftovers(
    enter: OpenSession,
    attempt: str,
    node_rank: int,
    data_dir: Path,
    limits: TransferLimits,
    seconds: float = BUDGET_SECONDS,
) -> None:
    """Download what an environment has of older attempts of the task, before this one starts there: their streams may
    have been cut for good. Raise BackendError, `INSIDE_FILES_COMING` as `start_node` does."""
    limit = time.monotonic() + seconds
    build_record_path(data_dir, attempt, node_rank).parent.mkdir(parents=True, exist_ok=True)
    with enter() as session:
        listed = session.request("list", of=attempt)
        arriving = NodeDownload(data_dir, attempt, node_rank, limits)
        try:
            arriving.process_list({"files": listed.get("rows"), "more": listed.get("more"), "final": True})
            arriving.request_files(session.send)
            if arriving.is_idle:
                return
            for said, data in session.messages():
                arriving.answer(said.get("id"), said, data)
                arriving.request_files(session.send)
                if arriving.is_done:
                    return
                if time.monotonic() > limit:
                    raise InsideError("INSIDE_FILES_COMING", percent=arriving.percent)
        except OSError as error:
            raise InsideError("INSIDE_SILENT", why=error.strerror or str(error)) from error
        finally:
            arriving.cut()
    raise InsideError("INSIDE_SILENT", why="the stream ended")


def _list_code_files(order: Mapping[str, Any], data_dir: Path) -> Iterator[Path]:
    """Yield the files that carry the task's snapshot. Raise BackendError where they are not below the data
    directory."""
    code = order["spec"].get("code")
    if not code:
        return
    root = order["root"].rstrip("/") + "/"
    if not code["folder"].startswith(root):
        raise BackendError("INSIDE_CODE_ELSEWHERE", permanent=True, path=code["folder"])
    folder = data_dir / code["folder"].removeprefix(root)
    yield from sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _send_code_file(session: InsideSession, path: Path, data_dir: Path) -> None:
    """Send a file from the position where it was cut off the last time."""
    size, where = path.stat().st_size, path.relative_to(data_dir).as_posix()
    have = _parse_received(session.request("receive", path=where, size=size))
    with path.open("rb") as file:
        while have < size or size == 0:
            file.seek(have)
            before, have = (
                have,
                _parse_received(session.request("receive", file.read(PIECE_BYTES), path=where, size=size, at=have)),
            )
            if size == 0:
                return
            if have <= before:
                raise InsideError("INSIDE_SILENT", why=f"{where} is not taken")


def _upload_files(session: InsideSession, order: Mapping[str, Any], data_dir: Path, limit: float) -> None:
    """Send the task's files that the environment lacks, until `limit` (monotonic seconds)."""
    found = upload.list_upload_files(order, data_dir)
    rows = [[item.path, item.entry.size, item.entry.mtime_ns] for item in found]
    said = session.request("expect", of=order["name"], node=order["spec"]["node_rank"], files=rows)
    numbers = said.get("missing")
    known = numbers if isinstance(numbers, list) else []
    missing = [found[at] for at in known if isinstance(at, int) and 0 <= at < len(found)]
    whole = upload.sum_file_sizes(found)
    here = whole - upload.sum_file_sizes(missing)
    for item in missing:
        for there in _send_pieces(session, item):
            if time.monotonic() > limit:
                raise InsideError("INSIDE_FILES_COMING", percent=100 * (here + there) // max(whole, 1))
        here += item.entry.size


def _send_pieces(session: InsideSession, item: UploadFile) -> Iterator[int]:
    """Send a file from the position where it was cut off; yield after each piece how many bytes are there. Raise
    BackendError where it has changed meanwhile, or is refused."""
    size, mtime = item.entry.size, item.entry.mtime_ns
    about: dict[str, Any] = {"path": item.path, "size": size, "mtime": mtime}
    try:
        file = item.tree.open(item.entry.path)
    except OSError as error:
        raise InsideError("INSIDE_SILENT", why=f"{item.path}: {error.strerror or error}") from error
    with file:
        have, digest = _parse_received(session.request("receive", **about)), hashlib.sha256()
        for at in range(0, have, PIECE_BYTES):
            digest.update(file.read(min(PIECE_BYTES, have - at)))
        while have < size or size == 0:
            data = file.read(PIECE_BYTES)
            digest.update(data)
            last: dict[str, Any] = {"sha256": digest.hexdigest()} if have + len(data) >= size else {}
            before, have = have, _parse_received(session.request("receive", data, **about, at=have, **last))
            yield have
            if size == 0:
                return
            if have <= before:
                raise InsideError("INSIDE_SILENT", why=f"{item.path} is not taken")


def _parse_received(answer: Mapping[str, Any]) -> int:
    have = answer.get("have")
    return have if isinstance(have, int) and have >= 0 else 0
