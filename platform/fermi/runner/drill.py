"""The node runner's part in a drill: kills one rank once training has saved a checkpoint. Standard library only, Python
3.9 or later.

FERMI_DRILL in the ranks' environment (`{"rank": 1}`) asks for it, so that it comes along on every engine. The rank is
killed when something new lies in FERMI_CHECKPOINT_DIR that is complete: it was the same at two looks, or something
newer has come since. A step must have been made after that, too; where steps cannot be seen, some seconds must have
passed.

What was done is a line of the killed rank's output, so that it is read as what ranks print is, exactly once:

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

VARIABLE = "FERMI_DRILL"
LOOK_SECONDS = 1.0
SINCE_SECONDS = 3.0
NO_CHECKPOINT = (".partial", ".tmp", ".lock", ".json", ".jsonl", ".log", ".txt", ".yaml", ".yml", ".csv", ".md")
NO_CHECKPOINTS = ("events.out.tfevents", "logs", "runs", "wandb", "tensorboard")

Seen = tuple[int, int, int]
"""Of a file, or of a folder with all that is in it: how many files, their bytes, the newest change."""


class Drill:
    """`rank`: who is to be killed; `steps` tells how many it has made, None where that cannot be seen."""

    def __init__(self, rank: int, folder: str, steps: Callable[[], int | None] = lambda: None) -> None:
        self.rank, self.folder, self.steps = rank, folder, steps
        self.before = self.seen = look(folder)
        self.look_at = 0.0
        self.saved: tuple[str, int, float, int | None] | None = None  # path, bytes, when, steps then

    @classmethod
    def of(cls, spec: Mapping[str, Any], steps: Callable[[int], int | None] = lambda _: None) -> Drill | None:
        """Where the spec asks for one, and the rank is here."""
        env = {**os.environ, **spec["env"]}
        with contextlib.suppress(ValueError, KeyError, TypeError):
            rank = json.loads(env[VARIABLE])["rank"]
            if any(entry["rank"] == rank for entry in spec["ranks"]):
                return cls(rank, env.get("FERMI_CHECKPOINT_DIR", ""), lambda: steps(rank))
        return None

    def due(self) -> dict[str, Any] | None:
        """What was saved, when the rank is to be killed now."""
        if time.monotonic() < self.look_at:
            return None
        self.look_at = time.monotonic() + LOOK_SECONDS
        now, earlier = look(self.folder), self.seen
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
        if not stepped and time.monotonic() < when + SINCE_SECONDS:
            return None
        return {"path": path, "size_bytes": size, "time": time.time()}


def say(about: Mapping[str, Any]) -> bytes:
    """The line; the rank may be in the middle of one."""
    return b"\n" + json.dumps({"event": "drilled", **about}).encode() + b"\n"


def kill(pid: int) -> None:
    """The rank and its helpers, which are in its group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def look(folder: str) -> dict[str, Seen]:
    """What lies directly in the folder and may be a checkpoint."""
    found: dict[str, Seen] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith((".", *NO_CHECKPOINTS)) or name.endswith(NO_CHECKPOINT):
                continue
            files = list(_files(os.path.join(folder, name)))
            if sum(size for size, _ in files):
                found[name] = len(files), sum(size for size, _ in files), max(changed for _, changed in files)
    return found


def _files(path: str) -> Iterator[tuple[int, int]]:
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
