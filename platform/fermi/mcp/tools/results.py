"""Tools for results: curves of a task, runs found by a query, runs compared."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from fermi.mcp.caller import Caller
from fermi.mcp.outside_text import clean_text, mark_text
from fermi.mcp.tools.definition import (
    ANSWER_BYTES,
    Answer,
    Arguments,
    Id,
    TaskArguments,
    Word,
    drop_none,
    fit,
    suggest,
    tool,
)

DEFAULT_METRICS = 4
FIRST = ("loss", "val_loss", "eval_loss", "train_loss", "accuracy", "val_accuracy")
"""Metrics that are shown where none are named."""


class ReadMetricsArguments(TaskArguments):
    metrics: list[Word] = Field(default_factory=list, max_length=10, description="Names; default: losses first.")
    points: int = Field(12, ge=2, le=200, description="Points of each curve: means of equal parts of its steps.")


@tool("runs:read", arguments=ReadMetricsArguments)
async def read_metrics(caller: Caller, arguments: ReadMetricsArguments) -> Answer:
    """Curves of a task: last value, lowest, highest, and the curve in a few points."""
    known = await caller.call("GET", "/runs/comparison", {"task": arguments.task_id})
    names = [one["name"] for one in known["metrics"]]
    chosen = arguments.metrics or _choose_metrics(names)
    curves = await _read_curves(caller, [arguments.task_id], chosen, arguments.points) if chosen else []
    others = [clean_text(name, 100) for name in names if name not in chosen]
    return drop_none({
        "id": arguments.task_id,
        "curves": fit([_summarise_curve(one, with_points=True) for one in curves], ANSWER_BYTES * 2),
        "otherMetrics": {"untrusted": True, "lines": fit(others, 800)} if others else None,
    }) | {"next": [] if curves else [suggest("read_logs", "NO_METRICS", task_id=arguments.task_id)]}  # fmt: skip


async def _read_curves(
    caller: Caller, tasks: Sequence[str], metrics: Sequence[str], points: int
) -> list[Mapping[str, Any]]:
    query = {"task": list(tasks), "metric": list(metrics), "points": points}
    found: list[Mapping[str, Any]] = (await caller.call("GET", "/runs/series", query))["series"]
    return found


def _choose_metrics(names: Sequence[str]) -> list[str]:
    first = [name for name in FIRST if name in names]
    return [*first, *(name for name in names if name not in first)][:DEFAULT_METRICS]


def _summarise_curve(series: Mapping[str, Any], *, with_points: bool) -> Answer:
    low = [value for value in series["low"] or series["y"] if value is not None]
    high = [value for value in series["high"] or series["y"] if value is not None]
    return drop_none({
        "metric": mark_text(series["metric"], most=100),
        "last": _round(series["last"]), "lastStep": series["lastStep"],
        "min": _round(min(low)) if low else None, "max": _round(max(high)) if high else None,
        "count": series["count"], "notFinite": series["notFinite"] or None,
        "points": [[_round(x), _round(y)] for x, y in zip(series["x"], series["y"], strict=False)]
        if with_points else None,
    })  # fmt: skip


def _round(value: float | None) -> float | None:
    """Return six digits of a number."""
    return None if value is None else float(f"{value:.6g}")


class CompareRunsArguments(Arguments):
    task_ids: list[Id] = Field(min_length=2, max_length=10, description="Ids of the tasks.")
    metrics: list[Word] = Field(default_factory=list, max_length=5, description="Default: losses first.")


@tool("runs:read", arguments=CompareRunsArguments)
async def compare_runs(caller: Caller, arguments: CompareRunsArguments) -> Answer:
    """Compare 2 to 10 tasks: parameters that differ, last, lowest and highest values, which has the lowest and the
    highest last value of each metric; of two, also what differs in code, data and environment."""
    tasks = list(dict.fromkeys(arguments.task_ids))
    known = await caller.call("GET", "/runs/comparison", {"task": tasks})
    metrics = arguments.metrics or _choose_metrics([one["name"] for one in known["metrics"] if one["runs"] > 1])
    curves = await _read_curves(caller, tasks, metrics, 50) if metrics else []
    differing = [one["name"] for one in known["parameters"] if one["differs"]]
    runs = [
        {"id": run["taskId"], "name": mark_text(run["taskName"], most=100), "status": run["status"],
         "parameters": {"untrusted": True, "values": {clean_text(name, 100): clean_text(run["parameters"][name], 100)
                                                      for name in differing[:15] if name in run["parameters"]}}}
        for run in known["runs"]
    ]  # fmt: skip
    answer: Answer = {"runs": fit(runs, ANSWER_BYTES // 2), "metrics": [_rank_runs(name, curves) for name in metrics]}
    if len(tasks) == 2:
        found = await caller.call("GET", "/runs/differences", {"left": tasks[0], "right": tasks[1]})
        answer["differences"] = fit([_summarise_difference(one) for one in found["differences"][:12]], 1200)
    best = next((one["lowest"] for one in answer["metrics"] if "lowest" in one), None)
    if best:
        answer["next"] = [suggest("resume_task", "LOWEST", task_id=best), suggest("clone_task", "LOWEST", task_id=best)]
    return answer


def _rank_runs(metric: str, curves: Sequence[Mapping[str, Any]]) -> Answer:
    found = {
        series["taskId"]: {key: value for key, value in _summarise_curve(series, with_points=False).items()
                           if key in ("last", "lastStep", "min", "max")}
        for series in curves if series["metric"] == metric
    }  # fmt: skip
    lasts = {task: one["last"] for task, one in found.items() if "last" in one}
    return drop_none({
        "metric": mark_text(metric, most=100), "values": found,
        "lowest": min(lasts, key=lasts.__getitem__, default=None),
        "highest": max(lasts, key=lasts.__getitem__, default=None),
    })  # fmt: skip


def _summarise_difference(difference: Mapping[str, Any]) -> Answer:
    return drop_none({
        "kind": difference["kind"],
        "values": {"untrusted": True, "name": clean_text(difference["name"], 100),
                   "left": clean_text(difference["left"], 120), "right": clean_text(difference["right"], 120)},
    })  # fmt: skip


class FindRunsArguments(Arguments):
    query: str = Field(
        "",
        max_length=2000,
        description="Conditions, such as: status:succeeded lr>1e-4 tag:baseline metric.val_loss<3.1 age<7d owner:ann. "
        "A space means and; or, -, parentheses work. Fields: id name owner project framework status reason gpus nodes "
        "created started ended age duration data model tag step loss param.NAME metric.NAME(.min .max .last .best).",
    )
    sort: Word | None = Field(None, description="A field, - in front from high to low: metric.val_loss.best, -created.")
    columns: list[Word] = Field(default_factory=list, max_length=10, description="Fields whose values are shown.")
    project: Id | None = None
    limit: int = Field(10, ge=1, le=100)
    cursor: str | None = Field(None, max_length=2000)


@tool("runs:read", arguments=FindRunsArguments)
async def find_runs(caller: Caller, arguments: FindRunsArguments) -> Answer:
    """Find tasks by what they were given and what came of it, in any order, with the values of columns."""
    query = {
        "query": arguments.query, "sort": arguments.sort, "column": arguments.columns, "project": arguments.project,
        "cursor": arguments.cursor, "pageSize": arguments.limit,
    }  # fmt: skip
    found = await caller.call("GET", "/runs", query)
    items = fit([_summarise_run(one) for one in found["items"]], ANSWER_BYTES)
    if len(items) < len(found["items"]):
        found = await caller.call("GET", "/runs", {**query, "pageSize": len(items)})
        items = [_summarise_run(one) for one in found["items"]]
    ids = [one["id"] for one in items[:2]]
    searched = found.get("searched")
    return drop_none({
        "next_cursor": found["nextCursor"], "complete": searched and searched["complete"],
        "unknownNames": [clean_text(name, 100) for name in found.get("unknownNames", ())[:10]],
    }) | {"runs": items, "next": [suggest("compare_runs", "FOUND", task_ids=ids)] if len(ids) == 2 else []}  # fmt: skip


def _summarise_run(row: Mapping[str, Any]) -> Answer:
    task = row["task"]
    values = {clean_text(name, 100): clean_text(value, 200) if isinstance(value, str) else value
              for name, value in row["values"].items()}  # fmt: skip
    return drop_none({
        "id": task["taskId"], "name": mark_text(task["taskName"], most=100), "status": task["status"],
        "reason": (task["reason"] or {}).get("code"), "step": task["step"], "loss": task["loss"],
        "values": {"untrusted": True, "values": values} if values else None,
    })  # fmt: skip


TOOLS = (read_metrics, compare_runs, find_runs)
