"""Command that starts the ranks of this machine by hand: `fermi launch … -- python train.py`."""

import os
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from fermi import messages
from fermi.cli import output, prompts, texts
from fermi.cli.error_handler import EXIT_REFUSED
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.export import placement, sbatch
from fermi.jobs.errors import LaunchError
from fermi.jobs.rank_env import build_rank_env
from fermi.runner import barrier, bounds, foreground, foreground_sandbox, ports
from fermi.runner.exit_codes import DEFAULT_GRACE_SECONDS
from fermi.runner.prepare import Rendezvous

BOUND_OPTIONS = ("processes", "open_files", "memory_gb", "disk_gb", "reserve_percent")
Function = TypeVar("Function", bound=Callable[..., Any])

RENDEZVOUS_ID = "fermi-launch"
COUNT_TYPE = click.IntRange(0, foreground.MAX_AMOUNT)
AMOUNT_TYPE = click.FloatRange(0, foreground.MAX_AMOUNT)
LINE_PREFIXES = {"prefix": "[rank {rank}] ", "plain": ""}


def _parse_counts(_ctx: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Parse `4`, `1,2` for nodes of different size, or `auto`."""
    if text in (None, "auto", "gpu"):
        return ()
    numbers = text.split(",")
    if not all(number.isdecimal() for number in numbers):
        raise click.BadParameter(_("NO_COUNT_PER_NODE", value=text))
    return tuple(map(int, numbers))


def add_rank_options(function: Function) -> Function:
    """Add the options of ranks, spelt with dashes or underscores as with torchrun."""

    def named(name: str, **rest: Any) -> Callable[[Function], Function]:
        return click.option(*dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}")), **rest)

    for option in reversed(
        [
            named("rank", type=int, help=_("OPTION_LAUNCH_RANK")),
            named("world-size", type=int, help=_("OPTION_LAUNCH_WORLD_SIZE")),
            named("local-rank", type=int, help=_("OPTION_LAUNCH_LOCAL_RANK")),
            named("nnodes", type=int, help=_("OPTION_LAUNCH_NNODES")),
            named("node-rank", type=int, help=_("OPTION_LAUNCH_NODE_RANK")),
            named("nproc-per-node", callback=_parse_counts, help=_("OPTION_LAUNCH_NPROC_PER_NODE")),
            named("master-addr", help=_("OPTION_LAUNCH_MASTER_ADDR")),
            named("master-port", type=int, help=_("OPTION_LAUNCH_MASTER_PORT")),
        ]
    ):
        function = option(function)
    return function


@command("launch", _("MORE_LAUNCH"), output=False)
@click.option("--mode", type=click.Choice(["auto", "manual", "slurm", "create_slurm"]), default="auto",
              help=_("OPTION_MODE"))  # fmt: skip
@add_rank_options
@click.option("--logs", metavar="FOLDER", help=_("OPTION_LOGS"))
@click.option("--output", "shown", type=click.Choice([*LINE_PREFIXES, "none"]), default="prefix",
              help=_("OPTION_LAUNCH_OUTPUT"))  # fmt: skip
@click.option("--grace", type=float, default=DEFAULT_GRACE_SECONDS, help=_("OPTION_GRACE"))
@click.option("--hang-seconds", type=click.FloatRange(min=0, min_open=True), help=_("OPTION_LAUNCH_HANG_SECONDS"))
@click.option("--no-pulse", is_flag=True, help=_("OPTION_LAUNCH_NO_PULSE"))
@click.option("--patience", type=float, default=barrier.DEFAULT_TIMEOUT_SECONDS, help=_("OPTION_LAUNCH_PATIENCE"))
@click.option("--no-wait", is_flag=True, help=_("OPTION_NO_WAIT"))
@click.option("--processes", type=COUNT_TYPE, default=bounds.DEFAULT_MAX_PROCESSES, help=_("OPTION_LAUNCH_PROCESSES"))
@click.option(
    "--open-files", type=COUNT_TYPE, default=bounds.DEFAULT_MAX_OPEN_FILES, help=_("OPTION_LAUNCH_OPEN_FILES")
)
@click.option("--memory-gb", type=AMOUNT_TYPE, default=0, help=_("OPTION_LAUNCH_MEMORY_GB"))
@click.option("--disk-gb", type=AMOUNT_TYPE, default=0, help=_("OPTION_LAUNCH_DISK_GB"))
@click.option(
    "--reserve-percent",
    type=AMOUNT_TYPE,
    default=bounds.DEFAULT_RESERVE_PERCENT,
    help=_("OPTION_LAUNCH_RESERVE_PERCENT"),
)
@click.option("--confine", is_flag=True, help=_("OPTION_LAUNCH_CONFINE"))
@click.option("--read", multiple=True, metavar="PATH", help=_("OPTION_LAUNCH_READ"))
@click.option("--write", multiple=True, metavar="PATH", help=_("OPTION_LAUNCH_WRITE"))
@click.option("--dry-run", is_flag=True, help=_("OPTION_DRY_RUN"))
@click.option("--num-nodes", type=int, default=1, help=_("OPTION_NUM_NODES"))
@click.option("--gpus-per-node", type=int, help=_("OPTION_GPUS_PER_NODE"))
@click.option("--cpus-per-task", type=int, help=_("OPTION_CPUS_PER_TASK"))
@click.option("--job-name", default="fermi", help=_("OPTION_JOB_NAME"))
@click.option("--partition", default="", help=_("OPTION_PARTITION"))
@click.option("--account", default="", help=_("OPTION_PARTITION"))
@click.option("--qos", default="", help=_("OPTION_PARTITION"))
@click.option("--time", "limit", default="", help=_("OPTION_TIME"))
@click.option("--file", default="slurm_scripts/run_slurm.sh", help=_("OPTION_LAUNCH_FILE"))
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND…")
def launch(session: Session, mode: str, words: tuple[str, ...], file: str, **given: Any) -> int:
    try:
        if mode == "create_slurm":
            return _create_task(Path(file), prompts.prompt_for_missing(words, master=False, is_head=True)[0], given)
        return _launch(mode, [*words], given)
    except LaunchError as error:
        print_launch_error(error)
        return EXIT_REFUSED


def print_launch_error(error: LaunchError) -> None:
    """Print what is wrong and what to do next."""
    message, hint = messages.render_text(error.code, texts.get_language(), **error.params)
    output.print_error(message)
    click.echo(f"  → {hint}", err=True)


def _launch(mode: str, words: list[str], given: dict[str, Any]) -> int:
    kept = ("rank", "world_size", "local_rank", "nnodes", "node_rank", "master_addr", "master_port")
    asked = placement.LaunchArguments(mode, nproc=given["nproc_per_node"], **{name: given[name] for name in kept})  # type: ignore[arg-type]
    place, words = _complete_placement(asked, words, gpus := _count_gpus())
    words = _build_rank_command(words)
    port = place.master_port or _choose_port()
    env = {**_list_default_variables(place, gpus), **place.shared_env(port)}
    if given["dry_run"]:
        _print_placement(place, env, words)
        return 0
    meeting = None
    if place.members > 1 and not given["no_wait"]:
        name, patience = f"{RENDEZVOUS_ID}-{place.world_size}", given["patience"]
        meeting = Rendezvous(name, place.member, place.members, place.master_addr, port, patience)
    try:
        return foreground.run_ranks(
            words,
            [(rank, build_rank_env(rank, local)) for rank, local in place.ranks],
            env=env,
            meeting=meeting,
            port=place.master_port if place.member == 0 else None,  # one that was chosen here is free
            mark=LINE_PREFIXES.get(given["shown"]),
            logs=given["logs"] or "",
            grace_seconds=given["grace"],
            pulse=not given["no_pulse"],
            hang_seconds=given["hang_seconds"],
            bounded=bounds.build_bounds(**{name: given[name] for name in BOUND_OPTIONS}),
            confine=foreground_sandbox.build_sandbox_order(given["read"], given["write"], os.environ)
            if given["confine"]
            else None,
        )
    except foreground_sandbox.SandboxError as error:
        raise LaunchError("LAUNCH_NOT_CONFINED", why=error.reason) from error
    except foreground.PortInUseError as taken:
        who = taken.holder or _("ANOTHER_USERS_PROCESS")
        raise LaunchError("LAUNCH_PORT_TAKEN", port=port, holder=who, nearest=_choose_port()) from taken
    except barrier.RendezvousError as gave_up:
        raise LaunchError(f"LAUNCH_{gave_up.cause}", evidence=gave_up.detail) from gave_up


def _complete_placement(
    arguments: placement.LaunchArguments, words: list[str], gpus: int
) -> tuple[placement.LaunchPlacement, list[str]]:
    """Prompt for the command and the master's address where nothing else is wrong."""
    try:
        place, alone = placement.find_placement(arguments, os.environ, gpus), None
    except LaunchError as error:
        if error.code != "LAUNCH_MASTER_MISSING":
            raise
        place, alone = None, error
    if place and words:
        return place, words
    words, address = prompts.prompt_for_missing(
        words, master=place is None, is_head=0 in (arguments.rank, arguments.node_rank)
    )
    if alone and not address:
        raise alone
    return place or placement.find_placement(replace(arguments, master_addr=address), os.environ, gpus), words


def _build_rank_command(words: list[str]) -> list[str]:
    """Return the ranks' command. A Python script needs no interpreter before it; where `python` is not on the PATH, as
    on Debian outside of a virtual environment, this command's own is used. Raise LaunchError where something does not
    exist."""
    if words[0].endswith(".py"):
        words = [sys.executable, *words]
    elif words[0] == "python" and shutil.which("python") is None:
        words = [sys.executable, *words[1:]]
    if shutil.which(words[0]) is None:
        raise LaunchError("LAUNCH_COMMAND_MISSING", found=words[0])
    script = next((word for word in words[1:] if not word.startswith("-")), "")
    if "-m" not in words and "-c" not in words and script.endswith(".py") and not Path(script).is_file():
        raise LaunchError("LAUNCH_SCRIPT_MISSING", found=script, folder=Path.cwd())
    return words


def _list_default_variables(launch: placement.LaunchPlacement, gpus: int) -> dict[str, str]:
    """Return the variables that are set unless they are set already."""
    threads = max(1, (os.cpu_count() or 1) // launch.local_world_size) if gpus else 1
    wanted = {"OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"}
    return {name: value for name, value in wanted.items() if name not in os.environ}


def _count_gpus() -> int:
    """Return the number of NVIDIA GPUs that the ranks will see."""
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        return len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return sum(path.name.removeprefix("nvidia").isdecimal() for path in Path("/dev").glob("nvidia*"))


def _choose_port() -> int:
    """Return a port for a single machine: the usual one, or any that is free."""
    if ports.is_port_free(ports.DEFAULT_MASTER_PORT):
        return ports.DEFAULT_MASTER_PORT
    with socket.create_server(("", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _print_placement(launch: placement.LaunchPlacement, env: dict[str, str], words: list[str]) -> None:
    import shlex

    for rank, local in launch.ranks:
        values = {**env, **build_rank_env(rank, local)}
        click.echo(" ".join([*(f"{name}={shlex.quote(value)}" for name, value in values.items()), shlex.join(words)]))


def _create_task(file: Path, words: list[str], given: dict[str, Any]) -> int:
    counts = given["nproc_per_node"] or (given["gpus_per_node"] or 1,)
    batch = sbatch.SbatchOptions(
        given["num_nodes"], counts[0], given["gpus_per_node"], given["job_name"], given["partition"],
        given["account"], given["qos"], given["limit"], given["cpus_per_task"],
    )  # fmt: skip
    text = sbatch.render_script(batch, words)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(0o755)
    except OSError as error:
        raise click.UsageError(_("FILE_NOT_WRITABLE", file=file, why=error.strerror)) from error
    click.echo(_("BATCH_SCRIPT_WRITTEN", file=file))
    return 0
