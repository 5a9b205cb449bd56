"""One task, as text."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from fermi.cli import output
from fermi.cli.options import Session
from fermi.cli.texts import _
from fermi.cli.times import format_elapsed, format_time, format_time_left
from fermi.client import FermiError
from fermi.client.types import TaskDetail, TaskQueue


def render_task(task: TaskDetail, queue: TaskQueue | None = None) -> Iterator[RenderableType]:
    """Yield the task's tables. `queue`: its position in the queue, where it waits."""
    reason, number = task["reason"], queue and queue["number"]
    step = task["step"]
    yield output.make_pairs(
        [
            (_("TASK"), task["taskId"]),
            (_("NAME"), task["taskName"]),
            (_("STATUS"), format_task_status(task)),
            (_("REASON"), reason["message"] if reason else None),
            ("", reason["hint"] if reason else None),
            (_("PLACE_IN_QUEUE"), _("NUMBER_OF_ALL", number=number, all=queue["of"]) if queue and number else None),
            (_("PRIORITY_CLASS"), _format_priority_class(task)),
            (_("WHY"), f"fermi why {task['taskId']}" if task["status"] == "failed" or task.get("finding") else None),
            (_("FRAMEWORK"), task["framework"]),
            (_("NODES"), _format_node_count(task)),
            (_("PROCESSES"), task["worldSize"]),
            (_("STEP"), None if step is None else f"{step}/{task['totalSteps'] or '?'}"),
            (_("TIME_LEFT_ESTIMATED"), format_time_left(task.get("estimatedEndAt"))),
            (_("LOSS"), get_loss(task)),
            *describe_step(task),
            (_("ATTEMPT"), f"{task['attempt']} ({_('RESTARTS_AT_MOST', n=task['maxRestarts'])})"),
            (_("OWNER"), task["owner"]),
            (_("PROJECT"), task["projectId"]),
            (_("DATASET"), f"{task['datasetId']}:{task['datasetVersionId']}" if task["datasetId"] else None),
            (_("MODEL"), task["modelId"]),
            (_("PREFLIGHT_TEST"), task["preflightId"]),
            (_("DRILL_OF_RESTART"), task.get("drillId")),
            (_("CREATED"), format_time(task["createdAt"])),
            (_("STARTED"), format_time(task["startedAt"])),
            (_("ENDED"), format_time(task["endedAt"])),
            (_("RAN_FOR"), format_elapsed(task["startedAt"], task["endedAt"])),
            (_("YOU_MAY"), ", ".join(task["allowedActions"])),
        ]
    )
    yield output.make_heading(_("NODES"))
    yield output.make_table(
        [_("NODE"), _("ENVIRONMENT"), "ID", _("ZONE"), "GPU", _("PROCESSES"), _("RANKS")],
        [
            [node["nodeRank"], node["name"], node["environmentId"], node["zone"], _format_gpu(node), node["processes"],
             _format_ranks(node["ranks"])]
            for node in task["nodes"]
        ],
    )  # fmt: skip
    yield from render_placements(task["nodes"])
    if task["ranks"]:
        yield output.make_heading(_("RANKS"))
        yield output.make_table(
            [_("RANK"), _("NODE"), _("LOCAL_RANK"), _("DEVICE"), _("STATE"), "PID", _("EXIT_CODE")],
            [
                [rank["rank"], rank["nodeRank"], rank["localRank"], rank["device"], rank["state"], rank["pid"],
                 rank["exitCode"]]
                for rank in task["ranks"]
            ],
        )  # fmt: skip
    if task["attempts"]:
        yield output.make_heading(_("ATTEMPTS"))
        yield output.make_table(
            [_("ATTEMPT"), _("BEGUN"), _("RAN_FOR"), _("RESUMED_FROM"), _("OUTCOME")],
            [
                [attempt["number"], format_time(attempt["createdAt"]), format_elapsed(attempt["runningAt"],
                 attempt["endedAt"]), attempt["resumeFrom"], attempt["outcome"]["message"] if attempt["outcome"] else
                None] for attempt in task["attempts"]
            ],
        )  # fmt: skip


def render_placements(environments: Sequence[Any]) -> Iterator[RenderableType]:
    """Yield where the ranks of each environment run (inside or in pods of their own), and why; nothing for older
    platforms."""
    ways = [(each["name"], each["environmentId"], way) for each in environments if (way := each.get("runsIn"))]
    if not ways:
        return
    yield output.make_heading(_("WHERE_RANKS_RUN"))
    yield output.make_table(
        [_("ENVIRONMENT"), "ID", _("RUNS_IN"), _("WHY")],
        [
            [name, key, _("RUNS_INSIDE") if way["way"] == "inside" else _("RUNS_BESIDE"), way["message"]]
            for name, key, way in ways
        ],
    )


def get_loss(task: Any) -> float | None:
    """Return the newest loss, NaN where it is not finite, None where there is none."""
    return math.nan if task.get("lossNotFinite") else task["loss"]  # an older platform does not say it


def format_task_status(task: Any) -> Text:
    """Return the status, and whether a pause was requested."""
    said = output.format_status(task["status"])
    return Text.assemble(said, f" ({_('IS_PAUSED')})") if task.get("paused") else said


def _format_priority_class(task: Any) -> str | None:
    """`high (gives way)`."""
    if not (found := task.get("priorityClass")):
        return None
    return f"{found} ({_('GIVES_WAY')})" if task.get("preemptible") or task.get("borrowed") else str(found)


def _format_node_count(task: TaskDetail) -> int | str:
    elastic = task.get("elastic")
    return _("NODES_OF_ALL", nodes=elastic["nodes"], all=elastic["maxNodes"]) if elastic else task["nodeCount"]


def describe_step(item: Any) -> list[tuple[str, str]]:
    """Return the effective batch size (`64 = 8 × 4 × 2`) and learning rate of a task or a preview; empty for older
    platforms."""
    if not (batch := item.get("batch")):
        return []
    product = " × ".join(str(batch[name]) for name in ("perRank", "dataParallel", "accumulation"))
    shown = [(_("EFFECTIVE_BATCH"), f"{batch['effective']} = {product}")]
    if (rate := batch["scaledLearningRate"]) is not None:
        scaled = f" ({batch['learningRate']:g}, {batch['learningRateScaling']})"
        shown.append((_("LEARNING_RATE"), f"{rate:g}{scaled if batch['learningRateScaling'] != 'none' else ''}"))
    return [(name, f"{value} ({_('AS_SCRIPT_IS_TOLD')})") for name, value in shown] if batch["ownScript"] else shown


def _format_gpu(node: Any) -> str:
    return (node["gpuType"] or "cpu") + (f" ({_('IS_EMULATED')})" if node["emulated"] else "")


def _format_ranks(ranks: list[int]) -> str:
    """Return a node's ranks, which are always consecutive: [4, 5, 6, 7] → 4–7."""
    return f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else ", ".join(map(str, ranks))


def print_resume_point(session: Session, task: str) -> None:
    """Print the newest checkpoint and the progress that would be lost; nothing where the platform does not know."""
    with suppress(FermiError):
        if point := session.fermi.tasks.diagnosis(task).get("resumePoint"):
            output.print_message(f"{task}: {point['message']}")
