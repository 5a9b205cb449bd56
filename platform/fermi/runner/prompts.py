"""Recognizes in the output of a rank that it asks somebody something and waits: its last line is a question that is not
finished by a line feed, and nothing follows it. Standard library only, Python 3.9 or later.

    Password: ▏        Do you wish to continue? [y/N] ▏        (Pdb) ▏
"""

from __future__ import annotations

import re
from typing import Any

from fermi.runner.pulse import RankOutput

QUIET_SECONDS = 8.0
"""So long nothing follows a question that waits. With the second in which a rank is examined, and those in which its
log is read, it is named within 20 s."""
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
    """Examines the output of one rank, once a second."""

    def __init__(self, output: RankOutput, now: float) -> None:
        self._output = output
        self._size, self._changed_at = -1, now
        self._examined = True
        self._asked = ""
        self._count = 0

    def update(self, now: float) -> dict[str, Any] | None:
        """Return what is to be recorded: the question that the rank waits with, `answered` once its output goes on, or
        None. `now`: monotonic."""
        size = self._output.size()
        if size != self._size:
            self._size, self._changed_at, self._examined = size, now, False
            asked, self._asked = self._asked, ""
            return {"kind": "answered", "text": asked} if asked else None
        if self._examined or now - self._changed_at < QUIET_SECONDS or self._count >= MAX_PROMPTS:
            return None
        self._examined = True
        self._asked = find_question(self._output.tail())
        if not self._asked:
            return None
        self._count += 1
        return {"kind": "output", "text": self._asked}


def find_question(tail: bytes) -> str:
    """Return the question that output ends with; empty if it ends with none."""
    line = _CONTROL.sub(b"", tail[-1024:].rpartition(b"\n")[2].rpartition(b"\r")[2])
    text = line[-MAX_LENGTH:].decode("utf-8", "replace").strip()
    return text if text and _QUESTION.search(text) else ""
