"""Texts in the language of the request."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import lazy
from django.utils.translation import get_language
from django.utils.translation.trans_real import parse_accept_lang_header

from fermi import messages


def get_request_language() -> str:
    """Return the language of the request; the default outside of one."""
    return messages.match_language(get_language() or "") or messages.DEFAULT


def parse_accept_language(header: str) -> str:
    """Return the language of an Accept-Language header, outside of Django."""
    tags = (tag for tag, _ in parse_accept_lang_header(header))
    return next(filter(None, map(messages.match_language, tags)), messages.DEFAULT)


def render_text(code: str, params: Mapping[str, Any] | None = None, lang: str | None = None) -> tuple[str, str]:
    """Return message and hint. A live stream outlives its request's language: it reads `get_request_language()` first
    and passes it."""
    return messages.render_text(code, lang or get_request_language(), **(params or {}))


lazy_admin_text = lazy(
    lambda code, **parts: messages.render_sentence("admin", code, get_request_language(), **parts), str
)
"""`lazy_admin_text("ENVIRONMENT")`: a text of the operators' console (messages/<language>/admin.toml), in the reader's
language."""
