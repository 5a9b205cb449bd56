"""Looks every few seconds for checkpoints and metrics in the files that the ranks write. Standard library only, Python
3.9 or later.

All of it happens in one thread: a network file system may block, and must not block the runner. The node's runner
fetches what was found (`pop_records`), and puts it into the log of its first rank.

The runner of rank 0 looks for everything: it sees the task's folders wherever they are shared. Where that is not
certain (`own_files` of the spec), one runner of each other node looks as well, seldom, and for checkpoints alone: what
its ranks save may be on a disk of its own. Of shared folders all report the same (`identity`).
"""

from __future__ import annotations

import contextlib
import os
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
OTHER_PERIOD_SECONDS, OTHER_REST_FACTOR = 10.0, 200
"""The same of nodes without rank 0: of many that see one file system, each looks for 0.5 % of the time at most."""
SETTLE_SECONDS = 0.25
"""After a scan that has seen something new: scripts that save every second would never have left it for a whole
period."""
FINISH_SECONDS = 5.0
MAX_WAITING = 2000
"""Records that have not been fetched yet; while there are more, files are not read on."""


class FileScan:
    """The thread. `cwd`: the folder that ranks start in, unless other tasks' ranks do, too; `began_at`: when the ranks
    were started, in unix seconds; `is_head`: rank 0 is on this node; `starts_ranks`: the command does, so that their
    number is not known."""

    def __init__(
        self, cwd: str | None, env: Mapping[str, str], began_at: float, *, is_head: bool = True,
        starts_ranks: bool = False,
    ) -> None:  # fmt: skip
        roots = [env.get("FERMI_CHECKPOINT_DIR", ""), env.get("FERMI_OUTPUT_DIR", ""), cwd or ""]
        self.walk = FolderWalk(roots, list_skipped_paths(env))
        world_size = 0 if starts_ranks else _parse_count(env.get("WORLD_SIZE", ""))
        self.checkpoints = CheckpointScan(self.walk, began_at, world_size, is_head=is_head)
        self.metrics = MetricScan(self.walk, began_at) if is_head else None
        self._period = PERIOD_SECONDS if is_head else OTHER_PERIOD_SECONDS
        self._rest_factor = REST_FACTOR if is_head else OTHER_REST_FACTOR
        self._records: deque[dict[str, Any]] = deque()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="file scan", daemon=True)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], began_at: float) -> FileScan | None:
        """Return the scan of a node whose ranks are watched; None for one that has nothing to look for. Of several
        runners on a node it is that of the first rank."""
        is_head = any(rank["rank"] == 0 for rank in spec["ranks"])
        is_other = bool(spec.get("own_files")) and any(rank.get("local_rank") == 0 for rank in spec["ranks"])
        if not spec.get("pulse") or not (is_head or is_other):
            return None
        own = "code" in spec or spec.get("own_cwd")
        starts_ranks = spec.get("processes") == "node"
        env = {**os.environ, **spec["env"]}  # in a pod the variables are those of the container
        return cls(spec["cwd"] if own else None, env, began_at, is_head=is_head, starts_ranks=starts_ranks)

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
        self._records.extend(self.metrics.read_new(listing) if self.metrics else ())
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
            self._ending.wait(max(self._period, min(self._rest_factor * took, MAX_PERIOD_SECONDS)))


def _parse_count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
