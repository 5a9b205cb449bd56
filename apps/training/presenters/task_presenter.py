"""Serializes stored values for the API, in the reader's language."""

import math
import signal
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
from django.utils.timezone import localtime

from apps.common.clock import now
from apps.common.encoding import encode_json
from apps.common.texts import render_code, render_text, resolve_params, serialize_reason
from apps.training.core import outcomes
from apps.training.states.deadlines import PASS_CLAIM_TIMEOUT, PASS_SILENT_AFTER
from apps.training.states.reasons import TaskReason
from fermi.jobs.spec import JobSpec, Node, Problem
from fermi.planning import plugins
from fermi.planning.scaling import ScalingEstimate


def serialize_problem(problem: Problem, lang: str | None = None) -> dict[str, str]:
    """Return a problem of a request with its text."""
    message, hint = render_text(problem.code, problem.params, lang)
    return {"field": problem.field, "error": problem.code, "message": message, "hint": hint}


def serialize_warning(code: str, params: Mapping[str, Any], lang: str | None = None) -> dict[str, str]:
    """Return a warning with its text."""
    message, hint = render_text(code, resolve_params(params, lang), lang)
    return {"code": code, "message": message, "hint": hint}


QUEUE_WARNINGS = {"ENVIRONMENTS_BUSY", "ENVIRONMENTS_IN_USE"}
"""Warnings of a request that no longer matter once the task has its environments."""


def classify_ending(rank: Mapping[str, Any], culprit: int | None) -> str | None:
    """Return how a rank of the newest attempt ended, None while it has not: `done`; `failed`, and none before it;
    `after` another had failed; or `ended`, by a signal that the platform sends once another rank has failed or a stop
    was requested."""
    code = rank.get("exit_code")
    if rank.get("state") != "exited" or code is None:
        return None
    if code == 0:
        return "done"
    if culprit == rank["rank"]:
        return "failed"
    if rank.get("asked") and (code in _PLATFORM_SIGNALS or 128 - code in _PLATFORM_SIGNALS):
        return "ended"
    return "failed" if culprit is None else "after"


_PLATFORM_SIGNALS = {-signal.SIGTERM, -signal.SIGKILL}


def describe_cause(code: str, params: Mapping[str, Any], lang: str | None = None) -> str:
    """Return the text of a cause without the rank, the node and the numbers of any single failure."""
    told = outcomes.mask_params(params)
    if "why" in told:
        return render_code(told["why"], told.get("about", {}), lang)[0].rstrip(".。")
    if "exception" in told:
        return " — ".join(filter(None, (told["exception"], told["at"])))
    return render_code(code, told, lang)[0] if code else ""


def describe_common_reason(
    code: str, params: Mapping[str, Any], common: Mapping[str, Any], lang: str | None = None
) -> str:
    """Return the text of a reason that several tasks have, with only the parameters that they have in `common`."""
    return render_code(code, {**dict.fromkeys(params, outcomes.PLACEHOLDER), **common}, lang)[0]


def serialize_worst_finding(finding: Mapping[str, Any] | None, lang: str | None = None) -> dict[str, Any] | None:
    """Return the most severe open finding of a task with its text; None if there is none."""
    if not finding:
        return None
    params = finding["params"]
    if isinstance(params, str):  # SQLite writes a document within a document as a text
        params = orjson.loads(params)
    message, _ = render_code(finding["code"], resolve_params(params, lang), lang)
    return {"code": finding["code"], "level": finding["level"], "message": message}


def explain_task(task: Mapping[str, Any], lang: str | None = None) -> dict[str, str] | None:
    """Return what a task waits for, or ended by, from its row (`REASON_COLUMNS`): the stored reason, unless its pass
    may be dead. Then that is what it waits for."""
    if silent := find_silence(task):
        return serialize_warning(TaskReason.PROCESS_SILENT, silent, lang)
    return serialize_reason(task["reason"], task["reason_params"], lang)


def find_silence(task: Mapping[str, Any]) -> dict[str, str] | None:
    """Return since when the task's pass may be dead, and when another one takes over; None if it is not."""
    since = task["claimed_at"]
    if since is None or now() - since < PASS_SILENT_AFTER:
        return None
    return {"since": _format_time(since), "at": _format_time(since + PASS_CLAIM_TIMEOUT)}


def get_recheck_delay(task: Mapping[str, Any]) -> float:
    """Return in how many seconds `explain_task` may say something else without a change of the row; infinity if it will
    not."""
    left = (task["claimed_at"] + PASS_SILENT_AFTER - now()).total_seconds() if task["claimed_at"] else 0.0
    return left if left > 0 else math.inf


REASON_COLUMNS = ("reason", "reason_params", "claimed_at")


def _format_time(moment: datetime) -> str:
    return f"{localtime(moment):%H:%M:%S %Z}"


def serialize_proposal(job: JobSpec, lang: str | None = None) -> dict[str, Any] | None:
    """Return the values that the framework chose for what the request left empty; None if nothing was left empty."""
    chosen = plugins.get_framework(job.framework).propose(job)
    if not (chosen.strategy or chosen.options):
        return None
    reasons = [serialize_warning(reason.code, reason.params, lang) for reason in chosen.reasons]
    return {"strategy": chosen.strategy, "options": chosen.options, "reasons": reasons}


def serialize_run_location(node: Node, lang: str | None = None) -> dict[str, str] | None:
    """Return where the node's ranks run, and why; None if its engine has only one way."""
    if node.way is None:
        return None
    message, _ = render_code(node.way.code, resolve_params(node.way.params, lang), lang)
    return {"way": "inside" if node.way.inside else "beside", "code": node.way.code, "message": message}


def serialize_batch(job: JobSpec) -> dict[str, Any] | None:
    """Return the effective batch; None if only the user's own script knows it."""
    found = plugins.get_framework(job.framework).effective_batch(job)
    return found.to_json() if found else None


def serialize_scaling(expectation: ScalingEstimate, lang: str | None = None) -> dict[str, Any]:
    """Return the scaling estimate as the API answers it."""

    def span(limits: tuple[float, float]) -> dict[str, float]:
        return {"low": limits[0], "high": limits[1]}

    return {
        "rows": [
            {"nodes": row.nodes, "processes": row.ranks, "theoretical": row.theoretical,
             "speedup": span(row.speedup), "efficiency": span(row.efficiency)}
            for row in expectation.rows
        ],
        "stepSeconds": span(expectation.step_seconds),
        "tokensPerSecond": span(expectation.tokens_per_second),
        "preflightId": expectation.network.measured or None,
        "reasons": [serialize_warning(reason.code, reason.params, lang) for reason in expectation.reasons],
    }  # fmt: skip


def serialize_event(row: dict[str, Any], lang: str | None = None) -> dict[str, Any]:
    """Return the event with its text."""
    message, hint = render_text(row["code"], resolve_params(row["params"], lang), lang)
    return {**row, "message": message, "hint": hint}


def serialize_artifacts(stored: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
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
                else encode_json(content, orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
            )
            objects.append({"kind": artifact["kind"], "name": artifact["name"], "content": written})
    return files, objects
