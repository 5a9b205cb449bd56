"""Finds the checkpoints that an attempt saves, without a word of its script. Standard library only, Python 3.9 or
later.

What a scan lists is compared with the scan before. A candidate (`checkpoint_layouts`) is reported once it has not
changed between two scans, and again whenever it was written anew (`ckpt.pt`, `last.ckpt`). What was there when the
attempt began is none of its checkpoints.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any

from fermi.runner.checkpoint_layouts import Candidate, CheckpointFacts, find_candidates, read_facts
from fermi.runner.folder_walk import FolderWalk, Listing

MAX_REPORTS = 20
"""Checkpoints that one scan reports; the rest follow with the next one."""
MAX_KNOWN = 20_000
FOLDER_SCANS = 3
"""Scans without a change after which a folder without any mark of completeness is complete; others: 2."""
KEPT_STEP_SECONDS = 600
"""How far back the steps are known that the probe counted, one of each second."""


class StepHistory:
    """How many optimizer steps had been made when, in unix seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=KEPT_STEP_SECONDS)

    def add(self, at: float, step: int) -> None:
        """Record the count, at most once a second. Called by another thread than `find`."""
        if not self._samples or at >= self._samples[-1][0] + 1.0:
            self._samples.append((at, step))

    def find(self, at: float) -> int | None:
        """Return the count at a moment; None where no steps were counted by then."""
        samples = list(self._samples)
        index = bisect_right([moment for moment, _ in samples], at)
        step = samples[index - 1][1] if index else 0
        return step or None


class CheckpointScan:
    """Compares listings. `began_at`: when the attempt's ranks were started, in unix seconds."""

    def __init__(self, walk: FolderWalk, began_at: float) -> None:
        self._walk, self._began_at = walk, began_at
        self.steps = StepHistory()
        self._reported: dict[str, tuple[int, int, int]] = {}  # by path: the mark of what is known, and was judged
        self._seen: dict[str, tuple[tuple[int, int, int], int]] = {}  # by path: its mark, in how many scans
        self._is_first = True

    @property
    def is_unsettled(self) -> bool:
        """Return True if the last scan saw a candidate for the first time that may be complete at the next one."""
        return any(times == 1 for _, times in self._seen.values())

    def find_new(self, listing: Listing, *, last: bool = False, again: bool = False) -> list[dict[str, Any]]:
        """Return the records of checkpoints that were completed since the scan before. `last`: no process is left that
        writes to them; `again`: so soon after the scan before that it says nothing of folders without marks."""
        found: list[dict[str, Any]] = []
        seen: dict[str, tuple[tuple[int, int, int], int]] = {}
        for one in find_candidates(listing):
            if self._is_first and one.changed_at < self._began_at:
                self._reported[one.path] = one.mark
            if self._reported.get(one.path) == one.mark or len(seen) >= MAX_KNOWN:
                continue
            mark, times = self._seen.get(one.path, (one.mark, 0))
            times = 1 if mark != one.mark else times if again and one.layout == "folder" else times + 1
            seen[one.path] = one.mark, times
            needed = FOLDER_SCANS if one.layout == "folder" else 2
            if (last or times >= needed) and len(found) < MAX_REPORTS and (record := self._judge(one, listing)):
                found.append(record)
        self._seen, self._is_first = seen, False
        if len(self._reported) > MAX_KNOWN:
            self._reported = {path: mark for path, mark in self._reported.items() if path in seen}
        return sorted(found, key=lambda record: float(record["time"]))

    def _judge(self, one: Candidate, listing: Listing) -> dict[str, Any] | None:
        """Return the record of a candidate that did not change; None where it is incomplete or no checkpoint. An
        incomplete folder is judged in each scan, because a file beside it may complete it."""
        try:
            facts = read_facts(one, listing, self._walk.open_file)
        except (OSError, ValueError):  # deleted meanwhile, or not for this process to read
            return None
        if facts is not None or one.layout in ("torch", "keras", "flax"):
            self._reported[one.path] = one.mark
        return None if facts is None else self._build_record(one, facts)

    def _build_record(self, one: Candidate, facts: CheckpointFacts) -> dict[str, Any]:
        step, is_counted = facts.step, False
        if step is None:
            step, is_counted = self.steps.find(one.changed_at), True
        if step is None:
            step, is_counted = facts.guess, facts.guess is not None
        about: dict[str, Any] = {"path": one.path, "step": step, "size_bytes": one.size, "layout": facts.layout}
        about.update({"counted": True} if is_counted and step is not None else {})
        about.update({"epoch": facts.epoch} if facts.epoch is not None else {})
        about.update({"val_loss": facts.val_loss} if facts.val_loss is not None else {})
        return {"source": "runner", "time": round(one.changed_at, 3), "checkpoint": about}
