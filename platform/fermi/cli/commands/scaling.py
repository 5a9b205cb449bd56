"""Command that measures how much faster training is on more nodes, as in the requirement document's table."""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.error_handler import EXIT_TRAINING_FAILED
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client.client import Fermi

SPEED_METRICS = ("tokens_per_s", "tokens_per_second", "samples_per_s", "samples_per_second")
"""Names under which trainers print how fast they are, of all ranks together."""
FINAL_STATUSES = ("succeeded", "failed", "stopped")
WARM_UP_POINTS = 2  # points that are not counted
POLL_SECONDS = 1.0
FIRST_POINT_TIMEOUT_SECONDS = 600.0  # seconds until the first point


class MeasurementError(Exception):
    """A run did not give a speed; the message says why."""


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
    names = NameResolver(fermi)
    request = _build_request(names, model, framework)
    there = (
        _resolve_environments(fermi, names.environments(environments))
        if environments
        else _choose_equal_environments(fermi)
    )
    if not there:
        raise click.UsageError(_("SCALING_NOTHING_FREE"))
    rows: list[dict[str, Any]] = []
    for count in _list_node_counts(min(nodes or len(there), len(there))):
        try:
            rows.append(_measure(fermi, request, there[:count], seconds))
        except MeasurementError as error:
            output.print_error(str(error))
            break
    found = {"model": request["modelId"], "seconds": seconds, "rows": _add_speed_ups(rows)}
    if markdown:
        click.echo("\n".join(_render_markdown(found["rows"])))
    else:
        output.print_result(found, session.form, lambda: _render_table(found["rows"]))
    return 0 if rows else EXIT_TRAINING_FAILED


def _build_request(names: NameResolver, model: str, framework: str | None) -> dict[str, Any]:
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


def _resolve_environments(fermi: Fermi, keys: Sequence[str]) -> list[Any]:
    known = {one["id"]: one for one in fermi.environments.list()}
    return [known[key] for key in keys if key in known]


def _choose_equal_environments(fermi: Fermi) -> list[Any]:
    """Return the largest set of free environments that are equal: in one cluster, with the same number of GPUs of one
    type."""
    groups: defaultdict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for one in fermi.environments.list():
        if one["selectable"] and not one["heldBy"] and one["gpuCount"]:
            groups[one["clusterId"], one["gpuType"], one["gpuCount"], one["emulated"]].append(one)
    return max(groups.values(), key=lambda group: (len(group), group[0]["gpuCount"]), default=[])


def _list_node_counts(most: int) -> Iterator[int]:
    count = 1
    while count <= most:
        yield count
        count *= 2


def _measure(fermi: Fermi, request: dict[str, Any], environments: Sequence[Any], seconds: float) -> dict[str, Any]:
    """Run a task on these nodes, for this long after its warm-up, and return its speed; stop it whatever happens."""
    keys = [one["id"] for one in environments]
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
        output.print_message(_("SCALING_RUNS", nodes=len(keys), task=task))
        name, speed = _measure_speed(fermi, task, seconds)
    finally:
        if fermi.tasks.get(task)["status"] not in FINAL_STATUSES:
            fermi.tasks.stop(task)
            fermi.tasks.wait(task)
    gpus = sum(one["gpuCount"] for one in environments)
    return {"nodes": len(keys), "gpus": gpus, "unit": name, "perSecond": speed, "taskId": task}


def _measure_speed(fermi: Fermi, task: str, seconds: float) -> tuple[str, float]:
    first, begun = None, time.monotonic()
    while first is None or time.monotonic() - first < seconds:
        time.sleep(POLL_SECONDS)
        now = fermi.tasks.get(task)
        if now["status"] in FINAL_STATUSES or (
            first is None and time.monotonic() - begun > FIRST_POINT_TIMEOUT_SECONDS
        ):
            reason = now["reason"]
            raise MeasurementError(_("SCALING_FAILED", task=task, why=reason["message"] if reason else now["status"]))
        if first is None and len(_list_points(fermi, task)) > WARM_UP_POINTS:
            first = time.monotonic()
    points = _list_points(fermi, task)[WARM_UP_POINTS:]
    for name in SPEED_METRICS:
        if told := [point[name] for point in points if point.get(name)]:
            return name, median(told)
    raise MeasurementError(_("SCALING_NO_SPEED", task=task, names=", ".join(SPEED_METRICS)))


def _list_points(fermi: Fermi, task: str) -> list[dict[str, Any]]:
    found = [dict(point["values"]) for point in fermi.tasks.metrics(task)]
    return [values for values in found if any(name in values for name in SPEED_METRICS)]


def _add_speed_ups(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add each row's speed-up over the first one, and its efficiency."""
    found = []
    for row in rows:
        theoretical = row["gpus"] / max(rows[0]["gpus"], 1)
        speed_up = row["perSecond"] / rows[0]["perSecond"]
        found.append({**row, "theoretical": theoretical, "speedUp": speed_up, "efficiency": speed_up / theoretical})
    return found


def _list_rows(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Return the rows of the requirement document's table."""
    yield (
        _("SCALING_SETUP"),
        [_("SCALING_ONE_NODE") if row["nodes"] == 1 else _("SCALING_NODES", nodes=row["nodes"]) for row in rows],
    )
    yield _("SCALING_GPUS"), [str(row["gpus"]) for row in rows]
    yield _("THEORETICAL_SPEED_UP"), [f"{row['theoretical']:.3g}x" for row in rows]
    yield _("SCALING_ACTUAL"), [f"{row['speedUp']:.2f}x" for row in rows]
    yield _("EFFICIENCY"), [f"{row['efficiency']:.0%}" for row in rows]
    yield rows[0]["unit"] if rows else "", [f"{row['perSecond']:,.0f}" for row in rows]


def _render_table(rows: Sequence[dict[str, Any]]) -> Iterator[RenderableType]:
    (name, head), *others = _list_rows(rows)
    yield output.make_table([name, *head], [[name, *cells] for name, cells in others])


def _render_markdown(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, (name, cells) in enumerate(_list_rows(rows)):
        yield f"| {' | '.join([name, *cells])} |"
        if number == 0:
            yield "|---" * (len(cells) + 1) + "|"
