"""How much faster more nodes are: measured, in the requirement document's table."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.error_handler import TRAINING_FAILED
from fermi.cli.name_resolution import Names
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.client import Fermi

SPEEDS = ("tokens_per_s", "tokens_per_second", "samples_per_s", "samples_per_second")
"""Names under which trainers print how fast they are, of all ranks together."""
FINAL = ("succeeded", "failed", "stopped")
WARM_UP = 2  # points that are not counted
LOOK = 1.0
PATIENCE = 600.0  # seconds until the first point


class Failed(Exception):
    """What a run said instead of its speed."""


@command("scaling", _("MORE_SCALING"))
@click.argument("model")
@click.option("--nodes", type=click.IntRange(1), help=_("OPTION_SCALING_NODES"))
@click.option(
    "--seconds", type=click.FloatRange(1, 3600), default=60.0, show_default=True, help=_("OPTION_SCALING_SECONDS")
)
@click.option("--framework", help=_("OPTION_SCALING_FRAMEWORK"))
@click.option("--env", "environments", multiple=True, metavar="ENV", help=_("OPTION_SCALING_ENV"))
@click.option("--markdown", is_flag=True, help=_("OPTION_SCALING_MARKDOWN"))
def scaling(
    session: Session,
    model: str,
    nodes: int | None,
    seconds: float,
    framework: str | None,
    environments: Sequence[str],
    markdown: bool,
) -> int:
    fermi = session.fermi
    names = Names(fermi)
    request = _request(names, model, framework)
    there = _chosen(fermi, names.environments(environments)) if environments else _alike(fermi)
    if not there:
        raise click.UsageError(_("SCALING_NOTHING_FREE"))
    rows: list[dict[str, Any]] = []
    for count in _sizes(min(nodes or len(there), len(there))):
        try:
            rows.append(_measured(fermi, request, there[:count], seconds))
        except Failed as error:
            output.fault(str(error))
            break
    found = {"model": request["modelId"], "seconds": seconds, "rows": _compared(rows)}
    if markdown:
        click.echo("\n".join(_markdown(found["rows"])))
    else:
        output.show(found, session.form, lambda: _table(found["rows"]))
    return 0 if rows else TRAINING_FAILED


def _request(names: Names, model: str, framework: str | None) -> dict[str, Any]:
    dataset, version = names.dataset(None, None)
    return {
        "modelId": names.model(model),
        "datasetId": dataset,
        "datasetVersionId": version,
        "launchMode": "existing",
        "maxRestarts": 0,
        "hyperparameters": {"totalSteps": 10_000_000, "logEvery": 1, "evalEvery": 0, "checkpointEvery": 0},
        **({"distributedConfig": {"framework": framework}} if framework else {}),
    }


def _chosen(fermi: Fermi, keys: Sequence[str]) -> list[Any]:
    known = {one["id"]: one for one in fermi.environments.list()}
    return [known[key] for key in keys if key in known]


def _alike(fermi: Fermi) -> list[Any]:
    """The most that are free and alike: in one cluster, with as many GPUs of one type."""
    groups: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in fermi.environments.list():
        if one["selectable"] and not one["heldBy"] and one["gpuCount"]:
            groups[one["clusterId"], one["gpuType"], one["gpuCount"], one["emulated"]].append(one)
    return max(groups.values(), key=lambda group: (len(group), group[0]["gpuCount"]), default=[])


def _sizes(most: int) -> Iterator[int]:
    count = 1
    while count <= most:
        yield count
        count *= 2


def _measured(fermi: Fermi, request: dict[str, Any], there: Sequence[Any], seconds: float) -> dict[str, Any]:
    """A task on these nodes, for so long after it has warmed up; stopped whatever happens."""
    keys = [one["id"] for one in there]
    config = {
        **request.get("distributedConfig", {}),
        **({"nodeIds": keys, "masterNode": keys[0]} if len(keys) > 1 else {}),
    }
    asked: Any = {
        **request,
        "taskName": f"scaling-{len(keys)}",
        **({"distributedConfig": config} if config else {}),
        **({} if len(keys) > 1 else {"environmentIds": keys}),
    }
    task = fermi.tasks.create(asked)["taskId"]
    try:
        output.say(_("SCALING_RUNS", nodes=len(keys), task=task))
        name, speed = _speed(fermi, task, seconds)
    finally:
        if fermi.tasks.get(task)["status"] not in FINAL:
            fermi.tasks.stop(task)
            fermi.tasks.wait(task)
    gpus = sum(one["gpuCount"] for one in there)
    return {"nodes": len(keys), "gpus": gpus, "unit": name, "perSecond": speed, "taskId": task}


def _speed(fermi: Fermi, task: str, seconds: float) -> tuple[str, float]:
    first, begun = None, time.monotonic()
    while first is None or time.monotonic() - first < seconds:
        time.sleep(LOOK)
        now = fermi.tasks.get(task)
        if now["status"] in FINAL or (first is None and time.monotonic() - begun > PATIENCE):
            reason = now["reason"]
            raise Failed(_("SCALING_FAILED", task=task, why=reason["message"] if reason else now["status"]))
        if first is None and len(_points(fermi, task)) > WARM_UP:
            first = time.monotonic()
    points = _points(fermi, task)[WARM_UP:]
    for name in SPEEDS:
        if told := [point[name] for point in points if point.get(name)]:
            return name, median(told)
    raise Failed(_("SCALING_NO_SPEED", task=task, names=", ".join(SPEEDS)))


def _points(fermi: Fermi, task: str) -> list[dict[str, Any]]:
    found = [dict(point["values"]) for point in fermi.tasks.metrics(task)]
    return [values for values in found if any(name in values for name in SPEEDS)]


def _compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """With what each is of the first."""
    found = []
    for row in rows:
        theoretical = row["gpus"] / max(rows[0]["gpus"], 1)
        speed_up = row["perSecond"] / rows[0]["perSecond"]
        found.append({**row, "theoretical": theoretical, "speedUp": speed_up, "efficiency": speed_up / theoretical})
    return found


def _lines(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """The requirement document's."""
    yield (
        _("SCALING_SETUP"),
        [_("SCALING_ONE_NODE") if row["nodes"] == 1 else _("SCALING_NODES", nodes=row["nodes"]) for row in rows],
    )
    yield _("SCALING_GPUS"), [str(row["gpus"]) for row in rows]
    yield _("THEORETICAL_SPEED_UP"), [f"{row['theoretical']:.3g}x" for row in rows]
    yield _("SCALING_ACTUAL"), [f"{row['speedUp']:.2f}x" for row in rows]
    yield _("EFFICIENCY"), [f"{row['efficiency']:.0%}" for row in rows]
    yield rows[0]["unit"] if rows else "", [f"{row['perSecond']:,.0f}" for row in rows]


def _table(rows: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    (name, head), *others = _lines(rows)
    yield output.table([name, *head], [[name, *cells] for name, cells in others])


def _markdown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, (name, cells) in enumerate(_lines(rows)):
        yield f"| {' | '.join([name, *cells])} |"
        if number == 0:
            yield "|---" * (len(cells) + 1) + "|"
