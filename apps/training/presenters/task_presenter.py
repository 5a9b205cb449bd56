"""How stored things look in the API, in the reader's language."""

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
    message, hint = text(found.code, found.params, lang)
    return {"field": found.field, "error": found.code, "message": message, "hint": hint}


def warning(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str]:
    message, hint = text(code, explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


OF_THE_QUEUE = {"ENVIRONMENTS_BUSY", "ENVIRONMENTS_IN_USE"}
"""Warnings of a request that say nothing once its task has its environments."""


def ending(seen: Mapping[str, Any], culprit: int | None) -> str | None:
    """How a rank of the newest attempt ended, None while it has not: it was `done`; it `failed`, and nobody before it;
    it failed `after` another; or it was `ended`, by a signal that the platform sends once another has failed or a stop
    was asked for."""
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
    """None when there is nothing to explain."""
    if not code:
        return None
    message, hint = said(code, explained(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


def cause(code: str, params: Mapping[str, Any], lang: str | None = None) -> str:
    """Returns what ends of one cause have in common: without the rank, the node and the figures of any of them."""
    told = outcomes.common(params)
    if "why" in told:
        return said(told["why"], told.get("about", {}), lang)[0].rstrip(".。")
    if "exception" in told:
        return " — ".join(filter(None, (told["exception"], told["at"])))
    return said(code, told, lang)[0] if code else ""


def alike(code: str, params: Mapping[str, Any], common: Mapping[str, Any], lang: str | None = None) -> str:
    """Returns the text of a reason that several tasks have, of which they have `common` in common."""
    return said(code, {**dict.fromkeys(params, outcomes.LEFT_OUT), **common}, lang)[0]


def worst(found: Mapping[str, Any] | None, lang: str | None = None) -> dict[str, Any] | None:
    """The worst that is found to be wrong with a task, at a glance."""
    if not found:
        return None
    params = found["params"]
    if isinstance(params, str):  # SQLite writes a document within a document as a text
        params = orjson.loads(params)
    message, _ = said(found["code"], explained(params, lang), lang)
    return {"code": found["code"], "level": found["level"], "message": message}


def why(task: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """What a task waits for, or ended by, from its row as it is now (`WHY`): its reason, unless perhaps nobody is at
    work on it. Then that is what it waits for, whatever a pass wrote down before."""
    if silent := silence(task):
        return warning(Reason.PROCESS_SILENT, silent, lang)
    return reason(task["reason"], task["reason_params"], lang)


def silence(task: Mapping[str, Any]) -> dict[str, str] | None:
    """Since when perhaps nobody is at work on it, and when somebody will be; None: somebody is."""
    since = task["claimed_at"]
    if since is None or now() - since < SILENT:
        return None
    return {"since": _clock(since), "at": _clock(since + CLAIM)}


def again(task: Mapping[str, Any]) -> float:
    """In how many seconds `why` may say something else without any change of the row."""
    left = (task["claimed_at"] + SILENT - now()).total_seconds() if task["claimed_at"] else 0.0
    return left if left > 0 else math.inf


WHY = ("reason", "reason_params", "claimed_at")


def _clock(moment: datetime) -> str:
    return f"{localtime(moment):%H:%M:%S %Z}"


def proposal(job: JobSpec, lang: str | None = None) -> dict[str, Any] | None:
    """None when nothing was left empty."""
    chosen = plugins.framework(job.framework).propose(job)
    if not (chosen.strategy or chosen.options):
        return None
    reasons = [warning(reason.code, reason.params, lang) for reason in chosen.reasons]
    return {"strategy": chosen.strategy, "options": chosen.options, "reasons": reasons}


def runs_in(node: Node, lang: str | None = None) -> dict[str, str] | None:
    """Return where the node's ranks run, and why; None where its engine has only one way."""
    if node.way is None:
        return None
    message, _ = said(node.way.code, explained(node.way.params, lang), lang)
    return {"way": "inside" if node.way.inside else "beside", "code": node.way.code, "message": message}


def batch(job: JobSpec) -> dict[str, Any] | None:
    """None where only the user's own script knows."""
    found = plugins.framework(job.framework).effective_batch(job)
    return found.to_json() if found else None


def expectation(found: Expectation, lang: str | None = None) -> dict[str, Any]:
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
    message, hint = text(row["code"], explained(row["params"], lang), lang)
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
                else encode(content, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
            )
            objects.append({"kind": artifact["kind"], "name": artifact["name"], "content": written})
    return files, objects
