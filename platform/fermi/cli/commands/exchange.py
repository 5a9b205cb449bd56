"""Command by which a pipeline gets a token of a service account."""

import os
from pathlib import Path

import click

from fermi.cli import output, texts
from fermi.cli.options import Session, command
from fermi.cli.texts import _
from fermi.client import config


@command("exchange", _("MORE_EXCHANGE"))
@click.argument("service_account")
@click.option("--audience", help=_("OPTION_EXCHANGE_AUDIENCE"))
@click.option("--file", "source", type=click.Path(path_type=Path), help=_("OPTION_EXCHANGE_FILE"))
@click.option("--scope", "scopes", multiple=True, help=_("OPTION_EXCHANGE_SCOPE"))
@click.option("--print", "show", is_flag=True, help=_("OPTION_EXCHANGE_PRINT"))
def exchange(
    session: Session,
    service_account: str,
    audience: str | None,
    source: Path | None,
    scopes: tuple[str, ...],
    show: bool,
) -> None:
    from fermi.client.exchange import exchange_id_token, read_id_token

    url = config.find_endpoint(session.url).url
    if source is None:
        id_token = read_id_token(audience or url)
    else:
        try:
            id_token = source.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            raise click.UsageError(_("EXCHANGE_FILE_UNREADABLE", file=source, why=error)) from error
    made = exchange_id_token(url, id_token, service_account, scopes=scopes, lang=texts.get_language())
    if show:
        output.print_result(made, session.form, lambda: [made["access_token"]])
        return
    kept = config.load_config()
    config.save_config(config.Config(url, made["access_token"], session.lang or kept.language))
    output.print_message(_("KEPT_IN_FILE", file=config.get_config_path()))
    if os.environ.get("FERMI_TOKEN"):
        output.print_message(_("EXCHANGE_TOKEN_IN_THE_WAY"))
    facts = {"username": service_account, "scope": made["scope"], "expires_in": made["expires_in"]}
    pairs: list[tuple[str, output.Cell]] = [
        (_("USER"), service_account),
        (_("SCOPES"), made["scope"]),
        (_("MINUTES_LEFT"), round(made["expires_in"] / 60)),
    ]
    output.print_result(facts, session.form, lambda: [output.make_pairs(pairs)])
