"""Tags of tasks: short names that people give, by which they find runs again. Pure."""

import re

MAX_TAGS, MAX_TAG_LENGTH = 50, 64
"""Of one task; of one tag, in characters."""
TAG_PATTERN = r"""^[^\s,"'()*+\-\x00-\x1f\x7f][^,"'()*\x00-\x1f\x7f]*$"""
"""No commas, quotes, brackets and asterisks, which mean something in a query over runs, and no `+` or `-` at the
beginning, by which `fermi tag` adds and removes."""


def is_tag(text: str) -> bool:
    """Return whether the text can be a tag."""
    return len(text) <= MAX_TAG_LENGTH and text == text.strip() and re.search(TAG_PATTERN, text) is not None
