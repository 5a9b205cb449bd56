"""Files into which the platform itself carries what runners elsewhere print and report, where no folder is shared with
them: <data>/logs/<task>/<attempt>/<rank>.log, and `node-<k>.json` with what the node's runner said last."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fermi.launch.backends import logfiles, reported
from fermi.launch.spec import LogChunk, PulseSeen


class Files:
    """The files of one attempt."""

    def __init__(self, data_dir: Path, task_id: str, attempt: int | str) -> None:
        self.folder = data_dir / "logs" / task_id / str(attempt)

    def rank(self, rank: int) -> Path:
        return self.folder / f"{rank}.log"

    def node(self, node_rank: int, end: str) -> Path:
        return self.folder / f"node-{node_rank}.{end}"

    def chunk(self, rank: int, cursor: int, limit: int) -> LogChunk:
        return logfiles.chunk(self.rank(rank), cursor, limit)

    def report(self, node_rank: int) -> dict[str, Any]:
        return reported.read(self.node(node_rank, "json")) or {}

    def pulses(self) -> dict[int, PulseSeen]:
        """As all runners reported them last."""
        found = (reported.read(path) or {} for path in sorted(self.folder.glob("node-*.json")))
        return {rank: seen for one in found for rank, seen in reported.pulses(one.get("pulse")).items()}


class Reports:
    """The report files, read again only when they changed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    def of(self, task_id: str, attempt: int, nodes: Iterable[int]) -> dict[int, dict[str, Any]]:
        files = Files(self._data_dir, task_id, attempt)
        return {node_rank: self._one(files, node_rank) for node_rank in nodes}

    def stamps(self, task_id: str, attempt: int, nodes: Iterable[int]) -> tuple[int, ...]:
        """When each report was written; equal ones mean that none has changed."""
        files = Files(self._data_dir, task_id, attempt)
        return tuple(_written(str(files.node(node_rank, "json"))) for node_rank in nodes)

    def _one(self, files: Files, node_rank: int) -> dict[str, Any]:
        path = str(files.node(node_rank, "json"))
        changed = _written(path)
        if not changed:
            return {}
        known = self._known.get(path)
        if known is None or known[0] != changed:
            known = self._known[path] = (changed, files.report(node_rank))
            if len(self._known) > 20_000:
                self._known = {path: known}
        return known[1]


def _written(path: str) -> int:
    """Nanoseconds; 0 when it is not there."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
