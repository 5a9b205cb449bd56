"""Filters lines of a log by text, level and time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.common.errors import ApiError
from apps.common.texts import render_text
from apps.training.logs.levels import LEVELS

MAX_PATTERN_SIZE = 2_000
"""Largest program of an expression, in RE2's instructions. A larger one may take a second for a single line."""

TOO_LARGE_MESSAGE = "pattern too large"
ERROR_CODES = {
    "invalid character class range": "REGEX_WHY_RANGE",
    "invalid escape sequence": "REGEX_WHY_ESCAPE",
    "invalid named capture group": "REGEX_WHY_NAME",
    "invalid perl operator": "REGEX_WHY_GROUP",
    "invalid repetition size": "REGEX_WHY_COUNT",
    "bad repetition operator": "REGEX_WHY_REPEATED",
    "no argument for repetition operator": "REGEX_WHY_NOTHING",
    "missing )": "REGEX_WHY_OPEN",
    "missing ]": "REGEX_WHY_OPEN_CLASS",
    "unexpected )": "REGEX_WHY_CLOSED",
    "trailing \\": "REGEX_WHY_BACKSLASH",
}
"""Error messages of RE2 and the codes of their texts."""

SEVERITY = {level: place for place, level in enumerate(LEVELS)}


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Conditions on lines; a condition that is None accepts all. `level`: this level and more severe ones. A line whose
    level or time is not known is rejected if that is filtered by."""

    matches: Callable[[bytes], object] | None = None
    level: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def accepts_text(self, raw: bytes) -> bool:
        """Return True if the line's text matches."""
        return self.matches is None or bool(self.matches(raw))

    def accepts_level(self, level: str | None, at: datetime | None) -> bool:
        """Return True if the line's level and time match."""
        if self.level is not None and (level is None or SEVERITY[level] < SEVERITY[self.level]):
            return False
        if self.since is not None and (at is None or at < self.since):
            return False
        return self.until is None or (at is not None and at <= self.until)


NO_FILTER = LogFilter()


def build_filter(query: Mapping[str, Any]) -> LogFilter:
    """Return the filter of a validated LogQuery."""
    search = query.get("search")
    matches = (build_regex_matcher if query.get("regex") else build_text_matcher)(search) if search else None
    wanted = LogFilter(matches, query.get("level"), query.get("since"), query.get("until"))
    return NO_FILTER if wanted == NO_FILTER else wanted


def build_text_matcher(search: str) -> Callable[[bytes], object]:
    """Return a function that matches lines containing the text, ignoring case."""
    folded = search.casefold()
    return lambda raw: folded in raw.decode(errors="replace").casefold()


def build_regex_matcher(search: str) -> Callable[[bytes], object]:
    """Return a function that matches lines by a regular expression, ignoring case. RE2 takes time linear in the line
    for every expression (docs/decisions/0055). Raises ApiError 400 for an invalid or too large expression."""
    import re2

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    try:
        compiled = re2.compile(search, options)
    except re2.error as wrong:
        said = wrong.args[0].decode(errors="replace")
        why, _, part = said.partition(": ")
        if why.startswith(TOO_LARGE_MESSAGE):
            raise ApiError(400, "REGEX_TOO_LARGE", "search", high=MAX_PATTERN_SIZE) from None
        why = render_text(ERROR_CODES[why])[0] if why in ERROR_CODES else why
        raise ApiError(400, "REGEX_INVALID", "search", search=search, why=why, part=part or search) from None
    if compiled.programsize > MAX_PATTERN_SIZE:
        raise ApiError(400, "REGEX_TOO_LARGE", "search", high=MAX_PATTERN_SIZE)
    found: Callable[[bytes], object] = compiled.search
    return found
