"""Serializes stored values for the API, in the reader's language."""

import math
import signal
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
from django.utils.timezone import localtime

from apps.common.clock import now
from apps.common.encoding import encode
from apps.common.nested_texts import explained, said
from apps.common.texts import text
from apps.training.core import outcomes
from apps.training.states.limits import CLAIM, SILENT
from apps.training.states.reasons import Reason
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.planning import plugins
from fermi.planning.scaling import Expectation


def problem(found: Problem, lang: str | None = None) -> dict[str, str]:
    """Return a problem of a request with its text."""
    message, hint = text(found.code, found.params, lang)
    return {"field": found.field, "error": found.code, "message": message, "hint": hint}


def warning(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str]:
    """Return a warning with its text."""
    message, hint = text(code, explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


OF_THE_QUEUE = {"ENVIRONMENTS_BUSY", "ENVIRONMENTS_IN_USE"}
"""Warnings of a request that no longer matter once the task has its environments."""


def ending(seen: Mapping[str, Any], culprit: int | None) -> str | None:
    """Return how a rank of the newest attempt ended, None while it has not: `done`; `failed`, and none before it;
    `after` another had failed; or `ended`, by a signal that the platform sends once another rank has failed or a stop
    was requested."""
    code = seen.get("exit_code")
    if seen.get("state") != "exited" or code is None:
        return None
    if code == 0:
        return "done"
    if culprit == seen["rank"]:
        return "failed"
    if seen.get("asked") and (code in _SENT or 128 - code in _SENT):
        return "ended"
    return "failed" if culprit is None else "after"


_SENT = {-signal.SIGTERM, -signal.SIGKILL}


def reason(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """Return a reason with its text; None if there is none."""
    if not code:
        return None
    message, hint = said(code, explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


def cause(code: str, params: Mapping[str, Any], lang: str | None = None) -> str:
    """Return the text of a cause without the rank, the node and the numbers of any single failure."""
    told = outcomes.common(params)
    if "why" in told:
        return said(told["why"], told.get("about", {}), lang)[0].rstrip(".。")
    if "exception" in told:
        return " — ".join(filter(None, (told["exception"], told["at"])))
    return said(code, told, lang)[0] if code else ""


def alike(code: str, params: Mapping[str, Any], common: Mapping[str, Any], lang: str | None = None) -> str:
    """Return the text of a reason that several tasks have, with only the parameters that they have in `common`."""
    return said(code, {**dict.fromkeys(params, outcomes.LEFT_OUT), **common}, lang)[0]


def worst(found: Mapping[str, Any] | None, lang: str | None = None) -> dict[str, Any] | None:
    """Return the most severe open finding of a task with its text; None if there is none."""
    if not found:
        return None
    params = found["params"]
    if isinstance(params, str):  # SQLite writes a document within a document as a text
        params = orjson.loads(params)
    message, _ = said(found["code"], explained(params, lang), lang)
    return {"code": found["code"], "level": found["level"], "message": message}


def why(task: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """Return what a task waits for, or ended by, from its row (`REASON_COLUMNS`): the stored reason, unless its pass
    may be dead. Then that is what it waits for."""
    if silent := silence(task):
        return warning(Reason.PROCESS_SILENT, silent, lang)
    return reason(task["reason"], task["reason_params"], lang)


def silence(task: Mapping[str, Any]) -> dict[str, str] | None:
    """Return since when the task's pass may be dead, and when another one takes over; None if it is not."""
    since = task["claimed_at"]
    if since is None or now() - since < SILENT:
        return None
    return {"since": _clock(since), "at": _clock(since + CLAIM)}


def again(task: Mapping[str, Any]) -> float:
    """Return in how many seconds `explain_task` may say something else without a change of the row; infinity if it will
    not."""
    left = (task["claimed_at"] + SILENT - now()).total_seconds() if task["claimed_at"] else 0.0
    return left if left > 0 else math.inf


WHY = ("reason", "reason_params", "claimed_at")


def _clock(moment: datetime) -> str:
    return f"{localtime(moment):%H:%M:%S %Z}"


def proposal(job: JobSpec, lang: str | None = None) -> dict[str, Any] | None:
    """Return the values that the framework chose for what the request left empty; None if nothing was left empty."""
    chosen = plugins.framework(job.framework).propose(job)
    if not (chosen.strategy or chosen.options):
        return None
    reasons = [warning(reason.code, reason.params, lang) for reason in chosen.reasons]
    return {"strategy": chosen.strategy, "options": chosen.options, "reasons": reasons}


def runs_in(node: Node, lang: str | None = None) -> dict[str, str] | None:
    """Return where the node's ranks run, and why; None if its engine has only one way."""
    if node.way is None:
        return None
    message, _ = said(node.way.code, explained(node.way.params, lang), lang)
    return {"way": "inside" if node.way.inside else "beside", "code": node.way.code, "message": message}


def batch(job: JobSpec) -> dict[str, Any] | None:
    """Return the effective batch; None if only the user's own script knows it."""
    found = plugins.framework(job.framework).effective_batch(job)
    return found.to_json() if found else None


def expectation(found: Expectation, lang: str | None = None) -> dict[str, Any]:
    """Return the scaling estimate as the API answers it."""

    def span(limits: tuple[float, float]) -> dict[str, float]:
        return {"low": limits[0], "high": limits[1]}

    return {
        "rows": [
            {"nodes": row.nodes, "processes": row.ranks, "theoretical": row.theoretical,
             "speedup": span(row.speedup), "efficiency": span(row.efficiency)}
            for row in found.rows
        ],
        "stepSeconds": span(found.step_seconds),
        "tokensPerSecond": span(found.tokens_per_second),
        "preflightId": found.network.measured or None,
        "reasons": [warning(reason.code, reason.params, lang) for reason in found.reasons],
    }  # fmt: skip


def event(row: dict[str, Any], lang: str | None = None) -> dict[str, Any]:
    """Return the event with its text."""
    message, hint = text(row["code"], explained(row["params"], lang), lang)
    return {**row, "message": message, "hint": hint}


def artifacts(stored: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return what a backend received (or would receive): the plan's files, and the engine's own objects as text."""
    files, objects = [], []
    for artifact in stored:
        content = artifact["content"]
        if artifact["kind"] == "file":
            files.append({"name": artifact["name"], "content": content})
        else:
            written = (
                content
                if isinstance(content, str)
                else encode(content, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
            )
            objects.append({"kind": artifact["kind"], "name": artifact["name"], "content": written})
    return files, objects
