"""Removes from foreign texts and numbers what a database and a page cannot hold."""

import math
from typing import Any


def sanitize_text(value: str) -> str:
    """Return the text without NUL and halves of surrogate pairs, which PostgreSQL's JSON does not have."""
    return value.replace("\0", "�").encode(errors="replace").decode()


def sanitize_params(value: Any) -> Any:
    """Return a text's parameters with every string sanitized, and None for numbers that JSON does not have."""
    match value:
        case str():
            return sanitize_text(value)
        case float() if not math.isfinite(value):
            return None
        case dict():
            return {sanitize_text(str(name)): sanitize_params(one) for name, one in value.items()}
        case list():
            return [sanitize_params(one) for one in value]
        case _:
            return value
