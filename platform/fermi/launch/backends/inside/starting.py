"""Begins a node's runner inside of an environment, with the task's code where the node does not see the platform's data
directory."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fermi.launch.errors import BackendError
from fermi.launch.inside.session import InsideError, Session

PIECE = 512 << 10
Enter = Callable[[], Session]


def begin(enter: Enter, order: Mapping[str, Any], head: str, secrets: Mapping[str, str], data_dir: Path) -> None:
    """Raises BackendError. What has begun, or was cancelled, is not begun again."""
    with enter() as session:
        if not order["data"]:
            for path in _code(order, data_dir):
                _send(session, path, data_dir)
        session.ask("begin", order=order, head=head, secrets=dict(secrets))


def _code(order: Mapping[str, Any], data_dir: Path) -> Iterator[Path]:
    """The files that carry the task's snapshot. Raises BackendError where they are not below the data directory."""
    code = order["spec"].get("code")
    if not code:
        return
    root = order["root"].rstrip("/") + "/"
    if not code["folder"].startswith(root):
        raise BackendError("INSIDE_CODE_ELSEWHERE", permanent=True, path=code["folder"])
    folder = data_dir / code["folder"].removeprefix(root)
    yield from sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))


def _send(session: Session, path: Path, data_dir: Path) -> None:
    """From where it was cut off the last time."""
    size, where = path.stat().st_size, path.relative_to(data_dir).as_posix()
    have = _have(session.ask("receive", path=where, size=size))
    with path.open("rb") as file:
        while have < size or size == 0:
            file.seek(have)
            before, have = have, _have(session.ask("receive", file.read(PIECE), path=where, size=size, at=have))
            if size == 0:
                return
            if have <= before:
                raise InsideError("INSIDE_SILENT", why=f"{where} is not taken")


def _have(answer: Mapping[str, Any]) -> int:
    have = answer.get("have")
    return have if isinstance(have, int) and have >= 0 else 0
