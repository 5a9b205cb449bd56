"""The worker launcher: what runs on each host of a bare-metal cluster."""

import logging
import os
import signal
import sys
from typing import Any

import click

from fermi.cli import texts
from fermi.cli.options import Session, command
from fermi.cli.texts import _


@command(
    "worker",
    _(
        "Runs until it is told to end; training goes on then, and the next one picks it up. One worker per GPU: "
        "--node gn6 --gpus 0,1,2,3, or one alone: --id gn6-0."
    ),
    output=False,
)
@click.option("--server", metavar="URL", help=_("The platform's address."))
@click.option("--token", envvar="FERMI_JOIN_TOKEN", help=_("A join token, made in the console; needed the first time."))
@click.option("--token-file", metavar="FILE", help=_("A file with the join token."))
@click.option("--id", "ids", multiple=True, help=_("A worker, <node>-<number>; can be given again."))
@click.option("--node", help=_("This host's name among the nodes."))
@click.option("--gpus", help=_("One worker for each of these GPUs: 0,1,2 or 0-7."))
@click.option("--emulate", is_flag=True, help=_("CPU processes stand in for the GPUs."))
@click.option("--address", help=_("Where the other hosts reach this one; default: as it reaches the platform."))
@click.option("--zone", help=_("The availability zone that it is in."))
@click.option("--gpu-type", help=_("What its GPUs are; default: what nvidia-smi says."))
@click.option("--state", metavar="FOLDER", help=_("Where it keeps what it has begun."))
@click.option("--workspace", metavar="FOLDER", help=_("Where ranks start and relative scripts are looked for."))
@click.option("--python", metavar="PATH", help=_("The interpreter that has the training stack."))
@click.option("--config", metavar="FILE", help=_("TOML or YAML with the same names."))
def worker(session: Session, config: str | None, gpus: str | None, **given: Any) -> None:
    from fermi.agent.agent import Agent
    from fermi.agent.errors import AgentError
    from fermi.agent.settings import load, numbers

    given["server"] = given["server"] or session.url
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _keep_out_of_sight(given["token"])
    try:
        settings = load(config, {**given, "gpus": numbers(gpus) if gpus else None})
        agent = Agent(settings, config)
        click.echo(agent.confining.sentences(texts.language()), err=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        agent.run()
    except AgentError as error:
        raise click.ClickException(error.words(texts.language())) from error


def _keep_out_of_sight(token: str | None) -> None:
    """Everybody on a host can read a process's arguments, its environment only who may trace it: where the token is an
    argument, begins anew with it as a variable."""
    words = sys.orig_argv
    for at, word in enumerate(words):
        if token and (word == f"--token={token}" or words[at : at + 2] == ["--token", token]):
            os.environ["FERMI_JOIN_TOKEN"] = token
            os.execv(sys.executable, [*words[:at], *words[at + (1 if "=" in word else 2) :]])
