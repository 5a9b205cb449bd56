"""Parsers for nested values that a user's program may have written: what does not have the parser's shape becomes None,
texts are cut, lists and tables end where a runner's would, and characters that no database stores are removed."""

from collections.abc import Callable
from itertools import islice
from typing import Any

from fermi.schema import sanitize

Parser = Callable[[Any], Any]
"""Function that returns the value in its safe form; None: it has no such form."""

MAX_NAME_CHARS, MAX_TEXT_CHARS = 200, 500
MAX_COUNT = (1 << 53) - 1
"""Largest number that every reader of JSON keeps exact."""


def build_text_parser(max_chars: int = MAX_TEXT_CHARS) -> Parser:
    """Return a parser of texts, cut at `max_chars`."""
    return lambda value: sanitize.sanitize_text(value[:max_chars]) if isinstance(value, str) else None


def build_number_parser(low: float, high: float, *, integer: bool = False) -> Parser:
    """Return a parser of numbers from `low` to `high`."""
    kinds = int if integer else int | float

    def take(value: Any) -> Any:
        return value if isinstance(value, kinds) and not isinstance(value, bool) and low <= value <= high else None

    return take


def parse_bool(value: Any) -> bool | None:
    """Return a bool; None for anything else."""
    return value if isinstance(value, bool) else None


def build_list_parser(parse: Parser, max_items: int) -> Parser:
    """Return a parser of lists of at most `max_items`; items that `parse` refuses are left out."""
    return lambda value: (
        [one for item in value[:max_items] if (one := parse(item)) is not None] if isinstance(value, list) else None
    )


def build_table_parser(parse: Parser, max_items: int) -> Parser:
    """Return a parser of objects of at most `max_items` with any names; values that `parse` refuses are left out."""

    def taken(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        pairs = (
            (sanitize.sanitize_text(str(name)[:MAX_NAME_CHARS]), parse(one))
            for name, one in islice(value.items(), max_items)
        )
        return {name: one for name, one in pairs if one is not None}

    return taken


def build_record_parser(**parsers: Parser) -> Parser:
    """Return a parser of objects: the result has all of these names, and no other; None where none has a value."""

    def taken(value: Any) -> dict[str, Any] | None:
        if not isinstance(value, dict):
            return None
        found = {name: take(value.get(name)) for name, take in parsers.items()}
        return found if any(one is not None for one in found.values()) else None

    return taken


NAME, TEXT = build_text_parser(MAX_NAME_CHARS), build_text_parser()
MOMENT = build_number_parser(0, 1e11)
SECONDS = build_number_parser(0, 1e9)
SIZE = build_number_parser(0, MAX_COUNT, integer=True)
LINE = build_number_parser(0, 1 << 31, integer=True)
SIZES = build_list_parser(build_list_parser(SIZE, 8), 8)

ERROR = build_record_parser(
    type=NAME, message=TEXT, file=TEXT, line=LINE, function=NAME, at=MOMENT, step=SIZE, refused=NAME
)
"""Exception that ended a rank; `refused`: how its sandbox kept it from the path that this names."""
_PORT = build_number_parser(0, 65535, integer=True)
_RANK = build_number_parser(0, 1 << 20, integer=True)
_SHARE = build_number_parser(0, 1)
_STACK = build_list_parser(TEXT, 16)
KILL = build_record_parser(
    by=NAME, scope=NAME, limit=SIZE, used=SIZE, gpu=SIZE, xid=SIZE, line=TEXT, processes=SIZE,
    port=_PORT, holder=TEXT, task=NAME, rank=_RANK, started=parse_bool, fixed=parse_bool,
)  # fmt: skip
"""What the kernel reports of a rank's end: `by` memory (`scope`, `limit`, `used`), a GPU (`gpu`, `xid`, `line`) or a
port (the program that listens on it: `holder`, of which `task` and `rank`, and whether it was `started` by a rank of
this one; `fixed`: it is not the port at which the platform has the ranks meet). `by` left: the rank had ended well, and
its runner ended so many `processes` that it left running, one of them `line`."""
_LINK = build_record_parser(peer=NAME, port=_PORT, unacked=SIZE, retries=SIZE, seconds=SECONDS)
_COLLECTIVE = build_record_parser(seq=SIZE, op=NAME, sizes=SIZES, dtype=NAME, state=NAME, group=NAME)
_FLIGHT = build_record_parser(
    groups=build_table_parser(build_record_parser(enqueued=SIZE, completed=SIZE), 64),
    last=build_list_parser(_COLLECTIVE, 4),
)
_OPERATION = build_record_parser(
    op=NAME, seq=SIZE, group=NAME, sizes=SIZES, ranks=build_list_parser(SIZE, 64), name=NAME, root=SIZE,
)  # fmt: skip
STALLED = build_record_parser(
    since=MOMENT, looked_at=MOMENT, looks=SIZE, still=parse_bool, phase=NAME, step=SIZE,
    **{"in": NAME, "for": SECONDS},
    op=_OPERATION, at=TEXT, stack=_STACK, threads=build_list_parser(TEXT, 8), cpu=SECONDS, state=NAME, waits=NAME,
    links=build_list_parser(_LINK, 16), flight=_FLIGHT, ras=build_list_parser(TEXT, 24),
    children=parse_bool, moves=parse_bool, timed=parse_bool, locked=parse_bool, gpu=parse_bool,
    stopped=build_record_parser(pid=SIZE, signal=NAME, tracer=NAME),
)  # fmt: skip
TRAINER = build_record_parser(step=SIZE, total=SIZE, epoch=build_number_parser(0, 1e9), every=SIZE)
PULSE = build_record_parser(
    rank=_RANK, at=MOMENT, phase=NAME, step=SIZE, stepped_at=MOMENT, step_seconds=SECONDS,
    collectives=SIZE, waiting=_SHARE, printed_at=MOMENT, gpu_bytes=SIZE, rss_bytes=SIZE, cpu=SECONDS,
    starved=_SHARE, throttled=_SHARE, stolen=_SHARE, squeezed=_SHARE, read=SIZE, written=SIZE,
    world_size=SIZE, joined_as=SIZE, trainer=TRAINER, gpu_open=parse_bool, cpu_build=parse_bool,
    compiles=SIZE, recompiled=SIZE, recompiled_at=SIZE, compiling=SECONDS,
    compiler=build_record_parser(gave_up=TEXT),
    place=build_record_parser(at=TEXT, inside=TEXT, share=_SHARE),
    gpu=build_record_parser(clock=SIZE, most=SIZE, temperature=SIZE, slowed=NAME),
)  # fmt: skip
