"""Finds comments in text that should be JSON, which has none: documents often explain an example request with them."""

import re
from typing import NamedTuple

MAX_COMMENT_LENGTH = 60
"""Characters of a comment that are shown."""
_COMMENT = re.compile(r"\s*(//[^\n]*|/\*.*?(?:\*/|$)|#[^\n]*)", re.DOTALL)


class Comment(NamedTuple):
    """A comment and its line, counted from 1."""

    line: int
    text: str


def find_comment(text: str, position: int) -> Comment | None:
    """Return the comment at the character where a JSON parser stopped, or None if the mistake is another one."""
    found = _COMMENT.match(text, position)
    if not found:
        return None
    words = " ".join(found[1].split())
    shown = words if len(words) <= MAX_COMMENT_LENGTH else f"{words[: MAX_COMMENT_LENGTH - 1]}…"
    return Comment(text.count("\n", 0, found.start(1)) + 1, shown)
