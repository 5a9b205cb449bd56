"""Commands that copy tasks to other tools: `fermi export mlflow`, `fermi export wandb`."""

import os
from collections.abc import Sequence

import click
from rich.console import RenderableType

from fermi.cli import output
from fermi.cli.options import Session, command, group
from fermi.cli.texts import _
from fermi.client import config
from fermi.client.mlflow import Exported, MlflowServer, export_task
from fermi.client.types import TrackerRunItem
from fermi.client.wandb import SentRun, send_runs

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


@command("export wandb", _("MORE_EXPORT_WANDB"))
@click.argument("task")
@click.option("--list", "lists", is_flag=True, help=_("OPTION_EXPORT_LIST"))
@click.option("--here", is_flag=True, help=_("OPTION_EXPORT_HERE"))
@click.option("--env", "environment", metavar="ENV", help=_("OPTION_EXPORT_ENVIRONMENT"))
@click.option("--secret", metavar="NAME", help=_("OPTION_EXPORT_SECRET"))
def export_wandb(
    session: Session, task: str, lists: bool, here: bool, environment: str | None, secret: str | None
) -> int:
    if sum((lists, here, bool(environment or secret))) > 1:
        raise click.UsageError(_("EXPORT_ONE_WAY"))
    if lists:
        runs = session.fermi.tasks.tracker_runs(task)
        output.print_result(runs, session.form, lambda: [_render_runs(runs["items"])])
        return 0
    if here:
        sent = send_runs(session.fermi.outputs, task)
        output.print_result({"items": sent}, session.form, lambda: [output.make_line(_("EXPORT_SENT", **_count(sent)))])
        return 0 if sent and all(one["synced"] for one in sent) else 1
    made = session.fermi.tasks.sync_tracker_runs(task, environment=environment, secret=secret)
    output.print_result(made, session.form, lambda: [output.make_line(_("EXPORT_SYNC_TASK", id=made["taskId"]))])
    return 0


export.add_command(export_mlflow)
export.add_command(export_wandb)


def _count(sent: Sequence[SentRun]) -> dict[str, int]:
    return {"count": sum(one["synced"] for one in sent), "all": len(sent)}


def _render_runs(runs: Sequence[TrackerRunItem]) -> RenderableType:
    rows: list[list[output.Cell]] = [
        [one["runId"], one["state"], one["project"], one["url"] or one["folder"]] for one in runs
    ]
    return output.make_table([_("EXPORT_RUN"), _("STATUS"), _("PROJECT"), _("EXPORT_PLACE")], rows)


def _read_credentials() -> str | tuple[str, str]:
    """Return what MLflow's own client reads from its environment."""
    name = os.environ.get("MLFLOW_TRACKING_USERNAME", "")
    if name:
        return name, os.environ.get("MLFLOW_TRACKING_PASSWORD", "")
    return os.environ.get("MLFLOW_TRACKING_TOKEN", "")


def _render(copied: Sequence[Exported]) -> RenderableType:
    rows: list[list[output.Cell]] = [[one.task, one.run_id, one.metrics, one.files] for one in copied]
    return output.make_table([_("EXPORT_RUN"), _("EXPORT_RUN_THERE"), _("EXPORT_VALUES"), _("EXPORT_FILES")], rows)
