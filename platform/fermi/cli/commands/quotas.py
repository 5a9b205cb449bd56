"""Commands for the limits of a project and its members, and for reservations."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.input_files import parse_settings
from fermi.cli.name_resolution import NameResolver
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_gpu_hours, format_time, parse_moment
from fermi.client.types import (
    Limits,
    LimitsRequest,
    Reservation,
    ReservationCreateRequest,
    UserLimits,
    UserLimitsRequest,
)

LIST_LIMITS = ("gpuTypes", "zones", "priorities")
READ_ONLY_FIELDS = ("projectId", "currency", "updatedAt", "updatedBy", "mayChange", "use")
"""Of limits, what is not theirs to set."""


@command("limits", _("MORE_LIMITS"))
@click.argument("project", required=False)
@click.option("--set", "changes", metavar="NAME=VALUE", multiple=True, help=_("OPTION_LIMITS_SET"))
@click.option("--users", is_flag=True, help=_("OPTION_LIMITS_USERS"))
@click.option("--user", help=_("OPTION_LIMITS_USER"))
@click.option("--clear", is_flag=True, help=_("OPTION_LIMITS_CLEAR"))
def limits(
    session: Session, project: str | None, changes: tuple[str, ...], users: bool, user: str | None, clear: bool
) -> None:
    projects = session.fermi.projects
    where = NameResolver(session.fermi).project(project)
    values = {name: _parse_limit(name, text) for name, text in parse_settings(changes, "--set").items()}
    if clear and not user:
        raise click.UsageError(_("CLEAR_OF_WHOM"))
    if user and clear:
        projects.remove_user_limits(where, user)
        output.print_message(_("DELETED", id=user))
    elif user or users:
        if user and values:
            asked = {**_find_user_limits(projects.user_limits(where), user), **values}
            projects.set_user_limits(where, user, cast(UserLimitsRequest, asked))
        items = [one for one in projects.user_limits(where) if user in (None, one["username"])]
        output.print_result({"items": items, "total": len(items)}, session.form, lambda: [_make_member_table(items)])
    else:
        found = projects.limits(where)
        if values:
            kept = {name: value for name, value in found.items() if name not in READ_ONLY_FIELDS}
            found = projects.set_limits(where, cast(LimitsRequest, {**kept, **values}))
        output.print_result(found, session.form, lambda: _render_limits(found))


@command("reservations", _("MORE_RESERVATIONS"))
@click.argument("action", type=click.Choice(["list", "add", "remove"]), default="list")
@click.argument("names", nargs=-1)
@click.option("--from", "since", type=str, help=_("OPTION_RESERVATIONS_FROM"))
@click.option("--to", "until", type=str, help=_("OPTION_RESERVATIONS_TO"))
@click.option("--project", help=_("OPTION_RESERVATIONS_PROJECT"))
@click.option("--note", default="", help=_("OPTION_RESERVATIONS_NOTE"))
def reservations(
    session: Session,
    action: str,
    names: tuple[str, ...],
    since: str | None,
    until: str | None,
    project: str | None,
    note: str,
) -> None:
    known, there = NameResolver(session.fermi), session.fermi.reservations
    whose = known.project(project) if project else None
    begins, ends = _parse_moment("--from", since), _parse_moment("--to", until)
    if action == "list":
        items = list(there.list(project=whose, since=begins, until=ends))
        output.print_result(
            {"items": items, "total": len(items)}, session.form, lambda: [_make_reservation_table(items)]
        )
    elif action == "add":
        if not (names and begins and ends):
            raise click.UsageError(_("SAY_WHAT_TO_RESERVE"))
        asked: ReservationCreateRequest = {
            "projectId": whose,
            "environmentIds": known.environments(names),
            "beginsAt": begins,
            "endsAt": ends,
            "note": note,
        }
        made = there.create(asked)
        output.print_result(made, session.form, lambda: [_make_reservation_table([made])])
    else:
        if not names:
            raise click.UsageError(_("SAY_WHICH_RESERVATION"))
        for name in names:
            there.delete(name)
            output.print_message(_("DELETED", id=name))


def _parse_limit(name: str, text: str) -> Any:
    """Parse a limit; lists are separated by commas, and nothing or `none` means no limit."""
    if name in LIST_LIMITS:
        return [part.strip() for part in text.split(",") if part.strip() not in ("", "none")]
    if text in ("", "none"):
        return None
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _find_user_limits(items: Any, user: str) -> dict[str, Any]:
    found = next((one for one in items if one["username"] == user and one["own"]), None)
    return {name: value for name, value in found.items() if name not in ("username", "own", "use")} if found else {}


def _parse_moment(option: str, text: str | None) -> str | None:
    """Parse an ISO 8601 time; local time where no zone is given."""
    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError:
        raise click.BadParameter(_("NOT_A_MOMENT", found=text), param_hint=option) from None


def _render_limits(limits: Limits) -> Iterator[RenderableType]:
    use = limits["use"]
    money = limits["currency"]
    rows: list[list[output.Cell]] = [
        ["mostGpus", limits["mostGpus"], use["gpus"]],
        ["guaranteedGpus", limits["guaranteedGpus"], use["sharedGpus"]],
        ["mostTasks", limits["mostTasks"], use["tasks"]],
        ["gpuHours", limits["gpuHours"], format_gpu_hours(use["gpuHours"])],
        ["budget", limits["budget"], f"{use['cost']:.2f} {money}"],
        ["atBudget", limits["atBudget"], None],
        ["weight", limits["weight"], None],
        ["gpuTypes", ", ".join(limits["gpuTypes"]) or None, None],
        ["zones", ", ".join(limits["zones"]) or None, None],
        ["priorities", ", ".join(limits["priorities"]) or None, None],
        ["longestRunSeconds", limits["longestRunSeconds"], None],
        ["userMostGpus", limits["userMostGpus"], None],
        ["userMostTasks", limits["userMostTasks"], None],
        ["userGpuHours", limits["userGpuHours"], None],
        ["maxEnvironments", limits["maxEnvironments"], use["environments"]],
        ["maxEnvironmentGpus", limits["maxEnvironmentGpus"], use["environmentGpus"]],
        ["userMaxEnvironments", limits["userMaxEnvironments"], None],
        ["userMaxEnvironmentGpus", limits["userMaxEnvironmentGpus"], None],
    ]
    shown = [[name, output.format_cell(limit), output.format_cell(used)] for name, limit, used in rows]
    yield output.make_table([_("LIMIT"), _("AT_MOST"), _("USED_NOW")], shown)


def _make_member_table(items: list[UserLimits]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            one["username"],
            one["mostGpus"],
            one["use"]["gpus"],
            one["mostTasks"],
            one["use"]["tasks"],
            one["gpuHours"],
            format_gpu_hours(one["use"]["gpuHours"]),
            one["maxEnvironments"],
            one["use"]["environments"],
            one["maxEnvironmentGpus"],
            one["use"]["environmentGpus"],
            _("YES") if one["own"] else _("NO"),
        ]
        for one in items
    ]
    used = _("USED_NOW")
    names = ("mostGpus", "mostTasks", "gpuHours", "maxEnvironments", "maxEnvironmentGpus")
    headers = [header for name in names for header in (name, used)]
    return output.make_table([_("USER"), *headers, _("LIMITS_OF_THEIR_OWN")], rows)


def _make_reservation_table(items: list[Reservation]) -> output.Table:
    rows: list[list[output.Cell]] = [
        [
            one["id"],
            one["projectName"] or (_("MAINTENANCE") if one["kind"] == "maintenance" else _("ANOTHER_PROJECT")),
            format_time(one["beginsAt"]),
            format_time(one["endsAt"]),
            ", ".join(there["name"] for there in one["environments"]),
            one["note"] or None,
        ]
        for one in items
    ]
    return output.make_table(["ID", _("FOR_WHOM"), _("BEGINS"), _("ENDS"), _("ENVIRONMENTS"), _("NOTE")], rows)
