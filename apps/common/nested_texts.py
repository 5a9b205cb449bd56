"""Texts whose parameters are codes: each code is replaced by its own text."""

from collections.abc import Mapping
from typing import Any

from apps.common.texts import render_text
from fermi import messages

UNKNOWN_CAUSE = "CAUSE_UNKNOWN"
CODE_PARAMS = ("cause", "outcome", "reason")
"""Parameters that are codes. So is `why`, whose text is filled from `about`."""


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
