"""Serializes findings for the API, in the reader's language."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from apps.common.clock import now
from apps.common.texts import get_request_language, render_text
from apps.training.core import checkpoint_choice
from apps.training.presenters import task_presenter
from fermi import messages
from fermi.diagnosis import Action, Evidence, Where, diagnose
from fermi.diagnosis.actions import TEXT_PREFIX
from fermi.messages import NestedText


def translate_text(nested: NestedText) -> tuple[str, str]:
    """Return (message, hint) of a nested text, empty for a code that was removed. A parameter that is a list of texts
    is joined into one."""
    params = {name: _join_texts(value) if _is_list(value) else value for name, value in nested.params.items()}
    found = task_presenter.serialize_reason(nested.code, params)
    return (found["message"], found["hint"]) if found else ("", "")


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], NestedText)


def _join_texts(parts: Any) -> str:
    lang, each = get_request_language(), (translate_text(one)[0] for one in parts)
    return reduce(lambda first, rest: messages.render_text("LISTED", lang, first=first, rest=rest)[0], each)


def serialize_finding(stored: diagnose.StoredFinding, actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the finding as the API answers it, with these actions."""
    finding = stored.finding
    message, hint = translate_text(NestedText(finding.code, finding.params))
    return {
        "code": finding.code,
        "level": finding.level,
        "message": message,
        "hint": hint,
        "since": _to_datetime(finding.since),
        "until": _to_datetime(stored.until),
        "attempt": stored.attempt,
        "where": [_serialize_where(one) for one in finding.where],
        "evidence": [_serialize_evidence(one) for one in finding.evidence],
        "actions": list(actions),
    }


def serialize_action(action: Action, params: Mapping[str, Any], *, allowed: bool) -> dict[str, Any]:
    """Return the action as the API answers it."""
    said = (
        {**action.params, "field": NestedText("FIELD_LABEL", action.params)}
        if "field" in action.params
        else action.params
    )
    label, hint = render_text(f"{TEXT_PREFIX}{action.code}", said)
    return {"code": action.code, "label": label, "hint": hint, "params": dict(params), "allowed": allowed}


def describe_resume_point(point: checkpoint_choice.ResumePoint, *, running: bool) -> str:
    """Return a sentence that says where training would resume, and how many steps would be lost. `running`: its ranks
    may save once more."""
    params = {**({"lost": f"{point.lost:,}"} if point.lost else {}), **({"running": True} if running else {})}
    if not point.knows_how and point.seconds:
        about: dict[str, Any] = {"duration": diagnose.describe_duration(point.seconds)}
        about |= {"step": f"{point.step:,}"} if point.step is not None else {}
        return translate_text(NestedText("RESTART_BEGINS_ANEW", about))[0]
    if point.saved_at is None:
        return translate_text(NestedText("RESUME_POINT_NONE", params))[0]
    age = diagnose.describe_duration((now() - point.saved_at).total_seconds())
    return translate_text(NestedText("RESUME_POINT", {"step": f"{point.step:,}", "age": age, **params}))[0]


def _serialize_evidence(evidence: Evidence) -> dict[str, Any]:
    return {
        "message": translate_text(NestedText(evidence.code, evidence.params))[0],
        "lines": list(evidence.lines),
        "where": _serialize_where(evidence.where),
    }


def _serialize_where(where: Where) -> dict[str, Any]:
    return {"rank": where.rank, "nodeRank": where.node_rank, "node": where.node}


def _to_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
