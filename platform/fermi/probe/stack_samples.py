"""Samples where the main thread of a rank is in its script between its collectives: the thread that reads the
collectives' counts (`collectives`) reads its innermost frame five times a second, without a signal and without stopping
it. Standard library only, Python 3.9 or later.

Statistical profilers do the same (`sys._current_frames`, in sentry_sdk/profiler of getsentry/sentry-python). Frames are
released within a sample, so that no object of the script lives longer for it.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from functools import lru_cache
from types import FrameType
from typing import Any

from . import errors

MAX_LOOKS = 50
"""Ten seconds of samples: a runner's window."""
MAX_FRAMES = 40
MAX_TEXT_LENGTH = 120
SampledPlace = tuple[str, str, int, str]
"""The file and the function of the script's own innermost frame, its line, and the library function that it called
(empty: none)."""


class StackSampler:
    """Keeps the samples. `main`: the identity of the main thread."""

    def __init__(self, main: int) -> None:
        self.main = main
        self.looks: deque[SampledPlace | None] = deque(maxlen=MAX_LOOKS)

    def take_sample(self, *, waits: bool) -> None:
        """Take a sample. `waits`: the rank is in a collective, so it is in none of its own code."""
        self.looks.append(None if waits else _find_place(sys._current_frames().get(self.main)))

    def most(self) -> dict[str, Any]:
        """Return where the rank was most often: `at` (such as `data.py:88 in load_batch`), `inside` (the library
        function) and `share` of the samples, 0 to 1. Empty if it only waits."""
        found = [place for place in self.looks if place]
        if not found:
            return {}
        (file, function), count = Counter(place[:2] for place in found).most_common(1)[0]
        there = [place[2:] for place in found if place[:2] == (file, function)]
        (line, inside), _ = Counter(there).most_common(1)[0]
        where = f" in {function}" if function != "<module>" else ""
        at = f"{errors.make_relative(file)}:{line}{where}"
        return {
            "at": at[-MAX_TEXT_LENGTH:],
            "inside": inside[-MAX_TEXT_LENGTH:],
            "share": round(count / len(self.looks), 2),
        }


def _find_place(frame: FrameType | None) -> SampledPlace | None:
    inside = ""
    for _ in range(MAX_FRAMES):
        if frame is None:
            return None
        code = frame.f_code
        if _is_own(code.co_filename):
            return code.co_filename, code.co_name, frame.f_lineno or 0, inside
        inside = inside or f"{code.co_name} ({_shorten_path(code.co_filename)})"
        frame = frame.f_back
    return None


_is_own = lru_cache(1000)(errors.is_own)


@lru_cache(1000)
def _shorten_path(file: str) -> str:
    """Return the path without the folder of installed packages."""
    for folder in ("/site-packages/", "/dist-packages/"):
        if folder in file:
            return file.rpartition(folder)[2]
    return "/".join(file.rsplit("/", 2)[-2:])
