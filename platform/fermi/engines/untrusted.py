"""Parsers for nested values that a user's program may have written: what does not have the parser's shape becomes None,
texts are cut, lists and tables end where a runner's would, and characters that no database stores are removed."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from fermi.schema import sanitize

Take = Callable[[Any], Any]
"""Function that returns the value in its safe form; None: it has no such form."""

MOST_NAME, MOST_TEXT = 200, 500
COUNT = (1 << 53) - 1
"""Largest number that every reader of JSON keeps exact."""


def text(most: int = MOST_TEXT) -> Take:
    """Return a parser of texts, cut at `max_chars`."""
    return lambda value: sanitize.text(value[:most]) if isinstance(value, str) else None


def number(low: float, high: float, *, whole: bool = False) -> Take:
    """Return a parser of numbers from `low` to `high`."""
    kinds = int if whole else int | float

    def take(value: Any) -> Any:
        return value if isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high else None

    return take


def truth(value: Any) -> bool | None:
    """Return a bool; None for anything else."""
    return value if isinstance(value, bool) else None


def several(take: Take, most: int) -> Take:
    """Return a parser of lists of at most `max_items`; items that `parse` refuses are left out."""
    return lambda value: (
        [one for item in value[:most] if (one := take(item)) is not None] if isinstance(value, list) else None
    )


def table(take: Take, most: int) -> Take:
    """Return a parser of objects of at most `max_items` with any names; values that `parse` refuses are left out."""

    def taken(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        pairs = ((sanitize.text(str(name)[:MOST_NAME]), take(one)) for name, one in islice(value.items(), most))
        return {name: one for name, one in pairs if one is not None}

    return taken


def record(**takes: Take) -> Take:
    """Return a parser of objects: the result has all of these names, and no other; None where none has a value."""

    def taken(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        found = {name: take(value.get(name)) for name, take in takes.items()}
        return found if any(one is not None for one in found.values()) else None

    return taken


NAME, TEXT = text(MOST_NAME), text()
MOMENT = number(0, 1e11)
SECONDS = number(0, 1e9)
SIZE = number(0, COUNT, whole=True)
LINE = number(0, 1 << 31, whole=True)
SIZES = several(several(SIZE, 8), 8)

ERROR = record(type=NAME, message=TEXT, file=TEXT, line=LINE, function=NAME, at=MOMENT, step=SIZE, refused=NAME)
"""Exception that ended a rank; `refused`: how its sandbox kept it from the path that this names."""
_PORT = number(0, 65535, whole=True)
_RANK = number(0, 1 << 20, whole=True)
_SHARE = number(0, 1)
_STACK = several(TEXT, 16)
KILL = record(
    by=NAME, scope=NAME, limit=SIZE, used=SIZE, gpu=SIZE, xid=SIZE, line=TEXT, processes=SIZE,
    port=_PORT, holder=TEXT, task=NAME, rank=_RANK, started=truth, fixed=truth,
)  # fmt: skip
"""What the kernel reports of a rank's end: `by` memory (`scope`, `limit`, `used`), a GPU (`gpu`, `xid`, `line`) or a
port (the program that listens on it: `holder`, of which `task` and `rank`, and whether it was `started` by a rank of
this one; `fixed`: it is not the port at which the platform has the ranks meet). `by` left: the rank had ended well, and
its runner ended so many `processes` that it left running, one of them `line`."""
_LINK = record(peer=NAME, port=_PORT, unacked=SIZE, retries=SIZE, seconds=SECONDS)
_COLLECTIVE = record(seq=SIZE, op=NAME, sizes=SIZES, dtype=NAME, state=NAME, group=NAME)
_FLIGHT = record(groups=table(record(enqueued=SIZE, completed=SIZE), 64), last=several(_COLLECTIVE, 4))
_OPERATION = record(
    op=NAME, seq=SIZE, group=NAME, sizes=SIZES, ranks=several(SIZE, 64), name=NAME, root=SIZE,
)  # fmt: skip
STALLED = record(
    since=MOMENT, looked_at=MOMENT, looks=SIZE, still=truth, phase=NAME, step=SIZE,
    **{"in": NAME, "for": SECONDS},
    op=_OPERATION, at=TEXT, stack=_STACK, threads=several(TEXT, 8), cpu=SECONDS, state=NAME, waits=NAME,
    links=several(_LINK, 16), flight=_FLIGHT, ras=several(TEXT, 24),
    children=truth, moves=truth, timed=truth, locked=truth, gpu=truth,
    stopped=record(pid=SIZE, signal=NAME, tracer=NAME),
)  # fmt: skip
TRAINER = record(step=SIZE, total=SIZE, epoch=number(0, 1e9), every=SIZE)
PULSE = record(
    rank=_RANK, at=MOMENT, phase=NAME, step=SIZE, stepped_at=MOMENT, step_seconds=SECONDS,
    collectives=SIZE, waiting=_SHARE, printed_at=MOMENT, gpu_bytes=SIZE, rss_bytes=SIZE, cpu=SECONDS,
    starved=_SHARE, throttled=_SHARE, stolen=_SHARE, squeezed=_SHARE, read=SIZE, written=SIZE,
    world_size=SIZE, joined_as=SIZE, trainer=TRAINER, gpu_open=truth, cpu_build=truth,
    compiles=SIZE, recompiled=SIZE, recompiled_at=SIZE, compiling=SECONDS,
    compiler=record(gave_up=TEXT),
    place=record(at=TEXT, inside=TEXT, share=_SHARE),
    gpu=record(clock=SIZE, most=SIZE, temperature=SIZE, slowed=NAME),
)  # fmt: skip
