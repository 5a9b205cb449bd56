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
import time
from collections.abc import Callable, Mapping
from typing import Any

from fermi.probe import setup
from fermi.probe.setup import Given
from fermi.runner import activity as stillness
from fermi.runner import gpus, links, processes, ras, stacks, stall_evidence, thread_waits
from fermi.runner.gpus import Gpus
from fermi.runner.pulse import STOPPED, LogFile, Output, Pulse, Sample  # noqa: F401 (for others)
from fermi.runner.stall_evidence import Evidence
from fermi.runner.stall_threshold import FLOOR, Patience

PERIOD_SECONDS = 1.0
ANSWER_SECONDS = 0.3
"""How long a rank has to write its stacks."""
AGAIN = (2.8, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds between examinations; the last for all that follow."""
SHOWN = 6
NEWS = ("still", "children", "moves", "locked", "timed", "stopped", "gpu")
"""Fields that count after MAX_REPORTED_LOOKS examinations: later ones change a status only if one of these differs."""
Tell = Callable[[list[dict[str, Any]]], None]


class Stall:
    """A rank that does not advance. `shown`: it is in the status."""

    def __init__(self, since: float, now: float, *, shown: bool) -> None:
        self.since, self.shown = since, shown
        self.looks, self.looked_at, self.next_at = 0, now, now
        self.evidence: Evidence | None = None
        self.links: dict[int, float] = {}
        self.asked = False


class Watched:
    """A watched rank. `gpu_open`: see `PulseSeen`; once it is True it stays so."""

    def __init__(self, entry: dict[str, Any], pulse: Pulse, patience: Patience) -> None:
        self.entry, self.pulse, self.patience = entry, pulse, patience
        self.sample = Sample(patience.advanced_at)
        self.stall: Stall | None = None
        self.gpu_open: bool | None = None


class Watch:
    """Watches all ranks of a node. `cwd`: paths of the user's files are relative to it. `patience`: the task's own
    threshold, in place of the learnt one. `tell`: gets pulses, every `tell_seconds`. `env`: of the ranks."""

    def __init__(
        self,
        cwd: str,
        patience: float | None = None,
        tell: Tell | None = None,
        tell_seconds: float = PERIOD_SECONDS,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.env = {} if env is None else env
        self.cwd, self.fixed, self.tell, self.tell_seconds = cwd, patience, tell, tell_seconds
        self.watched: dict[int, Watched] = {}  # by rank
        self.due = self.tell_at = time.monotonic() + PERIOD_SECONDS
        self.read_at = math.inf
        self.gpus, self.gpus_at = Gpus(), self.due
        self._given: dict[int, Given] = {}

    # --- how ranks come under watch, and leave it ---

    def give(self, rank: int) -> Given | None:
        """Create the probe's files for a rank, and return them; None if that fails."""
        with contextlib.suppress(OSError):
            self._given[rank] = setup.make()
        return self._given.get(rank)

    def descriptors(self, but: int) -> list[int]:
        """Return the descriptors that the rank `but` must not inherit."""
        return [one for rank, given in self._given.items() if rank != but for one in given]

    def add(self, entry: dict[str, Any], output: Output) -> None:
        """Watch a rank that was started."""
        pulse = Pulse(entry, self._given.get(entry["rank"]), output)
        self.watched[entry["rank"]] = Watched(entry, pulse, Patience(time.monotonic(), self.fixed))

    def ended(self, entry: dict[str, Any]) -> None:
        """Complete the entry of an ended rank by the last values of its probe."""
        entry["stalled"] = None
        if one := self.watched.pop(entry["rank"], None):
            if page := one.pulse.page():
                entry["last_step"] = max(page.step, page.most_steps)
                entry["trainer"] = page.trainer or None
                entry["joined_as"] = page.joined_as - 1 if page.joined_as else None
                entry["error"] = entry["error"] or error_of(page.error)
            one.pulse.close()
        if entry["exit_code"] == 0:
            entry["error"] = None

    def process(self, entry: dict[str, Any]) -> int:
        """Return the process that reports for the rank."""
        one = self.watched.get(entry["rank"])
        return (one.sample.pid if one else 0) or entry["pid"]

    # --- once a second ---

    def look(self) -> bool:
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
            self._begin_stalls(now)
            self.gpus.look(now, (one.sample.pid for one in self.watched.values()))
            if now >= self.gpus_at:
                self.gpus_at = now + gpus.OPEN_SECONDS
                self._note_open_gpus()
        self._ask(now)
        if self.tell and now >= self.tell_at:
            self.tell_at = now + self.tell_seconds
            unix = time.time() - now
            told = [(one, record) for one in self.watched.values() if (record := one.pulse.record(unix))]
            self.tell([{**record, **self._gpu(one)} for one, record in told])
        return changed

    def _gpu(self, one: Watched) -> dict[str, Any]:
        found = self.gpus.of(one.sample.pid) if self.gpus.told else None
        told: dict[str, Any] = {} if one.gpu_open is None else {"gpu_open": one.gpu_open}
        return {**told, "gpu": found} if found else told

    def _note_open_gpus(self) -> None:
        """Record which training ranks have a GPU open, in any of their processes."""
        if not gpus.machine_has_gpus():
            return
        trains = [one for one in self.watched.values() if one.pulse.repeats(one.sample) >= gpus.FEW_STEPS]
        for one in trains:
            if one.sample.page and one.sample.page.gpu_bytes:
                one.gpu_open = True
        asked = [one for one in trains if not one.gpu_open]
        found = stillness.look(one.entry["pid"] for one in asked) if asked else {}
        for one in asked:
            activity = found.get(one.entry["pid"])
            one.gpu_open = gpus.has_gpu_open(activity.pids if activity else ())

    def _advance(self, one: Watched, now: float) -> bool:
        before, sample = one.sample, one.pulse.look(now)
        one.sample = sample
        advanced = sample.signs != before.signs
        phase = sample.page.phase if sample.page else "starting"
        one.patience.look(
            sample.advanced_at(before) if advanced else now, phase, one.pulse.repeats(sample),
            advanced=advanced, active=bool(before.pid) and sample.acts(before),
        )  # fmt: skip
        changed = False
        if sample.state in STOPPED and before.state in STOPPED:
            self._stall(one, now, shown=True)
        elif before.state in STOPPED and one.stall:
            one.stall.next_at = now
        if one.entry["error"] is None and sample.page and (error := error_of(sample.page.error)):
            one.entry["error"], changed = error, True
        if advanced and one.stall:
            changed = changed or one.stall.shown
            one.stall = one.entry["stalled"] = None
        return changed

    def _begin_stalls(self, now: float) -> None:
        for one in self.watched.values():
            if one.stall and one.stall.shown:
                continue
            if one.patience.is_silent_for_long(now):
                self._stall(one, now, shown=True)
            elif not one.stall and one.patience.rests_for_long(now):
                self._stall(one, now, shown=False)
        silences = [one.patience.silence(now) for one in self.watched.values() if one.stall and one.stall.shown]
        if not silences:
            return
        for one in self.watched.values():
            if not (one.stall and one.stall.shown) and one.patience.silence(now) >= max(silences) / 2:
                self._stall(one, now, shown=True)

    @staticmethod
    def _stall(one: Watched, now: float, *, shown: bool) -> None:
        if one.stall:
            one.stall.shown = shown
        else:
            one.stall = Stall(one.patience.advanced_at, now, shown=shown)

    # --- a closer look ---

    def _ask(self, now: float) -> None:
        for one in self.watched.values():
            stall = one.stall
            if stall is None or stall.asked or not (now >= stall.next_at or self._has_come_to_rest(one, now)):
                continue
            stall.asked, self.read_at = True, now + ANSWER_SECONDS
            one.pulse.ask(now)

    @staticmethod
    def _has_come_to_rest(one: Watched, now: float) -> bool:
        """Return True if it is idle since the last examination, which found it at work."""
        stall = one.stall
        if stall is None or (one.entry["stalled"] or {}).get("still"):
            return False
        return now - max(one.patience.active_at, stall.looked_at) >= FLOOR

    def _read(self, now: float) -> bool:
        asked = [one for one in self.watched.values() if one.stall and one.stall.asked]
        found = stillness.look(one.entry["pid"] for one in asked)
        changed = [self._judge(one, one.stall, found, now) for one in asked if one.stall]
        return any(changed)

    def _judge(self, one: Watched, stall: Stall, found: dict[int, stillness.Activity], now: float) -> bool:
        before, evidence = stall.evidence, self._evidence(one, found, now)
        if evidence.sample.signs != one.sample.signs:  # it has gone on since it was asked
            stall.asked = False
            return False
        still = before is not None and stall_evidence.is_still(before, evidence)
        again = AGAIN[min(stall.looks, len(AGAIN) - 1)]
        stall.evidence, stall.asked = evidence, False
        stall.looks, stall.looked_at, stall.next_at = stall.looks + 1, now, now + again
        if not stall.shown and stall.looks > 1 and not still:
            one.stall = None
            one.patience.look(
                now, one.patience.kind, one.pulse.repeats(one.sample), advanced=False, active=True
            )  # it worked where a look at its main thread does not see it
            return False
        stall.shown = stall.shown or still
        told, says = one.entry["stalled"], self._told(stall, evidence, before, still=still)
        if not stall.shown or (told and stall.looks > SHOWN and not any(told[name] != says[name] for name in NEWS)):
            return False
        one.entry["stalled"] = says
        return True

    def _evidence(self, one: Watched, found: dict[int, stillness.Activity], now: float) -> Evidence:
        sample = one.pulse.look(now)
        activity = found.get(one.entry["pid"], stillness.Activity())
        main, *others = (stacks.read(one.pulse.given.stacks) if one.pulse.given else None) or [[]]
        connections, channel = links.look(activity.pids), processes.channel(sample.pid, sample.pid)
        of_probe = (sample.page.answers, sample.page.watches) if sample.page else ()
        said = ras.ask(self.env) if one.stall and one.stall.looks == 1 and stall_evidence.is_in_nccl(sample) else []
        kept = one.stall.evidence.ras if one.stall and one.stall.evidence else []
        return Evidence(
            sample, activity, main, connections, channel, stacks.beside(others, self.cwd), said or kept,
            thread_waits.read_waits(activity.pids, of_probe), stall_evidence.stopped_by(sample, one.entry["pid"]),
            thread_waits.read_waits(pid for pid in activity.pids if pid != sample.pid).wakes,
        )  # fmt: skip

    def _told(self, stall: Stall, now: Evidence, before: Evidence | None, *, still: bool) -> dict[str, Any]:
        unix, page = time.time() - now.sample.at, now.sample.page
        passed = now.sample.at - before.sample.at if before else 0.0
        used = now.activity.seconds - before.activity.seconds if before else 0.0
        return {
            "since": round(stall.since + unix, 1), "looked_at": round(now.sample.at + unix, 1), "looks": stall.looks,
            "still": still, "phase": page.phase if page else "starting", "step": page.step if page else None,
            **stall_evidence.waits_in(now.sample),
            "at": stacks.own(now.place, self.cwd), "stack": stacks.short(now.place, self.cwd),
            "threads": now.threads, "ras": now.ras,
            "cpu": round(used / passed, 2) if passed > 0 else None, "state": now.sample.state, "waits": now.channel,
            "children": before is not None and stall_evidence.children_work(before, now),
            "moves": before is None or stall_evidence.moves(before, now), "timed": now.waits.timed,
            "stopped": now.stopped,
            "locked": now.waits.locked and before is not None and before.waits == now.waits,
            "links": links.told(now.links, stall.links, now.sample.at),
            "flight": page.trace or None if page and now.sample.waits else None,
            "gpu": stall_evidence.waits_for_peers(now.sample) and stall_evidence.gpu_computes(now.activity.pids),
        }  # fmt: skip


_ERROR: dict[str, Any] = {"type": 200, "message": 500, "file": 300, "function": 200}


def error_of(said: dict[str, Any]) -> dict[str, Any] | None:
    """Return the exception that a rank wrote, if it is well-formed; else None."""
    texts = {name: said.get(name) for name in _ERROR}
    at, line, step = said.get("at"), said.get("line"), said.get("step")
    numbers = isinstance(line, int) and isinstance(at, (int, float)) and math.isfinite(at)
    if not numbers or not all(isinstance(text, str) for text in texts.values()):
        return None
    cut = {name: str(text)[: _ERROR[name]] for name, text in texts.items()}
    return {**cut, "line": line, "at": at, "step": step if isinstance(step, int) else None}
