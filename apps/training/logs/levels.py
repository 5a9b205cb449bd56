"""Parses the level and the time of a log line from its own words. Pure, and never raises.

    2026-11-22 10:00:00,123 - trainer - WARNING - …      Python's logging, loguru, DeepSpeed, Ray, Go, Rust
    WARNING:root:…    [INFO|trainer.py:1] 2026-11-22 …   a level first
    [rank0]:[W1122 10:00:00.123456789 …] …               PyTorch, glog, absl: no year
    [2026-11-22 10:00:00] host:1:2 [0] … NCCL WARN …     NCCL
    Traceback (most recent call last):    ValueError: …  Python's own
    {"level": "error", "timestamp": "2026-…", …}         JSON

A line without a level belongs to the line above it, as the lines of a traceback do: `LevelContext` carries it from line
to line. What ends that: an object in JSON, a progress bar, a line that has a time but no level, and any line that is
not indented, except for MAX_MESSAGE_LINES below an exception, whose message may have several.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple

import orjson

LEVELS = ("debug", "info", "warning", "error")

MAX_REACH_BYTES = 16 << 10
"""Bytes from the beginning of a line with a level or time to the last line that takes them over. Without such a bound a
line's level would depend on where reading began."""

MAX_MESSAGE_LINES = 10
"""Lines below an exception that are not indented and still belong to it."""

MAX_HEAD_LENGTH = 256  # characters of a line that are searched for its level and time

LEVEL_WORDS = {
    **dict.fromkeys(("TRACE", "DEBUG", "VERBOSE"), "debug"),
    **dict.fromkeys(("INFO", "NOTICE", "SUCCESS"), "info"),
    **dict.fromkeys(("WARN", "WARNING"), "warning"),
    **dict.fromkeys(("ERR", "ERROR", "CRIT", "CRITICAL", "FATAL", "SEVERE"), "error"),
}
LEVEL_LETTERS = {"V": "debug", "D": "debug", "I": "info", "W": "warning", "E": "error", "F": "error", "C": "error"}
ERROR_BEGINNINGS = {
    "Traceback": "Traceback (most recent call last)",
    "Exception": "Exception in thread ",
    "Fatal": "Fatal Python error",
    "terminate": "terminate called ",
    "Segmentation": "Segmentation fault",
    "Bus": "Bus error",
    "Aborted": "Aborted (core dumped)",
}
ERROR_SUFFIXES = ("Error", "Exception", "KeyboardInterrupt")
JSON_HINTS = ('"level', '"severity"', '"time', '"ts"', '"@timestamp"', '"asctime"')
JSON_LEVELS = ("level", "levelname", "severity")
JSON_TIMES = ("time", "timestamp", "@timestamp", "ts", "asctime")

# All of them are anchored and bounded, so that none takes longer than its few characters.
RANK_PREFIX = re.compile(
    r"\[(?:rank|default)?[\d,]{1,12}\](?:<std(?:err|out)>)?:? ?|\([\w ]{0,40}pid=\d{1,10}[^)]{0,60}\) "
)
TIMESTAMP = re.compile(
    r"[\[(]?(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(?: ?(Z|[+-]\d\d:?\d\d)(?!\d))?"
)
US_TIMESTAMP = re.compile(r"[\[(]?(\d\d)/(\d\d)/(\d{4}|\d\d) (\d\d:\d\d:\d\d)")
YEARLESS_TIMESTAMP = re.compile(r"(\d\d)-(\d\d) (\d\d:\d\d:\d\d)")  # vLLM
TIME_ONLY = re.compile(r"[\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")  # of an unknown day
GLOG_PREFIX = re.compile(r"\[?([VDIWEFC])(\d{1,2})(\d\d) (\d\d:\d\d:\d\d(?:\.\d{1,9})?)")
NEMO_PREFIX = re.compile(r"\[NeMo ([DIWEC]) ")
SEPARATORS = "[](){}<>|:;,-*>"


class LineLevel(NamedTuple):
    """Level and time of a line. `alone`: the line continues none above it; `raised`: of an exception."""

    level: str | None = None
    at: datetime | None = None
    alone: bool = False
    raised: bool = False


NO_LEVEL, STANDALONE = LineLevel(), LineLevel(alone=True)


class TimestampParser:
    """Converts the times in lines to datetimes. A time without a zone is in `zone`. One without a year is in the year
    in which it is closest to `near()`, a moment of the attempt, which is called only then."""

    def __init__(self, near: Callable[[], datetime], zone: tzinfo = UTC) -> None:
        self._near, self._zone = near, zone

    def stamp(self, match: re.Match[str]) -> datetime | None:
        """Return the datetime of a match of TIMESTAMP."""
        text, zone = match.groups()
        return self.moment(text.replace("/", "-"), zone)

    def moment(self, text: str, zone: str | None = None) -> datetime | None:
        """Return the datetime; None for a day that does not exist."""
        try:
            at = datetime.fromisoformat(text + zone if zone else text)
            if zone is None and self._zone is UTC:
                return at.replace(tzinfo=UTC)
            return (at if zone else at.replace(tzinfo=self._zone)).astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    def yearless(self, month: str, day: str, clock: str) -> datetime | None:
        """Return the datetime in the year in which it is closest to the attempt."""
        near = self._near()
        years = (near.year - 1, near.year, near.year + 1)
        found = [self.moment(f"{year:04}-{month:0>2}-{day}T{clock}") for year in years]  # 29 February: one at most
        return min((at for at in found if at), key=lambda at: abs(at - near), default=None)

    def parse_time(self, text: str) -> datetime | None:
        """Return the time that `text` begins with; None if it begins with none."""
        if found := TIMESTAMP.match(text):
            return self.stamp(found)
        if found := YEARLESS_TIMESTAMP.match(text):
            return self.yearless(*found.groups())
        return None

    @staticmethod
    def seconds(at: float) -> datetime | None:
        """Return the datetime of seconds since 1970, or milliseconds; None for a small number, which is a duration."""
        try:
            return datetime.fromtimestamp(at / 1000 if at > 1e11 else at, UTC) if at > 1e9 else None
        except (ValueError, OverflowError, OSError):
            return None


class LevelContext:
    """Level and time that the lines read so far give to the next one."""

    def __init__(self, clock: TimestampParser) -> None:
        self._clock = clock
        self._level: str | None = None
        self._at: datetime | None = None
        self._level_from = self._at_from = self._message_lines = 0
        self._skipped: list[tuple[int, bytes]] = []

    def skip(self, offset: int, raw: bytes) -> None:
        """Pass a line that the filter rejected. It is parsed only if a later line may belong to it."""
        skipped = self._skipped
        skipped.append((offset, raw))
        if offset - skipped[0][0] > 2 * MAX_REACH_BYTES:
            self._skipped = [line for line in skipped if offset - line[0] <= MAX_REACH_BYTES]

    def classify_line(self, offset: int, text: str) -> tuple[str | None, datetime | None]:
        """Return the level and the time of the next line."""
        if self._skipped:
            skipped, self._skipped = self._skipped, []
            for before, raw in skipped:
                self._take(before, raw.decode(errors="replace"))
        return self._take(offset, text)

    def _take(self, offset: int, text: str) -> tuple[str | None, datetime | None]:
        said = parse_level(text, self._clock)
        if said is NO_LEVEL and self._level is None and self._at is None:
            return None, None
        level, at, alone, raised = said
        if at is not None:
            self._at, self._at_from = at, offset
        elif self._at is not None and offset - self._at_from > MAX_REACH_BYTES:
            self._at = None
        if level is not None or alone:
            self._level, self._level_from = level, offset
            self._message_lines = MAX_MESSAGE_LINES if raised else 0
        elif self._level is not None:
            if text[:1] not in {"", " ", "\t"}:
                self._message_lines -= 1
            if self._message_lines < 0 or offset - self._level_from > MAX_REACH_BYTES:
                self._level = None
        return self._level, self._at


def parse_level(text: str, clock: TimestampParser) -> LineLevel:
    """Return the level and time in a line itself. A line without either costs about a microsecond."""
    head = text[:MAX_HEAD_LENGTH]
    if "%|" in head:
        return STANDALONE
    first = head[:1]
    if first in {"[", "("} and (prefix := RANK_PREFIX.match(head)):
        head = head[prefix.end() :]
        first = head[:1]
    if first in {"", " ", "\t"}:
        return NO_LEVEL
    if first == "{":
        return _parse_object(text[text.index("{") :], clock)
    if first in {"[", "("} or first.isdigit():
        return _parse_stamped(head, clock)
    if first in LEVEL_LETTERS and head[1:2].isdigit() and (glog := GLOG_PREFIX.match(head)):
        return _parse_glog(glog, clock)
    return _parse_worded(head, clock)


def _parse_worded(head: str, clock: TimestampParser) -> LineLevel:
    """Parse a line that begins with a word."""
    word = head.partition(" ")[0]
    name, colon, more = word.partition(":")
    if level := LEVEL_WORDS.get(name.upper() if colon and not more else name):
        return LineLevel(level, clock.parse_time(head[len(name) :].lstrip(": [-|")))
    if name.endswith(ERROR_SUFFIXES) and (colon or word == head) and name.replace(".", "_").isidentifier():
        return LineLevel("error", raised=True)
    if name in ERROR_BEGINNINGS and head.startswith(ERROR_BEGINNINGS[name]):
        return LineLevel("error", raised=True)
    if ": " in head:
        if "arning: " in head and _is_warning(head):
            return LineLevel("warning")
        if ": error: " in head or ": fatal error: " in head:
            return LineLevel("error")
    if " NCCL " in head:
        return LineLevel(_parse_nccl(head), alone=True)
    return _parse_logfmt(head, clock) if "level=" in head else NO_LEVEL


def _is_warning(head: str) -> bool:
    """Return True for `train.py:12: UserWarning: …`, `Warning: …` and `cc: warning: …`."""
    place, _, category = head.partition("arning: ")[0][:-1].rpartition(" ")
    return (not place or place.endswith(":")) and (not category or category.isidentifier())


def _parse_logfmt(head: str, clock: TimestampParser) -> LineLevel:
    words = dict(pair.partition("=")[::2] for pair in head.split())
    level = LEVEL_WORDS.get(words.get("level", "").strip('"').upper())
    return LineLevel(level, clock.parse_time((words.get("time") or words.get("ts") or "").strip('"')))


def _parse_nccl(head: str) -> str | None:
    return LEVEL_WORDS.get(head.partition(" NCCL ")[2].partition(" ")[0])


def _parse_stamped(head: str, clock: TimestampParser) -> LineLevel:
    """Parse a line that begins with a time, or with something in brackets."""
    if found := TIMESTAMP.match(head):
        at = clock.stamp(found)
    elif found := US_TIMESTAMP.match(head):
        month, day, year, hours = found.groups()
        at = clock.moment(f"{year if len(year) == 4 else '20' + year}-{month}-{day}T{hours}")
    elif found := TIME_ONLY.match(head):
        at = None
    elif glog := GLOG_PREFIX.match(head):
        return _parse_glog(glog, clock)
    elif nemo := NEMO_PREFIX.match(head):
        return LineLevel(LEVEL_LETTERS[nemo[1]], clock.parse_time(head[nemo.end() :]))
    else:
        return _parse_bracketed(head, clock)
    rest = head[found.end() :]
    return LineLevel(_parse_nccl(rest) if " NCCL " in rest else _find_level(rest), at, alone=True)


def _parse_glog(match: re.Match[str], clock: TimestampParser) -> LineLevel:
    letter, month, day, hours = match.groups()
    return LineLevel(LEVEL_LETTERS[letter], clock.yearless(month, day, hours))


def _parse_bracketed(head: str, clock: TimestampParser) -> LineLevel:
    """Parse `[INFO|trainer.py:1] 2026-…` and `[WARNING] …`."""
    inside, _, rest = head[1:].partition("]" if head[0] == "[" else ")")
    level = LEVEL_WORDS.get(inside.replace("|", ":").partition(":")[0].strip())
    return LineLevel(level, clock.parse_time(rest.lstrip(" :-|["))) if level else NO_LEVEL


def _find_level(rest: str) -> str | None:
    """Return the first word behind a time that is a level, where a level may be."""
    before = ""
    for place, word in enumerate(rest.split(None, 6)[:6]):
        bare = word.strip(SEPARATORS)
        if before == ":" and bare in LEVEL_LETTERS:  # TensorFlow
            return LEVEL_LETTERS[bare]
        level = LEVEL_WORDS.get(bare.partition(":")[0])
        if level and (place < 2 or bare != word or before[-1] in "]):|->"):
            return level
        before = word
    return None


def _parse_object(text: str, clock: TimestampParser) -> LineLevel:
    """Parse a line in JSON, or a dict as Python prints it."""
    if not any(hint in text for hint in JSON_HINTS):
        return STANDALONE
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return STANDALONE
    level = next((found[key] for key in JSON_LEVELS if isinstance(found.get(key), str)), "")
    at = next((found[key] for key in JSON_TIMES if key in found), None)
    if isinstance(at, str):
        moment = clock.parse_time(at)
    else:
        moment = clock.seconds(at) if isinstance(at, int | float) else None
    return LineLevel(LEVEL_WORDS.get(level.upper()), moment, alone=True)
