"""Texts in the language of the request."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import lazy
from django.utils.translation import get_language

from fermi import messages


def language() -> str:
    """`zh` or `en`: what Accept-Language asked for; zh outside a request."""
    return "en" if (get_language() or "").startswith("en") else "zh"


def text(code: str, params: Mapping[str, Any] | None = None, lang: str | None = None) -> tuple[str, str]:
    """(message, hint). A live stream outlives its request's language: take `language()` first and pass it."""
    return messages.text(code, lang or language(), **(params or {}))


both = lazy(lambda zh, en: en if language() == "en" else zh, str)
"""`both("环境", "environment")`: a text of the operators' console, in the language of whoever reads it."""
