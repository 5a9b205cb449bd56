"""Texts in the language of the request."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import lazy
from django.utils.translation import get_language
from django.utils.translation.trans_real import parse_accept_lang_header

from fermi import messages


def language() -> str:
    """Return the language of the request; the default outside of one."""
    return messages.known(get_language() or "") or messages.DEFAULT


def asked_for(header: str) -> str:
    """Return the language of an Accept-Language header, outside of Django."""
    tags = (tag for tag, _ in parse_accept_lang_header(header))
    return next(filter(None, map(messages.known, tags)), messages.DEFAULT)


def text(code: str, params: Mapping[str, Any] | None = None, lang: str | None = None) -> tuple[str, str]:
    """Return message and hint. A live stream outlives its request's language: it reads `get_request_language()` first
    and passes it."""
    return messages.text(code, lang or language(), **(params or {}))


said = lazy(lambda code, **parts: messages.say("admin", code, language(), **parts), str)
"""`lazy_admin_text("ENVIRONMENT")`: a text of the operators' console (messages/<language>/admin.toml), in the reader's
language."""
