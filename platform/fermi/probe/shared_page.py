"""The page of one rank: a mapped file that the rank writes and its runner reads. Standard library only, Python 3.9 or
later.

Every field has its own aligned eight bytes, so neither side needs a lock: a number is old or new and never half of
both. Moments are of CLOCK_MONOTONIC, which all processes of a host share; a runner converts them to unix seconds. Texts
are JSON after their length; the length is written last, and zero while the text is being written.
"""

from __future__ import annotations

import mmap
import struct

TYPE_CHECKING = False  # `typing` is slow to import, and this module is imported by every Python process of a rank
if TYPE_CHECKING:
    from typing import Any

    from .reader import PageValues

PAGE_BYTES = 8192
PULSE_VARIABLE = "FERMI_PULSE"
"""`<descriptor of the page>,<of the stacks>,<of the records>`, in a rank's environment, and the process that had them
first where others may have been started without; absent: the task has no probe."""

MAGIC = 0x31304D5245463033  # goes up with the layout
PHASES = ("starting", "compiling", "running", "evaluating", "saving", "ending")
"""What a rank is doing, as far as hooks see it: `starting` until its first optimizer step or collective."""

_NUMBER, _MOMENT, _LENGTH = struct.Struct("=Q"), struct.Struct("=d"), struct.Struct("=Q")

_NUMBERS = {
    "magic": 0,
    "pid": 8,
    "step": 16,  # optimizer steps that have ended
    "phase": 24,  # an index of PHASES
    "begun": 32,  # collectives
    "ended": 40,
    "gpu_bytes": 48,  # the most that was allocated on the GPU
    "evaluations": 56,
    "answers": 64,  # the thread that answers the runner (`stack_writer.py`), as the kernel numbers it; 0: none does
    "watches": 72,  # the thread that counts collectives
    "compiles": 80,  # that have ended
    "recompiled": 88,  # steps, after the first ones, in which something was compiled
    "recompiled_at": 96,  # the newest of these steps
    "world_size": 104,  # with which it makes its first process group
    "cpu_build": 112,  # 1: its torch was built without support for GPUs
    "most_steps": 240,  # that a process which had the page before has made
    "joined_as": 248,  # 1 + the rank as which it joins the group of all, where that is not its RANK
}
_MOMENTS = {
    "began": 256,  # when the probe did
    "stepped_at": 264,  # when the newest step ended
    "phase_at": 272,
    "collective_at": 280,  # when the one that is under way began; 0.0: none is
    "waited": 288,  # seconds in collectives, all that have ended together
    "stepping": 296,  # seconds from end to end of steps, all together
    "alive_at": 304,
    "asked_at": 312,  # written by the runner: when it last asked for the stacks
    "answered_at": 320,  # the `asked_at` that was last answered
    "compiling": 328,  # seconds, all together
}
_TEXTS = {
    "trainer": (120, 120),
    "compiler": (336, 176),
    "place": (512, 512),
    "collective": (1024, 1024),
    "error": (2048, 4096),
    "trace": (6144, 2048),
}
"""Offset and size. `trainer`: the `step`, of `total`, and the `epoch` that the script's trainer is at, and that it logs
`every` so many steps; `compiler`: what it gave up; `place`: where the main thread is between collectives; `collective`:
the newest one; `error`: the exception that ends the rank; `trace`: of the flight recorder."""


class SharedPage:
    """Maps a page. `descriptor`: of a file of PAGE_BYTES."""

    def __init__(self, descriptor: int) -> None:
        self.map = mmap.mmap(descriptor, PAGE_BYTES)

    def number(self, name: str, value: int) -> None:
        """Write a number."""
        _NUMBER.pack_into(self.map, _NUMBERS[name], value)

    def moment(self, name: str, value: float) -> None:
        """Write a moment in seconds."""
        _MOMENT.pack_into(self.map, _MOMENTS[name], value)

    def count(self, name: str) -> int:
        """Return the number of this name."""
        return int(_NUMBER.unpack_from(self.map, _NUMBERS[name])[0])

    def pid(self) -> int:
        """Return the process that owns the page."""
        return self.count("pid")

    def at(self, name: str) -> float:
        """Return the moment of this name, in seconds."""
        return float(_MOMENT.unpack_from(self.map, _MOMENTS[name])[0])

    def text(self, name: str, value: dict[str, Any]) -> None:
        """Write an object as JSON; one that is too large is left out as a whole."""
        import json  # slow to import, and most ranks write no text

        offset, room = _TEXTS[name]
        data = json.dumps(value).encode()
        if len(data) <= room - 8:
            _LENGTH.pack_into(self.map, offset, 0)
            self.map[offset + 8 : offset + 8 + len(data)] = data
            _LENGTH.pack_into(self.map, offset, len(data))

    def read(self) -> PageValues | None:
        """Return all values, or None if no probe of this layout has written (yet)."""
        from .reader import PageValues

        if _NUMBER.unpack_from(self.map, 0)[0] != MAGIC:
            return None
        numbers = {name: _NUMBER.unpack_from(self.map, at)[0] for name, at in _NUMBERS.items() if name != "magic"}
        moments = {name: _MOMENT.unpack_from(self.map, at)[0] for name, at in _MOMENTS.items()}
        phase = PHASES[min(numbers.pop("phase"), len(PHASES) - 1)]
        texts = {name: self._text(*place) for name, place in _TEXTS.items()}
        return PageValues(**{"phase": phase, **numbers, **moments, **texts})

    def _text(self, offset: int, room: int) -> dict[str, Any]:
        import json

        length = _LENGTH.unpack_from(self.map, offset)[0]
        try:
            found = json.loads(self.map[offset + 8 : offset + 8 + length]) if 0 < length <= room - 8 else {}
        except ValueError:  # torn
            return {}
        return found if isinstance(found, dict) else {}
