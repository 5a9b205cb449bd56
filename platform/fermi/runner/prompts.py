"""Recognizes in the output of a rank that it asks somebody something and waits: its last line is a question that is not
finished by a line feed, nothing follows it, and the rank does nothing meanwhile: a script that prints a heading and
computes what belongs behind it does not ask. Standard library only, Python 3.9 or later.

    Password: ▏        Do you wish to continue? [y/N] ▏        (Pdb) ▏
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from fermi.runner.activity import IDLE_CPU_SHARE
from fermi.runner.pulse import RankOutput

QUIET_SECONDS = 8.0
"""So long nothing follows a question that waits. With the second in which a rank is examined, and those in which its
log is read, it is named within 20 s."""
IDLE_SECONDS = 4.0
"""The last part of it, in which the rank must be idle."""
MAX_PROMPTS = 10
"""Of a rank."""
MAX_LENGTH = 200
_CONTROL = re.compile(rb"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]|[\0-\x08\x0b-\x1f]")
_QUESTION = re.compile(
    r"(?ix) (?: \(i?pdb\+*\) | i?pdb\d*> | >>> | In\s\[\d+\]: ) \s* $"  # debuggers and shells
    r"| \[ y (?:es)? / n (?:o)? \] \s* [:?]? \s* $ | \( y (?:es)? / n (?:o)? (?:/\[fingerprint\])? \) \s* [:?]? \s* $"
    r"| (?: password | passphrase | passcode | token | api\ key | username ) [^\n]{0,120} : \s* $"
    r"| \b press \s (?: any \s key | \[? (?: enter | return ) \]? ) [^\n]{0,60} $"
    r"| \b (?: enter | type | choose | select | input | paste | confirm ) \b [^\n]{0,120} [:?>] \s* $"
    r"| \w [^\n]{0,150} \? \s* $"
)


class PromptDetector:
    """Examines the output of one rank, once a second. `measure`: returns the processor time that its processes have
    used so far, in seconds."""

    def __init__(self, output: RankOutput, now: float, measure: Callable[[], float]) -> None:
        self._output, self._measure = output, measure
        self._size, self._changed_at = -1, now
        self._examined = True
        self._question, self._asked = "", ""
        self._mark = (now, 0.0)  # when the question was found, and the processor time until then
        self._count = 0

    def update(self, now: float) -> dict[str, Any] | None:
        """Return what is to be recorded: the question that the rank waits with, `answered` once its output goes on, or
        None. `now`: monotonic."""
        size = self._output.size()
        if size != self._size:
            self._size, self._changed_at, self._examined, self._question = size, now, False, ""
            asked, self._asked = self._asked, ""
            return {"kind": "answered", "text": asked} if asked else None
        quiet = now - self._changed_at
        if self._examined or quiet < QUIET_SECONDS - IDLE_SECONDS or self._count >= MAX_PROMPTS:
            return None
        if not self._question:
            self._question = find_question(self._output.tail())
            self._examined = not self._question
            self._mark = (now, self._measure() if self._question else 0.0)
            return None
        since, used = self._mark
        if quiet < QUIET_SECONDS or now - since < IDLE_SECONDS:
            return None
        self._examined = True
        if self._measure() - used > IDLE_CPU_SHARE * (1 + now - since):
            return None
        self._asked = self._question
        self._count += 1
        return {"kind": "output", "text": self._asked}


def find_question(tail: bytes) -> str:
    """Return the question that output ends with; empty if it ends with none."""
    line = _CONTROL.sub(b"", tail[-1024:].rpartition(b"\n")[2].rpartition(b"\r")[2])
    text = line[-MAX_LENGTH:].decode("utf-8", "replace").strip()
    return text if text and _QUESTION.search(text) else ""
