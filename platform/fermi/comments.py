"""Comments in what is to be JSON, which has none: documents that show a request often explain it by them."""

import re
from typing import NamedTuple

MAX_SHOWN = 60
"""Characters of a comment that is shown."""
_COMMENT = re.compile(r"\s*(//[^\n]*|/\*.*?(?:\*/|$)|#[^\n]*)", re.DOTALL)


class Comment(NamedTuple):
    """`line` counts from 1."""

    line: int
    text: str


def find_comment(text: str, position: int) -> Comment | None:
    """Returns the comment at the character where a JSON parser stopped; None where there is another mistake."""
    found = _COMMENT.match(text, position)
    if not found:
        return None
    words = " ".join(found[1].split())
    shown = words if len(words) <= MAX_SHOWN else f"{words[: MAX_SHOWN - 1]}…"
    return Comment(text.count("\n", 0, found.start(1)) + 1, shown)
