"""Counts a rank's collectives by torch's flight recorder, which counts them in C++: also those that DDP and FSDP start
there. Reading the counts takes three microseconds, so a thread does it five times a second. The recorder's entries are
read only for a long collective.

gloo reports the end of a collective at once; of two that end at the same time the earlier one may be counted last, and
then the count stays one behind until there is another. So the entries decide. NCCL's watchdog polls every 100 ms, and
what it waits for may be the GPU computing: there a collective counts as waiting only while none ends.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from .stack_samples import StackSampler

if TYPE_CHECKING:
    from .rank import ProgressWriter

PERIOD_SECONDS = 0.2
PLACE_PERIOD_SECONDS = 2.0
"""Seconds between two reports of where the rank is, which change no faster."""
SLOW_LOOK_SECONDS, SLOW_PERIOD_SECONDS = 0.001, 2.0
"""If reading takes so long (RCCL may add the state of its communicators), it is done less often."""
MIN_LONG_SECONDS = 1.0
ENTRIES_PERIOD_SECONDS = 5.0
"""Seconds between two readings of entries."""
MAX_ENTRIES = 4
MAX_RANKS, MAX_NAME, MAX_FRAMES = 64, 64, 40
ROOTED_OPS = ("broadcast", "reduce", "gather", "scatter")
READERS = {"nccl": "_dump_nccl_trace_json", "gloo": "_dump_fr_trace_json"}
"""Each backend has its own recorder, and numbers its groups from 0."""

ReadTrace = Callable[[bool, bool], bytes]
Counts = dict[tuple[str, str], tuple[int, int]]
"""By backend and group: how many collectives have begun, and how many have ended."""


class CollectiveWatcher(threading.Thread):
    """The thread that counts collectives and samples the main thread."""

    def __init__(self, pulse: ProgressWriter) -> None:
        super().__init__(name="fermi-pulse", daemon=True)
        self.pulse, self.page = pulse, pulse.page
        self.over = threading.Event()
        self.begun = self.ended = 0
        self.active_since = self.waited = self.told_at = self.placed_at = 0.0
        self.places = StackSampler(pulse.main)
        self.told: tuple[int, int] = (0, 0)
        self.none_goes: tuple[int, int] = (0, 0)  # counts at which no entry was unfinished, whatever they say

    def start(self) -> None:
        """Start the thread."""
        super().start()
        threading._register_atexit(self.stop)  # type: ignore[attr-defined]

    def stop(self) -> None:
        """End the thread before the interpreter is torn down."""
        self.over.set()
        self.join(1.0)

    def run(self) -> None:
        """Count until the end. With an unknown version of torch nothing is counted."""
        try:
            module = sys.modules["torch._C._distributed_c10d"]
            readers = {name: getattr(module, one) for name, one in READERS.items() if hasattr(module, one)}
            if readers:
                self._watch(readers)
        except Exception:  # another torch than those that are known: no collectives are told of
            return

    def _watch(self, readers: dict[str, ReadTrace]) -> None:
        self.page.number("watches", threading.get_native_id())
        period, last = PERIOD_SECONDS, time.monotonic()
        over = False
        while not over:
            over = self.over.wait(period)  # a last look, then
            began = time.monotonic()
            counts = _count_collectives({name: json.loads(read(False, False)) for name, read in readers.items()})
            now = time.monotonic()
            if self._look(counts, now, now - last):
                self.told, self.told_at = (self.begun, self.ended), now
                self._tell({name: json.loads(read(True, False)) for name, read in readers.items()}, counts)
            self._sample_place(now)
            last, period = now, PERIOD_SECONDS if now - began < SLOW_LOOK_SECONDS else SLOW_PERIOD_SECONDS

    def _sample_place(self, now: float) -> None:
        self.places.take_sample(waits=bool(self.active_since))
        if now - self.placed_at >= PLACE_PERIOD_SECONDS:
            self.placed_at = now
            self.page.text("place", self.places.most())

    def _look(self, counts: Counts, now: float, passed: float) -> bool:
        """Write the counts, and return True if the entries have to be read."""
        page = self.page
        page.moment("alive_at", now)
        begun, ended = sum(one for one, _ in counts.values()), sum(min(pair) for pair in counts.values())
        ends = ended != self.ended
        if (begun, ended) != (self.begun, self.ended):
            page.number("begun", begun)
            page.number("ended", ended)
            self.begun, self.ended = begun, ended
        if begun == ended or (begun, ended) == self.none_goes:
            if self.active_since:
                self.active_since = 0.0
                page.moment("collective_at", 0.0)
            return False
        lasted = self.active_since and not ends
        if lasted or not any(backend == "nccl" for backend, _ in counts):
            self.waited += passed
            page.moment("waited", self.waited)
        if not lasted:
            self.active_since = now
            page.moment("collective_at", now)
        lasts = now - self.active_since >= MIN_LONG_SECONDS and now - self.told_at >= ENTRIES_PERIOD_SECONDS
        return lasts and self.told != (begun, ended)

    def _tell(self, states: dict[str, dict[str, Any]], counts: Counts) -> None:
        entries = [{**entry, "backend": name} for name, state in states.items() for entry in state.get("entries", ())]
        entries.sort(key=lambda entry: int(entry["time_created_ns"]))
        going = next((entry for entry in entries if not _has_ended(entry)), None)
        newest = entries[-MAX_ENTRIES:]
        if going is None and entries:
            self.none_goes = self.told
        if going is not None:
            said = {name: _summarize_entry(going)[name] for name in ("op", "seq", "group", "sizes")}
            self.page.text("collective", {**said, **self._group(going)})
            newest = newest if going in newest else [going, *newest[1:]]
        groups = {_format_group(*group): {"enqueued": pair[0], "completed": pair[1]} for group, pair in counts.items()}
        last = [_summarize_entry(entry) for entry in newest]
        self.page.text("trace", {"groups": dict(list(groups.items())[:16]), "last": last})

    def _group(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a collective's group (up to `MAX_RANKS`), the group's name, and the collective's root.
        The recorder has no roots, so that of a call from Python is read from its frame."""
        try:
            name, about = (str(one) for one in entry["process_group"])
            world = sys.modules["torch.distributed.distributed_c10d"]._world
            group = next(group for group, known in world.pg_names.items() if known == name)
            ranks = sorted(world.pg_group_ranks[group])
            root = _find_root(sys._current_frames().get(self.pulse.main), ranks)
        except Exception:  # another torch than those that are known
            return {}
        found: dict[str, Any] = {"ranks": ranks} if len(ranks) <= MAX_RANKS else {}
        found |= {"name": about[:MAX_NAME]} if about not in ("", "undefined", "default_pg") else {}
        return found | ({"root": root} if root is not None else {})


def _find_root(frame: FrameType | None, ranks: list[int]) -> int | None:
    """Return the root of a call in torch/distributed/distributed_c10d.py (torch 2.13): `src`, `dst` are global ranks,
    `group_…` ranks of the group."""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name in ROOTED_OPS and frame.f_code.co_filename.endswith("distributed_c10d.py"):
            known = frame.f_locals
            for name in ("src", "dst"):
                if isinstance(value := known.get(name), int):
                    return value
                if isinstance(value := known.get(f"group_{name}"), int) and 0 <= value < len(ranks):
                    return ranks[value]
        frame = frame.f_back
    return None


def _count_collectives(states: dict[str, dict[str, Any]]) -> Counts:
    """Return begun and ended collectives; the recorder's -1 means none."""
    found: Counts = {}
    for backend, state in states.items():
        for group, status in (state.get("pg_status") or {}).items():
            pair = [max(0, int(status[f"last_{name}_collective"])) for name in ("enqueued", "completed")]
            found[backend, group] = (pair[0], pair[1])
    return found


def _format_group(backend: str, group: str) -> str:
    return group if backend == "gloo" else f"{backend} {group}"


def _has_ended(entry: dict[str, Any]) -> bool:
    return bool(entry.get("retired")) or entry["state"] == "completed"


def _summarize_entry(entry: dict[str, Any]) -> dict[str, Any]:
    return {
        "seq": entry["p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"],
        "op": entry["profiling_name"].partition(":")[2] or entry["profiling_name"],
        "sizes": [sizes[:4] for sizes in entry["input_sizes"][:4]],
        "dtype": (entry.get("input_dtypes") or [""])[0],
        "state": "completed" if _has_ended(entry) else entry["state"],
        "group": _format_group(entry["backend"], str(entry["pg_id"])),
    }
