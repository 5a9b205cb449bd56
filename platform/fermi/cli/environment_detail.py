"""A managed environment as text: state and reason, ports, runs, cost."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session
from fermi.cli.texts import _
from fermi.cli.times import format_age, format_elapsed, format_gpu_hours, format_time

EXIT_FAILED = 1


def wait_for_state(session: Session, environment: Any) -> tuple[Any, int]:
    """Wait until the environment's state is one that lasts; return it and the exit code, 1 where it is not the
    requested state. Print what is waited for, each time that it changes."""
    last: list[str] = []

    def seen(found: Any) -> None:
        hosted = found.get("hosted")
        said = _describe_state(found["id"], hosted) if hosted else ""
        if said and said not in last[-1:]:
            last.append(said)
            output.print_message(said)

    found: Any = session.fermi.environments.wait(environment["id"], seen=seen)
    before, hosted = environment.get("hosted"), found.get("hosted")
    return found, EXIT_FAILED if hosted and before and hosted["state"] != before["wanted"] else 0


def _describe_state(environment: str, hosted: Any) -> str:
    why = hosted["doing"] or hosted["reason"]
    return _("ENVIRONMENT_IS", id=environment, state=hosted["state"], why=f": {why['message']}" if why else "")


def list_environment_fields(hosted: Any) -> Iterator[tuple[str, output.Cell]]:
    """Yield names and values of a managed environment."""
    yield _("STATE_SINCE"), format_age(hosted["since"])
    for why in (hosted["reason"], hosted["doing"]):
        if why:
            yield _("REASON"), why["message"]
    if hosted["reason"] and hosted["reason"].get("hint"):
        yield _("WHAT_TO_DO"), hosted["reason"]["hint"]
    if hosted["wanted"] and hosted["wanted"] != hosted["state"]:
        yield _("WANTED"), hosted["wanted"]
    yield _("TEMPLATE"), hosted["templateName"]
    yield _("RUN"), hosted["run"]
    yield _("OF_TASK"), hosted["taskId"]
    yield _("AFTERWARDS"), hosted["afterwards"] if hosted["taskId"] else None
    yield _("LAST_USED"), format_age(hosted["activeAt"]) if hosted["activeAt"] else None
    yield _("CONNECTIONS"), hosted["connections"] or None
    yield _("IDLE_MINUTES"), hosted["idleStopMinutes"]
    yield _("KEPT_UNTIL"), format_time(hosted["keepUntil"])
    yield _("STOPS_AT"), format_time(hosted["stopsAt"])
    yield _("GPU_HOURS"), format_gpu_hours(hosted["cost"]["gpuHours"])
    yield _("COST"), _format_cost(hosted["cost"])
    yield _("YOU_MAY"), ", ".join(hosted["allowedActions"])


def render_history(hosted: Any, life: Any) -> Iterator[RenderableType]:
    """Yield tables of its ports, kernels, runs and events."""
    if hosted["doors"]:
        yield output.make_heading(_("DOORS"))
        yield output.make_table([_("NAME"), _("PORT")], [[door["name"], door["port"]] for door in hosted["doors"]])
    if hosted["kernels"]:
        yield output.make_heading(_("KERNELS"))
        rows: list[list[output.Cell]] = [
            [one["id"], one["name"], _("YES") if one["busy"] else _("NO"), format_time(one["since"])]
            for one in hosted["kernels"]
        ]
        yield output.make_table(["ID", _("NAME"), _("IS_BUSY"), _("STATE_SINCE")], rows)
    if life and life["runs"]:
        yield output.make_heading(_("RUNS"))
        yield output.make_table(
            [_("RUN"), _("BEGUN"), _("RAN_FOR"), _("OUTCOME"), _("GPU_HOURS"), _("COST")],
            [
                [run["number"], format_time(run["createdAt"]), format_elapsed(run["runningAt"], run["endedAt"]),
                 run["outcome"]["message"] if run["outcome"] else None,
                 format_gpu_hours(run["gpuHours"]), _format_cost(run)]
                for run in life["runs"]
            ],
        )  # fmt: skip
    if life and life["events"]:
        yield output.make_heading(_("EVENTS"))
        rows = [[format_time(one["at"]), one["message"]] for one in life["events"]]
        yield output.make_table([_("TIME"), _("EVENT")], rows)


def _format_cost(cost: Any) -> str | None:
    return None if cost["amount"] is None else f"{cost['amount']:.2f} {cost['currency']}"
