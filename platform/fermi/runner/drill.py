"""Fault drills on a node: kills one rank once training has saved a checkpoint. Standard library only, Python 3.9 or
later.

FERMI_DRILL in the ranks' environment (`{"rank": 1}`) requests it, so that it works with every engine. The rank is
killed when FERMI_CHECKPOINT_DIR has a new complete checkpoint: it was the same in two checks, or a newer one has
appeared since; or when the scan of files has found one anywhere. A step must have been made after that, too; if steps
cannot be seen, some seconds must have passed.

What was done is a line in the killed rank's output, so that it is read like other output, exactly once:

    {"event": "drilled", "path": "…/checkpoint_step_20.pt", "size_bytes": 1677463, "time": 1763703000.5}
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

DRILL_VARIABLE = "FERMI_DRILL"
POLL_SECONDS = 1.0
KILL_DELAY_SECONDS = 3.0
IGNORED_SUFFIXES = (".partial", ".tmp", ".lock", ".json", ".jsonl", ".log", ".txt", ".yaml", ".yml", ".csv", ".md")
IGNORED_PREFIXES = ("events.out.tfevents", "logs", "runs", "wandb", "tensorboard")

CheckpointStamp = tuple[int, int, int]
"""Of a file, or of a folder with all its content: number of files, their bytes, the newest change in nanoseconds."""


class RankKillDrill:
    """Waits for a checkpoint. `rank`: the one to be killed; `steps` returns how many it has made, or None if
    unknown."""

    def __init__(self, rank: int, folder: str, steps: Callable[[], int | None] = lambda: None) -> None:
        self.rank, self.folder, self.steps = rank, folder, steps
        self.before = self.seen = list_checkpoints(folder)
        self.look_at = 0.0
        self.saved: tuple[str, int, float, int | None] | None = None  # path, bytes, when, steps then

    @classmethod
    def from_spec(
        cls, spec: Mapping[str, Any], steps: Callable[[int], int | None] = lambda _: None
    ) -> RankKillDrill | None:
        """Return the drill that the spec requests, if the rank is on this node; else None."""
        env = {**os.environ, **spec["env"]}
        with contextlib.suppress(ValueError, KeyError, TypeError):
            rank = json.loads(env[DRILL_VARIABLE])["rank"]
            if any(entry["rank"] == rank for entry in spec["ranks"]):
                return cls(rank, env.get("FERMI_CHECKPOINT_DIR", ""), lambda: steps(rank))
        return None

    def record_found(self, path: str, size: int) -> None:
        """Record a complete checkpoint that was found elsewhere (`checkpoint_scan`)."""
        if self.saved is None:
            self.saved = path, size, time.monotonic(), self.steps()

    def find_due_checkpoint(self) -> dict[str, Any] | None:
        """Return the saved checkpoint when the rank has to be killed now, else None."""
        if time.monotonic() < self.look_at:
            return None
        self.look_at = time.monotonic() + POLL_SECONDS
        now, earlier = list_checkpoints(self.folder), self.seen
        self.seen = now
        new = {name: seen for name, seen in now.items() if seen != self.before.get(name)}
        if self.saved is None:
            whole = [name for name, seen in new.items() if seen == earlier.get(name)]
            newer = [name for name in new if name not in earlier]
            if not whole and newer:  # it saves so often that nothing stays: what came before the newest was complete
                whole = [name for name in earlier if earlier[name] != self.before.get(name) and name not in newer]
            if whole:
                name = max(whole, key=lambda one: (now.get(one) or earlier[one])[2])
                size = (now.get(name) or earlier[name])[1]
                self.saved = os.path.join(self.folder, name), size, time.monotonic(), self.steps()
            return None
        path, size, when, then = self.saved
        made = self.steps()
        stepped = then is not None and made is not None and made > then
        if not stepped and time.monotonic() < when + KILL_DELAY_SECONDS:
            return None
        return {"path": path, "size_bytes": size, "time": time.time()}


def format_drill_line(details: Mapping[str, Any]) -> bytes:
    """Return the output line; it begins with a line feed, as the rank may be in the middle of a line."""
    return b"\n" + json.dumps({"event": "drilled", **details}).encode() + b"\n"


def kill_rank(pid: int) -> None:
    """Kill the rank and its helpers, which are in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def list_checkpoints(folder: str) -> dict[str, CheckpointStamp]:
    """Return the stamps of the entries of a folder that may be checkpoints."""
    found: dict[str, CheckpointStamp] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith((".", *IGNORED_PREFIXES)) or name.endswith(IGNORED_SUFFIXES):
                continue
            files = list(_list_files(os.path.join(folder, name)))
            if sum(size for size, _ in files):
                found[name] = len(files), sum(size for size, _ in files), max(changed for _, changed in files)
    return found


def _list_files(path: str) -> Iterator[tuple[int, int]]:
    with contextlib.suppress(OSError):
        if not os.path.isdir(path):
            about = os.stat(path)
            yield about.st_size, about.st_mtime_ns
            return
    for parent, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                about = os.stat(os.path.join(parent, name))
                yield about.st_size, about.st_mtime_ns
