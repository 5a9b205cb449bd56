"""A managed environment as text: state and reason, ports, runs, cost."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session
from fermi.cli.texts import _
from fermi.cli.times import ago, clock, gpu_hours, lasting

FAILED = 1


def waited(session: Session, begun: Any) -> tuple[Any, int]:
    """Wait until the environment's state is one that lasts; return it and the exit code, 1 where it is not the
    requested state. Print what is waited for, each time that it changes."""
    last: list[str] = []

    def seen(found: Any) -> None:
        hosted = found.get("hosted")
        said = _at(found["id"], hosted) if hosted else ""
        if said and said not in last[-1:]:
            last.append(said)
            output.say(said)

    found: Any = session.fermi.environments.wait(begun["id"], seen=seen)
    before, hosted = begun.get("hosted"), found.get("hosted")
    return found, FAILED if hosted and before and hosted["state"] != before["wanted"] else 0


def _at(environment: str, hosted: Any) -> str:
    why = hosted["doing"] or hosted["reason"]
    return _("ENVIRONMENT_IS", id=environment, state=hosted["state"], why=f": {why['message']}" if why else "")


def hosted_parts(hosted: Any) -> Iterator[tuple[str, output.Cell]]:
    """Yield names and values of a managed environment."""
    yield _("STATE_SINCE"), ago(hosted["since"])
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
    yield _("LAST_USED"), ago(hosted["activeAt"]) if hosted["activeAt"] else None
    yield _("CONNECTIONS"), hosted["connections"] or None
    yield _("IDLE_MINUTES"), hosted["idleStopMinutes"]
    yield _("KEPT_UNTIL"), clock(hosted["keepUntil"])
    yield _("STOPS_AT"), clock(hosted["stopsAt"])
    yield _("GPU_HOURS"), gpu_hours(hosted["cost"]["gpuHours"])
    yield _("COST"), _money(hosted["cost"])
    yield _("YOU_MAY"), ", ".join(hosted["allowedActions"])


def life_parts(hosted: Any, life: Any) -> Iterator[RenderableType]:
    """Yield tables of its ports, kernels, runs and events."""
    if hosted["doors"]:
        yield output.heading(_("DOORS"))
        yield output.table([_("NAME"), _("PORT")], [[door["name"], door["port"]] for door in hosted["doors"]])
    if hosted["kernels"]:
        yield output.heading(_("KERNELS"))
        rows: list[list[output.Cell]] = [
            [one["id"], one["name"], _("YES") if one["busy"] else _("NO"), clock(one["since"])]
            for one in hosted["kernels"]
        ]
        yield output.table(["ID", _("NAME"), _("IS_BUSY"), _("STATE_SINCE")], rows)
    if life and life["runs"]:
        yield output.heading(_("RUNS"))
        yield output.table(
            [_("RUN"), _("BEGUN"), _("RAN_FOR"), _("OUTCOME"), _("GPU_HOURS"), _("COST")],
            [
                [run["number"], clock(run["createdAt"]), lasting(run["runningAt"], run["endedAt"]),
                 run["outcome"]["message"] if run["outcome"] else None,
                 gpu_hours(run["gpuHours"]), _money(run)]
                for run in life["runs"]
            ],
        )  # fmt: skip
    if life and life["events"]:
        yield output.heading(_("EVENTS"))
        rows = [[clock(one["at"]), one["message"]] for one in life["events"]]
        yield output.table([_("TIME"), _("EVENT")], rows)


def _money(cost: Any) -> str | None:
    return None if cost["amount"] is None else f"{cost['amount']:.2f} {cost['currency']}"
