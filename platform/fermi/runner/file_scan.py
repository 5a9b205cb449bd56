"""Looks every few seconds for checkpoints and metrics in the files that the ranks write. Standard library only, Python
3.9 or later.

All of it happens in one thread: a network file system may block, and must not block the runner. The node's runner
fetches what was found (`pop_records`), and puts it into the log of its first rank.

One runner of an attempt looks: that of rank 0, which sees the task's folders wherever they are shared. Ranks of other
nodes save there, too, or on disks of their own, from where no other node could resume.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from fermi.runner.checkpoint_scan import CheckpointScan
from fermi.runner.folder_walk import FolderWalk, list_skipped_paths
from fermi.runner.metric_files import MetricScan

PERIOD_SECONDS = 2.0
REST_FACTOR = 20
"""After a scan that took long the next one is so many times as long away."""
MAX_PERIOD_SECONDS = 60.0
SETTLE_SECONDS = 0.25
"""After a scan that has seen something new: scripts that save every second would never have left it for a whole
period."""
FINISH_SECONDS = 5.0
MAX_WAITING = 2000
"""Records that have not been fetched yet; while there are more, files are not read on."""


class FileScan:
    """The thread. `cwd`: the folder that ranks start in, unless other tasks' ranks do, too; `began_at`: when the ranks
    were started, in unix seconds."""

    def __init__(self, cwd: str | None, env: Mapping[str, str], began_at: float) -> None:
        roots = [env.get("FERMI_CHECKPOINT_DIR", ""), env.get("FERMI_OUTPUT_DIR", ""), cwd or ""]
        self.walk = FolderWalk(roots, list_skipped_paths(env))
        self.checkpoints, self.metrics = CheckpointScan(self.walk, began_at), MetricScan(self.walk, began_at)
        self._records: deque[dict[str, Any]] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="file scan", daemon=True)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], began_at: float) -> FileScan | None:
        """Return the scan of a node, if it has rank 0 and its ranks are watched; else None."""
        if not spec.get("pulse") or not any(rank["rank"] == 0 for rank in spec["ranks"]):
            return None
        own = "code" in spec or spec.get("own_cwd")
        return cls(spec["cwd"] if own else None, spec["env"], began_at)

    def start(self) -> None:
        """Start to look. Call it once the ranks run: they are forked from this process."""
        self._thread.start()

    def record_step(self, step: int | None) -> None:
        """Record how many optimizer steps the probe has counted by now."""
        if step:
            self.checkpoints.steps.add(time.time(), step)

    def pop_records(self) -> list[dict[str, Any]]:
        """Return what was found since the last call."""
        found = []
        with contextlib.suppress(IndexError):
            while True:
                found.append(self._records.popleft())
        return found

    def finish(self) -> list[dict[str, Any]]:
        """Look a last time, now that no rank is left, and return what was found. A file system that blocks is waited
        for FINISH_SECONDS."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(FINISH_SECONDS)
        return self.pop_records()

    def scan(self, *, last: bool = False, again: bool = False) -> None:
        """Look once. `again`: shortly after the scan before."""
        if len(self._records) >= MAX_WAITING and not last:
            return
        listing = self.walk.list_all()
        self._records.extend(self.metrics.read_new(listing))
        self._records.extend(self.checkpoints.find_new(listing, last=last, again=again))

    def _run(self) -> None:
        while True:
            last, began = self._ending.is_set(), time.monotonic()
            try:
                self.scan(last=last)
                if not last and self.checkpoints.is_unsettled:
                    self._ending.wait(SETTLE_SECONDS)
                    self.scan(again=True)
            except Exception as error:  # what cannot be read ends no training
                print(f"fermi: files are not looked at any more: {error!r}", flush=True)
                return
            if last:
                return
            took = time.monotonic() - began
            self._ending.wait(max(PERIOD_SECONDS, min(REST_FACTOR * took, MAX_PERIOD_SECONDS)))
