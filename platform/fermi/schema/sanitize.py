"""What a database and a page can hold of a text or number that came from outside."""

import math
from typing import Any


def text(value: str) -> str:
    """PostgreSQL's JSON has neither NUL nor halves of surrogate pairs."""
    return value.replace("\0", "�").encode(errors="replace").decode()


def params(value: Any) -> Any:
    """What fills a text: the same, but for such characters and for numbers that JSON does not have."""
    match value:
        case str():
            return text(value)
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {text(str(name)): params(one) for name, one in value.items()}
        case list():
            return [params(one) for one in value]
        case _:
            return value
