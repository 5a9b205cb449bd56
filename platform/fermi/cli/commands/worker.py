"""Command `fermi worker`, the worker launcher, which runs on each host of a bare-metal cluster."""

import logging
import os
import signal
import sys
from typing import Any

import click

from fermi.cli import texts
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.runner.processes import refuse_tracers


@command("worker", _("MORE_WORKER"), output=False)
@click.option("--server", metavar="URL", help=_("OPTION_SERVER"))
@click.option("--token", envvar="FERMI_JOIN_TOKEN", help=_("OPTION_WORKER_TOKEN"))
@click.option("--token-file", metavar="FILE", help=_("OPTION_TOKEN_FILE"))
@click.option("--id", "ids", multiple=True, help=_("OPTION_ID"))
@click.option("--node", help=_("OPTION_WORKER_NODE"))
@click.option("--gpus", help=_("OPTION_WORKER_GPUS"))
@click.option("--emulate", is_flag=True, help=_("OPTION_EMULATE"))
@click.option("--address", help=_("OPTION_ADDRESS"))
@click.option("--zone", help=_("OPTION_WORKER_ZONE"))
@click.option("--gpu-type", help=_("OPTION_WORKER_GPU_TYPE"))
@click.option("--state", metavar="FOLDER", help=_("OPTION_STATE"))
@click.option("--workspace", metavar="FOLDER", help=_("OPTION_WORKSPACE"))
@click.option("--python", metavar="PATH", help=_("OPTION_PYTHON"))
@click.option("--config", metavar="FILE", help=_("OPTION_CONFIG"))
def worker(session: Session, config: str | None, gpus: str | None, **given: Any) -> None:
    from fermi.agent.agent import Agent
    from fermi.agent.errors import AgentError
    from fermi.agent.settings import load_settings, parse_numbers
    from fermi.runner import cgroups

    given["server"] = given["server"] or session.url
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    _hide_token(given["token"])
    refuse_tracers()
    try:
        cgroups.divide_own_group()
        settings = load_settings(config, {**given, "gpus": parse_numbers(gpus) if gpus else None})
        agent = Agent(settings, config, texts.get_language())
        click.echo(agent.confining.sentences(texts.get_language()), err=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: agent.stop())
        agent.run()
    except AgentError as error:
        raise click.ClickException(error.words(texts.get_language())) from error


def _hide_token(token: str | None) -> None:
    """Restart this command with the token in a variable where it is an argument: everybody on a host can read a
    process's arguments, but its environment only who may trace it."""
    words = sys.orig_argv
    for at, word in enumerate(words):
        if token and (word == f"--token={token}" or words[at : at + 2] == ["--token", token]):
            os.environ["FERMI_JOIN_TOKEN"] = token
            os.execv(sys.executable, [*words[:at], *words[at + (1 if "=" in word else 2) :]])
