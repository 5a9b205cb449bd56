"""Command that serves the tools of `fermi.mcp` over standard input and output, with the login of the command line."""

from typing import Any

import click

from fermi.cli.options import Session, command
from fermi.cli.texts import _, get_language

MISSING_PACKAGE = "mcp"


@command("mcp", _("MORE_MCP"), output=False)
def serve_mcp(session: Session) -> None:
    try:
        import anyio
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise click.UsageError(_("MCP_PACKAGE_MISSING")) from error
    from fermi.client.config import find_endpoint
    from fermi.mcp.http_caller import HttpCaller
    from fermi.mcp.server import find_version, make_server

    account: Any = session.fermi.me()  # refuses a missing or a revoked token before a client waits for tools
    scopes = (account.get("token") or {}).get("scopes")
    caller = HttpCaller(find_endpoint(session.url), get_language(), scopes)

    async def serve() -> None:
        server = make_server(lambda _context: caller, find_version())
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)
