"""Commands `ssh`, and those based on it, through the platform's proxy."""

import logging
import sys
from importlib.util import find_spec
from pathlib import Path

import click

from fermi.cli import completion, output
from fermi.cli.name_resolution import NameResolver, is_reachable
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import NotFoundError, config


@command("proxy", _("MORE_PROXY"), output=False)
@click.argument("name", metavar="ENV", shell_complete=completion.complete_environments)
def proxy(session: Session, name: str) -> None:
    _require_asyncssh()
    from fermi.cli.ssh_keys import SshHost
    from fermi.cli.ssh_server import serve_pipe

    logging.getLogger("asyncssh").setLevel(logging.CRITICAL)
    environments = session.fermi.environments
    try:
        found = environments.get(name)["id"]
    except NotFoundError:
        found = environments.get(NameResolver(session.fermi).environment(name))["id"]
    serve_pipe(environments.channel(found), SshHost(session.fermi.url, found).key())


@command("ssh-config", _("MORE_SSH_CONFIG"), output=False)
@click.option("--write", is_flag=True, help=_("OPTION_SSH_CONFIG_WRITE"))
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), help=_("OPTION_SSH_CONFIG_FILE"))
def ssh_config(session: Session, write: bool, file: Path | None) -> None:
    _require_asyncssh()
    from fermi.cli import ssh_keys

    running = [one for one in session.fermi.environments.list() if is_reachable(one)]
    if not running:
        output.print_message(_("NO_ENVIRONMENT_RUNS"))
    block = ssh_keys.render_host_entries(session.fermi.url, [{"id": one["id"], "name": one["name"]} for one in running])
    if session.fermi.url not in (config.load_config().url, config.find_local_endpoint().url):
        output.print_message(_("SSH_NEEDS_SIGN_IN", url=session.fermi.url))
    if not write:
        if block:
            click.echo(block)
        return
    target = file or Path.home() / ".ssh" / "config"
    changed = ssh_keys.update_ssh_config(block, target)
    output.print_message(
        _("SSH_CONFIG_WRITTEN", file=target, count=len(running)) if changed else _("SSH_CONFIG_SAME", file=target)
    )


def _require_asyncssh() -> None:
    if find_spec("asyncssh") is None:
        raise click.ClickException(_("ASYNCSSH_MISSING", python=sys.executable))
