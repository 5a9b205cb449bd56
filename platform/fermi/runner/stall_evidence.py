"""Whether a rank that does not advance does anything: what two looks at it, some seconds apart, say together. Standard
library only, Python 3.9 or later.

Still is a rank whose main thread neither computes nor changes its place, and whose processes neither compute, read,
write, nor send. Who waits in a collective is still while none ends, though it may spin there (NCCL does); in a group of
its own alone it waits for nobody, but for its GPU. Who saves or compiles never is. What cannot be read counts as doing
something.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fermi.runner import gpus, processes, stacks
from fermi.runner.activity import Activity
from fermi.runner.links import Link
from fermi.runner.pulse import MAIN_SHARE, SHARE, STOPPED, Sample
from fermi.runner.stacks import Frame
from fermi.runner.thread_waits import Waits
from fermi.telemetry import nvidia_smi

APART_SECONDS = 3.0
QUIET = 16 << 10
"""Bytes per second that heartbeats and monitors read and write."""
SWITCHES = 2.0
"""How often in a second the main thread may wake up to look whether it may go on; a download does so more often."""
_SLEEPS = ("hrtimer_nanosleep", "do_nanosleep")
MOST_TEXT = 64
GPU_SECONDS = 5.0


class Evidence(NamedTuple):
    """Of one look. `place`: the main thread's frames, innermost first. `channel`: where in the kernel it waits.
    `threads`: where the script's other threads are; `ras`: what NCCL says of the job, where it answers. `stopped`: by
    what, where it is. `others`: how often its other processes have come back from a wait; None: there are none, or it
    cannot be seen."""

    sample: Sample
    activity: Activity
    place: list[Frame]
    links: list[Link]
    channel: str
    threads: Sequence[str] = ()
    ras: Sequence[str] = ()
    waits: Waits = Waits()
    stopped: Mapping[str, Any] | None = None
    others: int | None = None

    def queued(self) -> dict[int, int]:
        """By socket, what waits where the peer answers."""
        return {link.inode: link.unacked for link in self.links if not link.retries}


def is_still(before: Evidence, now: Evidence) -> bool:
    passed = now.sample.at - before.sample.at
    same = now.place == before.place and now.sample.pid == before.sample.pid != 0
    if passed < APART_SECONDS or not now.activity.pids or not _is_quiet(before, now, passed) or now.stopped:
        return False
    if children_work(before, now):
        return False
    rests = _rests(before, now, passed)
    if waits_for_peers(now.sample) and now.sample.collectives() == before.sample.collectives():
        return rests or same
    if stacks.take_leave(stacks.short(now.place, "")) and same:
        return True
    page = now.sample.page
    if not same or not rests or (page and page.phase in ("saving", "compiling")):
        return False
    starves = before.activity.busy and now.activity.busy  # wants a processor at every look, and gets none
    if starves or (now.activity.seconds - before.activity.seconds) / passed >= SHARE:
        return False
    return not gpu_computes(now.activity.pids)


def _is_quiet(before: Evidence, now: Evidence, passed: float) -> bool:
    moved = now.activity.read + now.activity.written - before.activity.read - before.activity.written
    return moved <= QUIET * passed and now.queued() == before.queued()


def _rests(before: Evidence, now: Evidence, passed: float) -> bool:
    """The main thread does."""
    if now.sample.state not in ("S", "I"):
        return False
    wakes = (now.sample.switches - before.sample.switches) / passed > SWITCHES
    if wakes and not (now.channel in _SLEEPS and before.channel in _SLEEPS):
        return False
    return (now.sample.main_seconds - before.sample.main_seconds) / passed < MAIN_SHARE


def moves(before: Evidence, now: Evidence) -> bool:
    """Whether anything of the rank has come back from a wait between the two looks. What cannot be seen has."""
    return now.waits.wakes is None or now.waits.wakes != before.waits.wakes


def children_work(before: Evidence, now: Evidence) -> bool:
    """Whether processes that the rank started do something, as far as that counts. A rank that trains itself has
    helpers (a DataLoader's workers look every five seconds whether there is something to do); one that does not is a
    launcher, and its children train."""
    page, passed = now.sample.page, now.sample.at - before.sample.at
    if before.sample.pid != now.sample.pid or (page and (page.step or page.begun or page.world_size)):
        return False
    used = now.activity.seconds - before.activity.seconds - (now.sample.seconds - before.sample.seconds)
    woken = now.others is not None and now.others != before.others
    return woken or (passed > 0 and used / passed >= SHARE)


def waits_for_peers(sample: Sample) -> bool:
    """Whether it is in a collective that others take part in."""
    return bool(sample.waits and sample.page and len(sample.page.collective.get("ranks") or (0, 0)) > 1)


def is_in_nccl(sample: Sample) -> bool:
    """As its page names the group."""
    return bool(sample.waits and sample.page and str(sample.page.collective.get("group", "")).startswith("nccl"))


def waits_in(sample: Sample) -> dict[str, Any]:
    """The collective that has not ended, as the rank says: `in`, `for` and `op`."""
    page = sample.page
    if page is None or not waits_for_peers(sample):
        return {"in": "", "for": 0.0, "op": None}
    said = page.collective
    sizes = said.get("sizes")
    op: dict[str, Any] = {"seq": said.get("seq"), "group": str(said.get("group", ""))[:MOST_TEXT], "sizes": sizes}
    op.update({part: said[part] for part in ("ranks", "name", "root") if part in said})
    name = said.get("op")
    return {
        "in": name[:MOST_TEXT] if isinstance(name, str) and name else "collective",
        "for": round(max(0.0, sample.at - page.collective_at), 1),
        "op": op if isinstance(op["seq"], int) and isinstance(sizes, list) else None,
    }


def stopped_by(sample: Sample, leader: int) -> dict[str, Any] | None:
    """Of a process in state T or t: the `signal` that stopped it, and the `tracer`. The kernel keeps no sender of a
    signal, and tells which one it was only to the parent: of `leader`, which this process has started, alone."""
    if sample.state not in STOPPED:
        return None
    found: dict[str, Any] = {"pid": sample.pid, "signal": "", "tracer": ""}
    with contextlib.suppress(OSError, ValueError, KeyError):
        if tracer := int(processes.status(sample.pid)["TracerPid"]):
            found["tracer"] = f"{processes.status(tracer)['Name']} ({tracer})"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if told := os.waitid(os.P_PID, leader, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
            found["signal"] = signal.Signals(told.si_status).name
    return found


def gpu_computes(pids: Iterable[int]) -> bool:
    """Whether a GPU that one of these processes has open does; also where that cannot be found out."""
    minors = {minor for pid in pids for minor in gpus.indices(pid)}
    if not minors:
        return False
    rows = nvidia_smi.ask(("index", "utilization.gpu"), seconds=GPU_SECONDS) or []
    uses = [nvidia_smi.number(row, "utilization.gpu") for row in rows if nvidia_smi.whole(row, "index") in minors]
    return not uses or any(use is None or use > 0 for use in uses)
