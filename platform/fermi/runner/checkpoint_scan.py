"""Finds the checkpoints that an attempt saves, without a word of its script. Standard library only, Python 3.9 or
later.

What a scan lists is compared with the scan before. A candidate (`checkpoint_layouts`) is reported once it has not
changed between two scans, and again whenever it was written anew (`ckpt.pt`, `last.ckpt`). What was there when the
attempt began is none of its checkpoints.

A checkpoint of which parts are missing here (`Parts`) is reported with those that are here: other nodes may have the
rest on disks of their own. The platform joins the reports.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any

from fermi.runner.checkpoint_layouts import (
    MAX_PARTS_LENGTH,
    PART_LAYOUT,
    Candidate,
    CheckpointFacts,
    Parts,
    find_candidates,
    find_identity,
    find_parts,
    read_facts,
    read_folder_name,
)
from fermi.runner.folder_walk import FolderWalk, Listing
from fermi.runner.number_ranges import format_ranges

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

    def find(self, at: float, guess: int | None = None) -> int | None:
        """Return the count at a moment; None where no steps were counted by then. `guess`: a number in a file's name,
        which is the count if it lies between the samples around that moment: many steps may have been made since the
        last one. Before the next sample, twice the rate of the last two limits how many."""
        samples = list(self._samples)
        index = bisect_right([moment for moment, _ in samples], at)
        moment, step = samples[index - 1] if index else (at, 0)
        limit = step
        if 0 < index < len(samples):
            limit = samples[index][1]
        elif index > 1:
            began, before = samples[index - 2]
            limit = step + int(2 * (at - moment) * (step - before) / (moment - began))
        return guess if guess and step < guess <= limit else step or None


class CheckpointScan:
    """Compares listings. `began_at`: when the attempt's ranks were started, in unix seconds; `world_size`: how many
    ranks there are, 0 where it is not known; `is_head`: rank 0 is on this node, which completes what all save."""

    def __init__(self, walk: FolderWalk, began_at: float, world_size: int = 0, *, is_head: bool = True) -> None:
        self._walk, self._began_at = walk, began_at
        self._world_size, self._is_head = world_size, is_head
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
        for one in find_candidates(listing, parts=not self._is_head):
            if self._is_first and one.changed_at < self._began_at:
                self._reported[one.path] = one.mark
            if self._reported.get(one.path) == one.mark or len(seen) >= MAX_KNOWN:
                continue
            mark, times = self._seen.get(one.path, (one.mark, 0))
            without_mark = one.layout in ("folder", PART_LAYOUT)
            times = 1 if mark != one.mark else times if again and without_mark else times + 1
            seen[one.path] = one.mark, times
            needed = FOLDER_SCANS if without_mark else 2
            if (last or times >= needed) and len(found) < MAX_REPORTS:
                found += self._judge(one, listing, settled=last or times >= FOLDER_SCANS)
        self._seen, self._is_first = seen, False
        if len(self._reported) > MAX_KNOWN:
            self._reported = {path: mark for path, mark in self._reported.items() if path in seen}
        return sorted(found, key=lambda record: float(record["time"]))

    def _judge(self, one: Candidate, listing: Listing, *, settled: bool) -> list[dict[str, Any]]:
        """Return the record of a candidate that did not change; none where it is incomplete or no checkpoint. An
        incomplete folder is judged in each scan, because a file beside it may complete it. One of which parts are
        missing is reported once it is `settled`: on a network file system they may be seen later."""
        try:
            facts = None if one.layout == PART_LAYOUT else read_facts(one, listing, self._walk.open_file)
            parts = find_parts(one.path, listing, self._walk.open_file, self._world_size)
        except (OSError, ValueError):  # deleted meanwhile, or not for this process to read
            return []
        if facts is None and parts and not self._is_head:
            facts = read_folder_name(one.path.rpartition("/")[2], PART_LAYOUT)
        if facts and parts and parts.needed and not parts.is_whole and not settled:
            return []
        if facts is not None or one.layout in ("torch", "keras", "flax"):
            self._reported[one.path] = one.mark
        return [] if facts is None else [self._build_record(one, facts, parts, find_identity(one, listing))]

    def _build_record(
        self, one: Candidate, facts: CheckpointFacts, parts: Parts | None, identity: str
    ) -> dict[str, Any]:
        step, is_counted = facts.step, False
        if step is None:
            step, is_counted = self.steps.find(one.changed_at, facts.guess), True
        if step is None:
            step, is_counted = facts.guess, facts.guess is not None
        about: dict[str, Any] = {"path": one.path, "step": step, "size_bytes": one.size, "layout": facts.layout}
        about.update({"counted": True} if is_counted and step is not None else {})
        about.update({"epoch": facts.epoch} if facts.epoch is not None else {})
        about.update({"val_loss": facts.val_loss} if facts.val_loss is not None else {})
        about.update({"best_step": facts.best_step} if facts.best_step is not None else {})
        about.update({"identity": identity} if identity else {})
        if parts and not parts.is_whole and len(here := format_ranges(parts.here)) <= MAX_PARTS_LENGTH:
            about.update({"parts": here}, **({"parts_needed": parts.needed} if parts.needed else {}))
        return {"source": "runner", "time": round(one.changed_at, 3), "checkpoint": about}
