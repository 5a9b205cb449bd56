"""Serializes findings for the API, in the reader's language."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from apps.common.clock import now
from apps.common.texts import language, text
from apps.training.core import checkpoint_choice
from apps.training.presenters import task_presenter
from fermi import messages
from fermi.diagnosis import Action, Evidence, Where, diagnose
from fermi.diagnosis.actions import LABEL
from fermi.messages import Words


def said(words: Words) -> tuple[str, str]:
    """Return (message, hint) of a nested text, empty for a code that was removed. A parameter that is a list of texts
    is joined into one."""
    params = {name: _joined(value) if _is_list(value) else value for name, value in words.params.items()}
    found = task_presenter.reason(words.code, params)
    return (found["message"], found["hint"]) if found else ("", "")


def _is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], Words)


def _joined(parts: Any) -> str:
    lang, each = language(), (said(one)[0] for one in parts)
    return reduce(lambda first, rest: messages.text("LISTED", lang, first=first, rest=rest)[0], each)


def shown(told: diagnose.Told, actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the finding as the API answers it, with these actions."""
    finding = told.finding
    message, hint = said(Words(finding.code, finding.params))
    return {
        "code": finding.code,
        "level": finding.level,
        "message": message,
        "hint": hint,
        "since": _moment(finding.since),
        "until": _moment(told.until),
        "attempt": told.attempt,
        "where": [_where(one) for one in finding.where],
        "evidence": [_evidence(one) for one in finding.evidence],
        "actions": list(actions),
    }


def action(one: Action, params: Mapping[str, Any], *, allowed: bool) -> dict[str, Any]:
    """Return the action as the API answers it."""
    said = {**one.params, "field": Words("FIELD_LABEL", one.params)} if "field" in one.params else one.params
    label, hint = text(f"{LABEL}{one.code}", said)
    return {"code": one.code, "label": label, "hint": hint, "params": dict(params), "allowed": allowed}


def resume_point(point: checkpoint_choice.Point, *, running: bool) -> str:
    """Return a sentence that says where training would resume, and how many steps would be lost. `running`: its ranks
    may save once more."""
    params = {**({"lost": f"{point.lost:,}"} if point.lost else {}), **({"running": True} if running else {})}
    if point.saved_at is None:
        return said(Words("RESUME_POINT_NONE", params))[0]
    age = diagnose.span((now() - point.saved_at).total_seconds())
    return said(Words("RESUME_POINT", {"step": f"{point.step:,}", "age": age, **params}))[0]


def _evidence(one: Evidence) -> dict[str, Any]:
    return {"message": said(Words(one.code, one.params))[0], "lines": list(one.lines), "where": _where(one.where)}


def _where(one: Where) -> dict[str, Any]:
    return {"rank": one.rank, "nodeRank": one.node_rank, "node": one.node}


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
