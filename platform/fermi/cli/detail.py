"""One task, as people read it."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.texts import _
from fermi.cli.times import clock, lasting
from fermi.client.types import TaskDetail


def detail(task: TaskDetail) -> Iterator[RenderableType]:
    reason = task["reason"]
    step = task["step"]
    yield output.pairs(
        [
            (_("Task"), task["taskId"]),
            (_("Name"), task["taskName"]),
            (_("Status"), output.status(task["status"])),
            (_("Reason"), reason["message"] if reason else None),
            ("", reason["hint"] if reason else None),
            (_("Framework"), task["framework"]),
            (_("Nodes"), task["nodeCount"]),
            (_("Processes"), task["worldSize"]),
            (_("Step"), None if step is None else f"{step}/{task['totalSteps'] or '?'}"),
            (_("Loss"), task["loss"]),
            (_("Attempt"), f"{task['attempt']} ({_('at most {n} restarts', n=task['maxRestarts'])})"),
            (_("Owner"), task["owner"]),
            (_("Project"), task["projectId"]),
            (_("Dataset"), f"{task['datasetId']}:{task['datasetVersionId']}" if task["datasetId"] else None),
            (_("Model"), task["modelId"]),
            (_("Pre-flight test"), task["preflightId"]),
            (_("Created"), clock(task["createdAt"])),
            (_("Started"), clock(task["startedAt"])),
            (_("Ended"), clock(task["endedAt"])),
            (_("Ran for"), lasting(task["startedAt"], task["endedAt"])),
            (_("You may"), ", ".join(task["allowedActions"])),
        ]
    )
    yield output.heading(_("Nodes"))
    yield output.table(
        [_("Node"), _("Environment"), "ID", _("Zone"), "GPU", _("Processes"), _("Ranks")],
        [
            [node["nodeRank"], node["name"], node["environmentId"], node["zone"], _gpu(node), node["processes"],
             _span(node["ranks"])]
            for node in task["nodes"]
        ],
    )  # fmt: skip
    if task["ranks"]:
        yield output.heading(_("Ranks"))
        yield output.table(
            [_("Rank"), _("Node"), _("Local rank"), _("Device"), _("State"), "PID", _("Exit code")],
            [
                [rank["rank"], rank["nodeRank"], rank["localRank"], rank["device"], rank["state"], rank["pid"],
                 rank["exitCode"]]
                for rank in task["ranks"]
            ],
        )  # fmt: skip
    if task["attempts"]:
        yield output.heading(_("Attempts"))
        yield output.table(
            [_("Attempt"), _("Begun"), _("Ran for"), _("Resumed from"), _("Outcome")],
            [
                [attempt["number"], clock(attempt["createdAt"]), lasting(attempt["runningAt"], attempt["endedAt"]),
                 attempt["resumeFrom"], attempt["outcome"]["message"] if attempt["outcome"] else None]
                for attempt in task["attempts"]
            ],
        )  # fmt: skip


def _gpu(node: Any) -> str:
    return (node["gpuType"] or "cpu") + (f" ({_('emulated')})" if node["emulated"] else "")


def _span(ranks: list[int]) -> str:
    """[4, 5, 6, 7] → 4–7: a node's ranks are always consecutive."""
    return f"{ranks[0]}–{ranks[-1]}" if len(ranks) > 1 else ", ".join(map(str, ranks))
