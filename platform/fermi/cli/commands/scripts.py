"""Command that writes a training as a folder of scripts to start by hand: of a task, or from a request file alone."""

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import click

from fermi import export, messages
from fermi.cli import fields, input_files, output, texts
from fermi.cli.error_handler import EXIT_REFUSED
from fermi.cli.options import Session, command
from fermi.cli.request import RequestFlags, set_entrypoint
from fermi.cli.texts import _
from fermi.client import Problem as Told
from fermi.export import request as requests
from fermi.export.request import ExportRequest
from fermi.jobs.spec import Entrypoint, Problem

TARGETS = click.Choice(list(export.TARGETS))
START_FILES = {"slurm": "submit.sh", "kubernetes": "apply.sh", "compose": "docker-compose.yml"}
_NODE_PATTERN = re.compile(r"(?:(?P<name>[^=]+)=)?(?P<address>\[[^\]]+\]|[^:=]+)(?::(?P<gpus>\d+))?")


@command("scripts", _("MORE_SCRIPTS"), output=False)
@click.argument("task_id", metavar="TASK")
@click.option("--target", type=TARGETS, default="shell", help=_("OPTION_TARGET"))
@click.option("-o", "--output", "folder", metavar="FOLDER", help=_("OPTION_SCRIPTS_OUTPUT"))
@click.option("--master-port", type=int, help=_("OPTION_SCRIPTS_MASTER_PORT"))
@click.option("--force", is_flag=True, help=_("OPTION_FORCE"))
def scripts(
    session: Session, task_id: str, target: str, folder: str | None, master_port: int | None, force: bool
) -> None:
    _download_scripts(session, task_id, target, folder, master_port, force)


@command(
    "render",
    _("MORE_RENDER"),
    output=False,
)
@click.option("--target", type=TARGETS, default="shell", help=_("OPTION_TARGET"))
@click.option("-o", "--output", "folder", metavar="FOLDER", help=_("OPTION_SCRIPTS_OUTPUT"))
@click.option("--force", is_flag=True, help=_("OPTION_FORCE"))
@click.option("--task", "task_id", metavar="TASK", help=_("OPTION_TASK"))
@click.option("-f", "--file", metavar="FILE", help=_("OPTION_SCRIPTS_FILE"))
@click.option("--node", "nodes", multiple=True, metavar="[NAME=]ADDRESS[:GPUS]", help=_("OPTION_SCRIPTS_NODE"))
@click.option("--emulated", is_flag=True, help=_("OPTION_EMULATED"))
@click.option("--master", help=_("OPTION_SCRIPTS_MASTER"))
@fields.add_field_options(ExportRequest)
@click.option("--script", help=_("OPTION_SCRIPTS_SCRIPT"))
@click.option("--module", metavar="MODULE", help=_("OPTION_MODULE"))
@click.option("--command", is_flag=True, help=_("OPTION_COMMAND"))
@click.option("--processes", type=click.Choice(["gpu", "node"]), help=_("OPTION_PROCESSES"))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def render(
    session: Session, target: str, folder: str | None, force: bool, task_id: str | None, file: str | None, **given: Any
) -> int:
    if task_id:
        if file or any(value for name, value in given.items() if name != "masterPort"):
            raise click.UsageError(_("TASK_HAS_EVERYTHING"))
        _download_scripts(session, task_id, target, folder, given["masterPort"], force)
        return 0
    request = _build_request(input_files.read_request(file) if file else {}, **given)
    job, wrong = requests.build_job(request)
    if wrong or job is None:
        return _print_problems(wrong)
    if wrong := export.find_problems(job, target):
        return _print_problems(wrong)
    place = Path(folder or f"{job.name}-{target}")
    connection = {"folder": str(place.absolute()), **(request.get("connection") or {})}
    files = export.render_files(job, target, texts.get_language(), connection) | _read_scripts(job.entrypoint, target)
    _write_files(place, files, target, force)
    return 0


def _read_scripts(entrypoint: Entrypoint | None, target: str) -> dict[str, str]:
    """Return the user's script, or those that the command names, where they are on this machine: they are put into the
    folder, at the path where ranks look for them."""
    named = () if entrypoint is None or entrypoint.module or target == "kubernetes" else entrypoint.paths
    scripts = [
        path for path in map(Path, named) if not path.is_absolute() and ".." not in path.parts and path.is_file()
    ]
    below = Path("workspace" if target == "slurm" else "")
    return {str(below / path): path.read_text("utf-8", "surrogateescape") for path in scripts}


def _build_request(
    file: Mapping[str, Any], *, nodes: tuple[str, ...], emulated: bool, master: str | None, script: str | None,
    module: str | None, command: bool, processes: str | None, args: tuple[str, ...], **given: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the file's request with the options applied."""
    request = dict(file)
    if nodes:
        request["nodes"] = [_parse_node(text) for text in nodes]
    if emulated and isinstance(known := request.get("nodes"), list):
        request["nodes"] = [{**node, "emulated": True} if isinstance(node, dict) else node for node in known]
    fields.apply_flags(request, given, ExportRequest)
    if master:
        request[fields.DISTRIBUTED_CONFIG] = {
            **fields.read_section(request, fields.DISTRIBUTED_CONFIG, dict),
            "masterNode": master,
        }
    set_entrypoint(request, RequestFlags(script=script, module=module, command=command, processes=processes, args=args))
    return request


def _parse_node(text: str) -> dict[str, Any]:
    """Parse `gpu-a=10.0.0.1:4`, `10.0.0.1:4` or `gpu-a`."""
    found = _NODE_PATTERN.fullmatch(text)
    if found is None:
        raise click.BadParameter(_("NOT_A_MACHINE", value=text), param_hint="--node")
    address = found["address"].strip("[]")
    return {"name": found["name"] or address, "ip": address, "gpuCount": int(found["gpus"] or 0)}


def _print_problems(wrong: list[Problem]) -> int:
    output.print_error(_("CANNOT_BE_RENDERED"))
    told = ((one, messages.render_text(one.code, texts.get_language(), **one.params)) for one in wrong)
    output.print_problems([Told(one.field, one.code, message, hint) for one, (message, hint) in told])
    return EXIT_REFUSED


def _download_scripts(
    session: Session, task_id: str, target: str, folder: str | None, master_port: int | None, force: bool
) -> None:
    packed = session.fermi.tasks.scripts(task_id, target=target, master_port=master_port)
    files, root = {}, task_id
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        for entry in tar:
            root, *rest = PurePosixPath(entry.name).parts
            content = tar.extractfile(entry)
            if content is not None and rest and ".." not in rest:
                files["/".join(rest)] = content.read().decode("utf-8", "surrogateescape")
    _write_files(Path(folder or root), files, target, force)


def _write_files(folder: Path, files: Mapping[str, str], target: str, force: bool) -> None:
    if not force and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.UsageError(_("FOLDER_EXISTS", folder=folder))
    try:
        for path, text in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8", "surrogateescape", newline="\n")
            if path.endswith(".sh"):
                place.chmod(0o755)
    except OSError as error:
        raise click.UsageError(_("FILE_NOT_WRITABLE", file=folder, why=error.strerror)) from error
    first = folder / START_FILES.get(target, "start-all.sh")
    click.echo(_("SCRIPTS_WRITTEN",
                 count=len(files), folder=folder, first=first))  # fmt: skip
