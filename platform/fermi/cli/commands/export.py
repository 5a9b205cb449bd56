"""Commands that copy tasks to other tools: `fermi export mlflow`."""

import os
from collections.abc import Sequence

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command, group
from fermi.cli.texts import _
from fermi.client import config
from fermi.client.mlflow import Exported, MlflowServer, export_task

PATH = "/mlflow"


@group("export")
def export(session: Session) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


@command("export mlflow", _("MORE_EXPORT_MLFLOW"))
@click.argument("tasks", nargs=-1, required=True, metavar="TASK...")
@click.option("--to", "uri", required=True, metavar="URI", help=_("OPTION_EXPORT_TO"))
@click.option("--experiment", default="", metavar="NAME", help=_("OPTION_EXPORT_EXPERIMENT"))
def export_mlflow(session: Session, tasks: Sequence[str], uri: str, experiment: str) -> None:
    place = config.find_endpoint(session.url, None)
    source, target = MlflowServer(place.url + PATH, place.token or ""), MlflowServer(uri, _read_credentials())
    copied = [one for task in tasks for one in export_task(source, target, task, experiment)]
    output.print_result({"items": [one._asdict() for one in copied]}, session.form, lambda: [_render(copied)])
    if left_out := sum(one.files_left_out for one in copied):
        output.print_message(_("EXPORT_FILES_LEFT_OUT", count=left_out))


export.add_command(export_mlflow)


def _read_credentials() -> str | tuple[str, str]:
    """Return what MLflow's own client reads from its environment."""
    name = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    if name:
        return name, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    return os.environ.get("MLFLOW_TRACKING_TOKEN", "")


def _render(copied: Sequence[Exported]) -> RenderableType:
    rows: list[list[output.Cell]] = [[one.task, one.run_id, one.metrics, one.files] for one in copied]
    return output.make_table([_("EXPORT_RUN"), _("EXPORT_RUN_THERE"), _("EXPORT_VALUES"), _("EXPORT_FILES")], rows)
