"""How stored things look in the API, in the reader's language."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from apps.common.texts import text
from apps.training.reasons import Reason
from fermi.launch import registry
from fermi.launch.spec import JobSpec, Problem


def problem(found: Problem, lang: str | None = None) -> dict[str, str]:
    message, hint = text(found.code, found.params, lang)
    return {"field": found.field, "error": found.code, "message": message, "hint": hint}


EXPLAINED = ("cause", "outcome", "reason")
"""Parameters that are themselves codes: a text that names one says what it means."""


def warning(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str]:
    message, hint = text(code, _explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


def reason(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """None when there is nothing to explain."""
    return warning(code, params, lang) if code else None


def proposal(job: JobSpec, lang: str | None = None) -> dict[str, Any] | None:
    """None when nothing was left empty."""
    chosen = registry.framework(job.framework).propose(job)
    if not (chosen.strategy or chosen.options):
        return None
    reasons = [warning(reason.code, reason.params, lang) for reason in chosen.reasons]
    return {"strategy": chosen.strategy, "options": chosen.options, "reasons": reasons}


def event(row: dict[str, Any], lang: str | None = None) -> dict[str, Any]:
    message, hint = text(row["code"], _explained(row["params"], lang), lang)
    return {**row, "message": message, "hint": hint}


def artifacts(stored: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """What a backend was (or would be) sent: the plan's files, and the engine's own objects as text."""
    files, objects = [], []
    for artifact in stored:
        content = artifact["content"]
        if artifact["kind"] == "file":
            files.append({"name": artifact["name"], "content": content})
        else:
            written = (
                content
                if isinstance(content, str)
                else orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
            )
            objects.append({"kind": artifact["kind"], "name": artifact["name"], "content": written})
    return files, objects


def _explained(params: Mapping[str, Any], lang: str | None) -> dict[str, Any]:
    """One that is named first may be part of the next one's text."""
    found = dict(params)
    for name in EXPLAINED:
        if _is_code(code := params.get(name)):
            message, hint = text(str(code), found, lang)
            found[name] = message.rstrip(".。")
            if name == "cause":
                found["advice"] = hint
    return found


def _is_code(word: Any) -> bool:
    return word in Reason.__members__ or str(word).startswith("PREFLIGHT_")
