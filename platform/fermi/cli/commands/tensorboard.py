"""The command that opens TensorBoard for tasks."""

import click

from fermi.cli import browser, output
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.cli.times import format_time
from fermi.client.types import TensorBoardItem

EXIT_FAILED = 1


@command("tensorboard", _("MORE_TENSORBOARD"))
@click.argument("tasks", nargs=-1, metavar="TASK...")
@click.option("--print", "printed", is_flag=True, help=_("OPTION_TENSORBOARD_PRINT"))
@click.option("--list", "listed", is_flag=True, help=_("OPTION_TENSORBOARD_LIST"))
@click.option("--end", "ended", metavar="TENSORBOARD", multiple=True, help=_("OPTION_TENSORBOARD_END"))
def tensorboard(session: Session, tasks: tuple[str, ...], printed: bool, listed: bool, ended: tuple[str, ...]) -> int:
    if sum(map(bool, (tasks, listed, ended))) != 1:
        raise click.UsageError(_("TENSORBOARD_ONE_OF"))
    if listed:
        return _list_tensorboards(session)
    for one in ended:
        session.fermi.tensorboards.delete(one)
        output.print_message(_("TENSORBOARD_ENDED", id=one))
    return _open_tensorboard(session, tasks, printed) if tasks else 0


def _open_tensorboard(session: Session, tasks: tuple[str, ...], printed: bool) -> int:
    last: list[str] = []

    def report(found: TensorBoardItem) -> None:
        text = found["reason"]["message"] if found["reason"] else ""
        if text and text not in last[-1:]:
            last.append(text)
            output.print_message(text)

    board = session.fermi.tensorboards.open(tasks)
    board = session.fermi.tensorboards.wait(board["id"], seen=report)
    if board["state"] != "ready":
        if board["reason"] and board["reason"]["hint"]:
            output.print_message(board["reason"]["hint"])
        return EXIT_FAILED
    url = session.fermi.tensorboards.door(board)["url"]
    shown = {**board, "url": url}
    output.print_result(shown, session.form, lambda: [output.make_line(url)] if printed else [])
    if not printed and session.form == "table":
        browser.open_or_print(url)
    return 0


def _list_tensorboards(session: Session) -> int:
    found = list(session.fermi.tensorboards.list())
    rows = [
        [one["id"], one["state"], ", ".join(one["taskIds"]), one["createdBy"], format_time(one["endsAt"])]
        for one in found
    ]
    headers = [_("ID"), _("STATE"), _("TASK"), _("BY"), _("STOPS_AT")]
    output.print_result({"items": found}, session.form, lambda: [output.make_table(headers, rows)])
    return 0
