"""Watches the ranks of a node: samples them once a second, and examines those that do not advance. Standard library
only, Python 3.9 or later.

    advances ─ silent for longer than its past explains ─▶ stalled: its stack, its connections; again some seconds later
             ─ idle for so long ─▶ the same, but reported only once the second examination has found it idle

When one has stalled, the others of the node that do not advance either are examined with it: the cause of a hang is in
their stacks together. Nothing here ends a rank or raises: what cannot be read is unknown.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fermi.probe import setup
from fermi.probe.setup import LauncherFiles, RankFiles
from fermi.probe.shared_page import SharedPage
from fermi.runner import activity as stillness
from fermi.runner import gpus, links, processes, ras, stacks, stall_evidence, thread_waits
from fermi.runner.gpus import GpuMonitor
from fermi.runner.pulse import STOPPED_STATES, LogFile, ProgressReader, RankOutput, RankSample  # noqa: F401 (for others)
from fermi.runner.stall_evidence import StallEvidence
from fermi.runner.stall_threshold import MIN_SECONDS, StallThreshold

PERIOD_SECONDS = 1.0
ANSWER_TIMEOUT_SECONDS = 0.3
"""How long a rank has to write its stacks."""
LOOK_INTERVALS_SECONDS = (2.8, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds between examinations; the last for all that follow."""
MAX_REPORTED_LOOKS = 6
NOTABLE_FIELDS = ("still", "children", "moves", "locked", "timed", "stopped", "gpu")
"""Fields that count after MAX_REPORTED_LOOKS examinations: later ones change a status only if one of these differs."""
ReportPulses = Callable[[list[dict[str, Any]]], None]


class RankStall:
    """A rank that does not advance. `shown`: it is in the status."""

    def __init__(self, since: float, now: float, *, shown: bool) -> None:
        self.since, self.shown = since, shown
        self.looks, self.looked_at, self.next_at = 0, now, now
        self.evidence: StallEvidence | None = None
        self.links: dict[int, float] = {}
        self.asked = False


class WatchedRank:
    """A watched rank. `gpu_open`: see `PulseSeen`; once it is True it stays so. `present`: it has a process."""

    def __init__(self, entry: dict[str, Any], pulse: ProgressReader, patience: StallThreshold) -> None:
        self.entry, self.pulse, self.patience = entry, pulse, patience
        self.sample = RankSample(patience.advanced_at)
        self.stall: RankStall | None = None
        self.gpu_open: bool | None = None
        self.present = pulse.is_present(self.sample)

    @property
    def root(self) -> int:
        """The process with which the rank begins: of the rank that a launcher stands for, its own once it has one."""
        return (self.sample.pid if self.pulse.follows_launcher else 0) or self.entry["pid"] or 0


class RankWatcher:
    """Watches all ranks of a node. `cwd`: paths of the user's files are relative to it. `patience`: the task's own
    threshold, in place of the learnt one. `tell`: gets pulses, every `tell_seconds`. `env`: of the ranks."""

    def __init__(
        self,
        cwd: str,
        patience: float | None = None,
        report_pulses: ReportPulses | None = None,
        tell_seconds: float = PERIOD_SECONDS,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.env = {} if env is None else env
        self.cwd, self.fixed, self.tell, self.tell_seconds = cwd, patience, report_pulses, tell_seconds
        self.watched: dict[int, WatchedRank] = {}  # by rank
        self.due = self.tell_at = time.monotonic() + PERIOD_SECONDS
        self.read_at = math.inf
        self.gpus, self.gpus_at = GpuMonitor(), self.due
        self._given: dict[int, RankFiles] = {}
        self.launcher: RankFiles | None = None

    # --- how ranks come under watch, and leave it ---

    def give(self, rank: int) -> RankFiles | None:
        """Create the probe's files for a rank, and return them; None if that fails."""
        with contextlib.suppress(OSError):
            self._given[rank] = setup.create_rank_files()
        return self._given.get(rank)

    def give_launcher(self, ranks: Sequence[int], output: int, outputs: Sequence[int]) -> LauncherFiles | None:
        """Create the probe's files for a process that starts these ranks, and for each of them; None if that fails.
        `output`: the descriptor of its output, which is the first rank's; `outputs`: of those of the others."""
        if any(self.give(rank) is None for rank in ranks):
            return None
        about, given = os.fstat(output), [self._given[rank] for rank in ranks]
        with contextlib.suppress(OSError):
            own = setup.create_rank_files()
            os.close(own.records)
            self.launcher = own._replace(records=os.dup(given[0].records))  # what it logs is the first rank's
            return LauncherFiles(self.launcher, ranks[0], (about.st_dev, about.st_ino), given, outputs)
        return None

    def get_files(self, rank: int) -> RankFiles | None:
        """Return the probe's files of a rank, or None if it has none."""
        return self._given.get(rank)

    def descriptors(self, but: int) -> list[int]:
        """Return the descriptors that the rank `but` must not inherit."""
        return [one for rank, given in self._given.items() if rank != but for one in given]

    def add(self, entry: dict[str, Any], output: RankOutput, started: dict[str, Any] | None = None) -> None:
        """Watch a rank that was started. `started`: the entry of the rank whose process starts this one."""
        launcher = self.launcher if started is entry else None
        pulse = ProgressReader(entry, self._given.get(entry["rank"]), output, started, launcher)
        self.watched[entry["rank"]] = WatchedRank(entry, pulse, StallThreshold(time.monotonic(), self.fixed))

    def ended(self, entry: dict[str, Any]) -> None:
        """Complete the entry of an ended rank by the last values of its probe."""
        entry["stalled"] = None
        if one := self.watched.pop(entry["rank"], None):
            if (page := one.pulse.page()) and not one.pulse.stands_for_launcher:
                entry["last_step"] = max(page.step, page.most_steps)
                entry["trainer"] = page.trainer or None
                entry["joined_as"] = page.joined_as - 1 if page.joined_as else None
                entry["error"] = entry["error"] or parse_error(page.error)
            one.pulse.close()
        if entry["exit_code"] == 0:
            entry["error"] = None

    def read_errors(self) -> dict[int, dict[str, Any]]:
        """Return by rank the exceptions that the ranks of a launcher have written; -1: the launcher's own, with the
        `failures` that it reports. Without those that are malformed."""
        pages = {
            one.entry["rank"]: one.pulse.page() for one in self.watched.values() if not one.pulse.stands_for_launcher
        }
        with contextlib.suppress(OSError, ValueError, TypeError):
            pages[-1] = SharedPage(self.launcher.page).read() if self.launcher else None
        found: dict[int, dict[str, Any]] = {}
        for rank, page in pages.items():
            if page and (error := parse_error(page.error)):
                found[rank] = {**error, "failures": parse_failures(page.error)} if rank < 0 else error
        return found

    def process(self, entry: dict[str, Any]) -> int:
        """Return the process that reports for the rank."""
        one = self.watched.get(entry["rank"])
        return (one.sample.pid if one else 0) or entry["pid"]

    # --- once a second ---

    def update(self) -> bool:
        """Do what is due, and return True if the status has changed. Call it several times a second."""
        now = time.monotonic()
        changed = False
        if now >= self.read_at:
            self.read_at = math.inf
            changed = self._read(now)
        if now >= self.due:
            self.due = now + PERIOD_SECONDS
            for one in self.watched.values():
                changed = self._advance(one, now) or changed
            self._detect_stalls(now)
            self.gpus.update(now, (one.sample.pid for one in self.watched.values()))
            if now >= self.gpus_at:
                self.gpus_at = now + gpus.OPEN_CHECK_SECONDS
                self._record_open_gpus()
        self._ask(now)
        if self.tell and now >= self.tell_at:
            self.tell_at = now + self.tell_seconds
            unix = time.time() - now
            told = [(one, record) for one in self.watched.values() if (record := one.pulse.record(unix))]
            self.tell([{**record, **self._gpu(one)} for one, record in told])
        return changed

    def _gpu(self, one: WatchedRank) -> dict[str, Any]:
        found = self.gpus.find_figures(one.sample.pid) if self.gpus.told else None
        told: dict[str, Any] = {} if one.gpu_open is None else {"gpu_open": one.gpu_open}
        return {**told, "gpu": found} if found else told

    def _record_open_gpus(self) -> None:
        """Record which training ranks have a GPU open, in any of their processes."""
        if not gpus.has_nvidia_gpus():
            return
        trains = [one for one in self.watched.values() if one.pulse.repeats(one.sample) >= gpus.MIN_STEPS]
        for one in trains:
            if one.sample.page and one.sample.page.gpu_bytes:
                one.gpu_open = True
        asked = [one for one in trains if not one.gpu_open]
        found = stillness.measure_activity(one.root for one in asked) if asked else {}
        for one in asked:
            activity = found.get(one.root)
            one.gpu_open = gpus.has_gpu_open(activity.pids if activity else ())

    def _advance(self, one: WatchedRank, now: float) -> bool:
        before, sample = one.sample, one.pulse.take_sample(now)
        one.sample = sample
        advanced = sample.signs != before.signs
        phase = sample.page.phase if sample.page else "starting"
        one.patience.record_sample(
            sample.advanced_at(before) if advanced else now, phase, one.pulse.repeats(sample),
            advanced=advanced, active=bool(before.pid) and sample.acts(before),
        )  # fmt: skip
        changed = self._record_presence(one, now)
        if not one.present:
            return changed
        if sample.state in STOPPED_STATES and before.state in STOPPED_STATES:
            self._stall(one, now, shown=True)
        elif before.state in STOPPED_STATES and one.stall:
            one.stall.next_at = now
        if one.pulse.stands_for_launcher:
            pass  # what ends the launcher is told once its ranks have ended
        elif one.entry["error"] is None and sample.page and (error := parse_error(sample.page.error)):
            one.entry["error"], changed = error, True
        if advanced and one.stall:
            changed = changed or one.stall.shown
            one.stall = one.entry["stalled"] = None
        return changed

    def _record_presence(self, one: WatchedRank, now: float) -> bool:
        """Record whether a rank that a launcher starts has a process, and which. Return True if its entry has
        changed."""
        was, one.present = one.present, one.pulse.is_present(one.sample)
        if one.present and not was:
            one.patience = StallThreshold(now, self.fixed)
        if one.present and one.pulse.started is not one.entry and one.entry["pid"] != one.sample.pid:
            one.entry.update(pid=one.sample.pid, start_time=processes.read_start_time(one.sample.pid))
            return True
        if one.present or not one.stall:
            return False
        shown, one.stall, one.entry["stalled"] = one.stall.shown, None, None
        return shown

    def _detect_stalls(self, now: float) -> None:
        present = [one for one in self.watched.values() if one.present]
        for one in present:
            if one.stall and one.stall.shown:
                continue
            if one.patience.is_silent_too_long(now):
                self._stall(one, now, shown=True)
            elif not one.stall and one.patience.is_idle_too_long(now):
                self._stall(one, now, shown=False)
        silences = [one.patience.silence(now) for one in present if one.stall and one.stall.shown]
        if not silences:
            return
        for one in present:
            if not (one.stall and one.stall.shown) and one.patience.silence(now) >= max(silences) / 2:
                self._stall(one, now, shown=True)

    @staticmethod
    def _stall(one: WatchedRank, now: float, *, shown: bool) -> None:
        if one.stall:
            one.stall.shown = shown
        else:
            one.stall = RankStall(one.patience.advanced_at, now, shown=shown)

    # --- a closer look ---

    def _ask(self, now: float) -> None:
        for one in self.watched.values():
            stall = one.stall
            if stall is None or stall.asked or not (now >= stall.next_at or self._is_idle_again(one, now)):
                continue
            stall.asked, self.read_at = True, now + ANSWER_TIMEOUT_SECONDS
            one.pulse.request_stacks(now)

    @staticmethod
    def _is_idle_again(one: WatchedRank, now: float) -> bool:
        """Return True if it is idle since the last examination, which found it at work."""
        stall = one.stall
        if stall is None or (one.entry["stalled"] or {}).get("still"):
            return False
        return now - max(one.patience.active_at, stall.looked_at) >= MIN_SECONDS

    def _read(self, now: float) -> bool:
        asked = [one for one in self.watched.values() if one.stall and one.stall.asked]
        found = stillness.measure_activity(one.root for one in asked)
        changed = [self._judge(one, one.stall, found, now) for one in asked if one.stall]
        return any(changed)

    def _judge(self, one: WatchedRank, stall: RankStall, found: dict[int, stillness.Activity], now: float) -> bool:
        before, evidence = stall.evidence, self._evidence(one, found, now)
        if evidence.sample.signs != one.sample.signs:  # it has gone on since it was asked
            stall.asked = False
            return False
        still = before is not None and stall_evidence.is_idle(before, evidence)
        again = LOOK_INTERVALS_SECONDS[min(stall.looks, len(LOOK_INTERVALS_SECONDS) - 1)]
        stall.evidence, stall.asked = evidence, False
        stall.looks, stall.looked_at, stall.next_at = stall.looks + 1, now, now + again
        if not stall.shown and stall.looks > 1 and not still:
            one.stall = None
            one.patience.record_sample(
                now, one.patience.kind, one.pulse.repeats(one.sample), advanced=False, active=True
            )  # it worked where a look at its main thread does not see it
            return False
        stall.shown = stall.shown or still
        told, says = one.entry["stalled"], self._told(stall, evidence, before, still=still)
        if not stall.shown or (
            told and stall.looks > MAX_REPORTED_LOOKS and not any(told[name] != says[name] for name in NOTABLE_FIELDS)
        ):
            return False
        one.entry["stalled"] = says
        return True

    def _evidence(self, one: WatchedRank, found: dict[int, stillness.Activity], now: float) -> StallEvidence:
        sample = one.pulse.take_sample(now)
        activity = found.get(one.root, stillness.Activity())
        main, *others = (stacks.read_stacks(one.pulse.given.stacks) if one.pulse.given else None) or [[]]
        connections, channel = (
            links.list_waiting_connections(activity.pids),
            processes.read_wait_channel(sample.pid, sample.pid),
        )
        of_probe = (sample.page.answers, sample.page.watches) if sample.page else ()
        said = (
            ras.query_status(self.env)
            if one.stall and one.stall.looks == 1 and stall_evidence.is_in_nccl(sample)
            else []
        )
        kept = one.stall.evidence.ras if one.stall and one.stall.evidence else []
        return StallEvidence(
            sample, activity, main, connections, channel, stacks.list_thread_places(others, self.cwd), said or kept,
            thread_waits.read_waits(activity.pids, of_probe), stall_evidence.describe_stop(sample, one.root),
            thread_waits.read_waits(pid for pid in activity.pids if pid != sample.pid).wakes,
        )  # fmt: skip

    def _told(
        self, stall: RankStall, now: StallEvidence, before: StallEvidence | None, *, still: bool
    ) -> dict[str, Any]:
        unix, page = time.time() - now.sample.at, now.sample.page
        passed = now.sample.at - before.sample.at if before else 0.0
        used = now.activity.seconds - before.activity.seconds if before else 0.0
        return {
            "since": round(stall.since + unix, 1), "looked_at": round(now.sample.at + unix, 1), "looks": stall.looks,
            "still": still, "phase": page.phase if page else "starting", "step": page.step if page else None,
            **stall_evidence.describe_collective(now.sample),
            "at": stacks.find_own_line(now.stack, self.cwd), "stack": stacks.format_frames(now.stack, self.cwd),
            "threads": now.threads, "ras": now.ras,
            "cpu": round(used / passed, 2) if passed > 0 else None, "state": now.sample.state, "waits": now.channel,
            "children": before is not None and stall_evidence.has_working_children(before, now),
            "moves": before is None or stall_evidence.has_moved(before, now), "timed": now.waits.timed,
            "stopped": now.stopped,
            "locked": now.waits.locked and before is not None and before.waits == now.waits,
            "links": links.describe_silent_connections(now.links, stall.links, now.sample.at),
            "flight": page.trace or None if page and now.sample.waits else None,
            "gpu": stall_evidence.is_waiting_for_peers(now.sample) and stall_evidence.is_gpu_busy(now.activity.pids),
        }  # fmt: skip


_ERROR: dict[str, Any] = {"type": 200, "message": 500, "file": 300, "function": 200}


def parse_error(written: dict[str, Any]) -> dict[str, Any] | None:
    """Return the exception that a rank wrote, if it is well-formed; else None."""
    texts = {name: written.get(name) for name in _ERROR}
    at, line, step = written.get("at"), written.get("line"), written.get("step")
    numbers = isinstance(line, int) and isinstance(at, (int, float)) and math.isfinite(at)
    if not numbers or not all(isinstance(text, str) for text in texts.values()):
        return None
    cut = {name: str(text)[: _ERROR[name]] for name, text in texts.items()}
    return {**cut, "line": line, "at": at, "step": step if isinstance(step, int) else None}


def parse_failures(written: dict[str, Any]) -> list[tuple[int, int]]:
    """Return local rank and exit code of the ranks that a launcher reports as failed, the first one first; those that
    are well-formed."""
    found = written.get("failures")
    pairs = [one for one in found if isinstance(one, list) and len(one) == 2] if isinstance(found, list) else []
    return [(local, code) for local, code in pairs if type(local) is int and type(code) is int and abs(code) < 256]
