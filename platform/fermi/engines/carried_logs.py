"""Files into which the platform itself carries what runners elsewhere print and report, where no folder is shared with
them: <data>/logs/<task>/<attempt>/<rank>.log, and `node-<k>.json` with what the node's runner said last."""

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fermi.engines import logfiles, runner_reports, telemetry_reports
from fermi.jobs.spec import LogChunk, PulseSeen
from fermi.runner.files import TelemetryFile


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
        return runner_reports.read(self.node(node_rank, "json")) or {}

    def pulses(self) -> dict[int, PulseSeen]:
        """As all runners reported them last."""
        found = (runner_reports.read(path) or {} for path in sorted(self.folder.glob("node-*.json")))
        return {rank: seen for one in found for rank, seen in runner_reports.pulses(one.get("pulse")).items()}


class NodeFiles:
    """What is kept of one node, while its lock is held: `node-<k>.json` and its telemetry."""

    def __init__(self, files: Files, node_rank: int) -> None:
        self.files, self.node_rank = files, node_rank
        self.report: dict[str, Any] = files.report(node_rank)
        self._telemetry = TelemetryFile(str(files.node(node_rank, "telemetry.json")))

    def save(self, **more: Any) -> None:
        """Writes the report with these entries."""
        self.report |= more
        path = self.files.node(self.node_rank, "json")
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_text(json.dumps(self.report))
        os.replace(temporary, path)

    def save_silence(self, silence: str) -> bool:
        """Writes why nothing can be heard now, empty where something can; returns whether that is news."""
        changed: bool = self.report.get("silence", "") != silence
        if changed:
            self.save(silence=silence)
        return changed

    def save_telemetry(self, samples: Any) -> None:
        """Keeps what a runner has measured, as far as it has the shape of that."""
        if isinstance(samples, list):
            self._telemetry.save([telemetry_reports.told(one) for one in telemetry_reports.samples(samples)])


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
