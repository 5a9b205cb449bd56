"""Texts in the language of the request."""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import lazy
from django.utils.translation import get_language
from django.utils.translation.trans_real import parse_accept_lang_header

from fermi import messages

UNKNOWN_CAUSE = "CAUSE_UNKNOWN"
CODE_PARAMS = ("cause", "outcome", "reason")
"""Parameters that are codes. So is `why`, whose text is filled from `about`."""


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


def resolve_params(params: Mapping[str, Any], lang: str | None) -> dict[str, Any]:
    """Return the parameters with codes replaced by their texts. An earlier one may be part of the next one's text."""
    found = dict(params)
    if isinstance(about := params.get("about"), Mapping) and isinstance(why := params.get("why"), str):
        message, found["whyHint"] = render_code(why, about, lang)
        found["why"] = message.rstrip(".。")
    for name in CODE_PARAMS:
        if isinstance(code := params.get(name), str) and code.isupper():
            message, hint = render_code(code, found, lang)
            found[name] = message.rstrip(".。")
            if name == "cause":
                found["advice"] = hint
    return found


def render_code(code: str, params: Mapping[str, Any], lang: str | None) -> tuple[str, str]:
    """Return message and hint of a code. For a code without a text, as of an engine that was removed, they contain the
    code and its parameters."""
    if messages.has_text(code):
        return render_text(code, params, lang)
    hidden = ("advice", "about", "whyHint", *CODE_PARAMS)
    rest = ", ".join(f"{name}: {value}" for name, value in sorted(params.items()) if name not in hidden)
    return render_text(UNKNOWN_CAUSE, {"code": code, "said": rest or None}, lang)


def serialize_reason(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """Return a reason with its text; None if there is none."""
    if not code:
        return None
    message, hint = render_code(code, resolve_params(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


def serialize_error(error: Mapping[str, Any] | None) -> dict[str, str] | None:
    """Return a stored error, whose code stands beside its parameters, with its text; None if there is none."""
    if not error:
        return None
    return serialize_reason(error["code"], {name: value for name, value in error.items() if name != "code"})
