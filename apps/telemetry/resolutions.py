"""Resolutions of stored values, and how long they are kept.

| grain | kept | a block holds |
|---|---|---|
| 15 s | 2 days | 30 minutes |
| 1 min | 14 days | 4 hours |
| 10 min | a year | 2 days |

So a subject has at most 98 + 86 + 185 blocks, however long it lives; tests hold this to be so.
"""

from typing import NamedTuple

MINUTE, HOUR, DAY = 60, 3600, 86_400


class Resolution(NamedTuple):
    """Seconds between values, seconds that a block spans, and seconds that blocks are kept."""

    seconds: int
    block: int
    kept: int

    @property
    def values(self) -> int:
        return self.block // self.seconds

    def find_block_start(self, at: float) -> int:
        """Return the beginning of the block that a moment (unix seconds) is in."""
        return int(at // self.block) * self.block


FINE = Resolution(15, 30 * MINUTE, 2 * DAY)
COARSE = (Resolution(60, 4 * HOUR, 14 * DAY), Resolution(600, 2 * DAY, 365 * DAY))
"""Made from the finest one, in the background."""
RESOLUTIONS = (FINE, *COARSE)
MAX_LATE_SECONDS, MAX_EARLY_SECONDS = 5 * MINUTE, 2 * MINUTE
"""A value that comes later than LATE, or from a clock that is ahead by more than EARLY, is dropped."""


def count_max_blocks(grain: Resolution) -> int:
    """Return the largest number of blocks of one subject: those that are kept, one in progress, and one that waits for
    its deletion."""
    return -(-grain.kept // grain.block) + 2
