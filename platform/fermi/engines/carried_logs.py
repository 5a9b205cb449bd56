"""Files into which the platform writes what runners elsewhere print and report, where no folder is shared with them:
<data>/logs/<task>/<attempt>/<rank>.log, and `node-<k>.json` with what the node's runner reported last."""

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fermi.engines import logfiles, runner_reports, telemetry_reports
from fermi.jobs.spec import LogChunk, RankProgress
from fermi.runner.files import TelemetryFile


class AttemptFiles:
    """Files of one attempt."""

    def __init__(self, data_dir: Path, task_id: str, attempt: int | str) -> None:
        self.folder = data_dir / "logs" / task_id / str(attempt)

    def rank(self, rank: int) -> Path:
        """Return the log file of a rank."""
        return self.folder / f"{rank}.log"

    def node(self, node_rank: int, end: str) -> Path:
        """Return a file of a node by the end of its name."""
        return self.folder / f"node-{node_rank}.{end}"

    def chunk(self, rank: int, cursor: int, limit: int) -> LogChunk:
        """Return a part of a rank's log; see `Backend.logs`."""
        return logfiles.read_chunk(self.rank(rank), cursor, limit)

    def report(self, node_rank: int) -> dict[str, Any]:
        """Return the last report of a node; empty: there is none."""
        return runner_reports.read_report(self.node(node_rank, "json")) or {}

    def pulses(self) -> dict[int, RankProgress]:
        """Return the progress of all ranks, as their runners reported it last."""
        found = (runner_reports.read_report(path) or {} for path in sorted(self.folder.glob("node-*.json")))
        return {rank: seen for one in found for rank, seen in runner_reports.parse_pulses(one.get("pulse")).items()}


class NodeFiles:
    """Report and telemetry of one node (`node-<k>.json`), written while its lock is held."""

    def __init__(self, files: AttemptFiles, node_rank: int) -> None:
        self.files, self.node_rank = files, node_rank
        self.report: dict[str, Any] = files.report(node_rank)
        self._telemetry = TelemetryFile(str(files.node(node_rank, "telemetry.json")))

    def save(self, **more: Any) -> None:
        """Write the report with these entries."""
        self.report |= more
        path = self.files.node(self.node_rank, "json")
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
        temporary.write_text(json.dumps(self.report))
        os.replace(temporary, path)

    def save_silence(self, silence: str) -> bool:
        """Write why nothing is received now, empty where something is; return whether that changed."""
        changed: bool = self.report.get("silence", "") != silence
        if changed:
            self.save(silence=silence)
        return changed

    def save_telemetry(self, samples: Any) -> None:
        """Keep the samples of a runner, as far as they have the right shape."""
        if isinstance(samples, list):
            self._telemetry.save(
                [telemetry_reports.serialize_sample(one) for one in telemetry_reports.parse_samples(samples)]
            )


class ReportCache:
    """Report files, read again only when they changed."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._known: dict[str, tuple[int, dict[str, Any]]] = {}

    def get_reports(self, task_id: str, attempt: int, nodes: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the reports of these nodes, by node rank."""
        files = AttemptFiles(self._data_dir, task_id, attempt)
        return {node_rank: self._one(files, node_rank) for node_rank in nodes}

    def stamps(self, task_id: str, attempt: int, nodes: Iterable[int]) -> tuple[int, ...]:
        """Return when each report was written, in nanoseconds; equal values mean that none has changed."""
        files = AttemptFiles(self._data_dir, task_id, attempt)
        return tuple(_read_mtime_ns(str(files.node(node_rank, "json"))) for node_rank in nodes)

    def _one(self, files: AttemptFiles, node_rank: int) -> dict[str, Any]:
        path = str(files.node(node_rank, "json"))
        changed = _read_mtime_ns(path)
        if not changed:
            return {}
        known = self._known.get(path)
        if known is None or known[0] != changed:
            known = self._known[path] = (changed, files.report(node_rank))
            if len(self._known) > 20_000:
                self._known = {path: known}
        return known[1]


def _read_mtime_ns(path: str) -> int:
    """Return when a file was written, in nanoseconds; 0 when it does not exist."""
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
