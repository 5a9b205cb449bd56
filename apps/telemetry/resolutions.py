"""How finely values are kept, and for how long.

| grain | kept | a block holds |
|---|---|---|
| 15 s | 2 days | 30 minutes |
| 1 min | 14 days | 4 hours |
| 10 min | a year | 2 days |

So a subject has at most 98 + 86 + 185 blocks, however long it lives; tests hold this to be so.
"""

from typing import NamedTuple

MINUTE, HOUR, DAY = 60, 3600, 86_400


class Grain(NamedTuple):
    """Seconds from value to value, that a block spans, and that blocks are kept."""

    seconds: int
    block: int
    kept: int

    @property
    def values(self) -> int:
        return self.block // self.seconds

    def begin(self, at: float) -> int:
        """Of the block that a moment (unix seconds) falls into."""
        return int(at // self.block) * self.block


FINE = Grain(15, 30 * MINUTE, 2 * DAY)
COARSE = (Grain(60, 4 * HOUR, 14 * DAY), Grain(600, 2 * DAY, 365 * DAY))
"""Made from the fine one, in the background."""
GRAINS = (FINE, *COARSE)
LATE, EARLY = 5 * MINUTE, 2 * MINUTE
"""A value that comes later than this, or from a clock that is ahead by more, is not kept."""


def most_blocks(grain: Grain) -> int:
    """Of one subject: those that are kept whole, one in the making, and one that waits to be removed."""
    return -(-grain.kept // grain.block) + 2
