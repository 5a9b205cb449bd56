"""An agent's program that knows the address of `/mcp` alone.

The official client finds where to sign in, registers itself and gets its token by the person's browser. `python -m
tests.fakes.oauth_program ADDRESS` says what happens, a JSON object per line, and takes the next step when a line comes:

    {"open": …}                    an address that the person opens in a browser
    {"tools": 12, "scope": …}      after the sign-in
    {"refreshed": true}            the token had expired, and another one came without the person
    {"revoked": 200}               the program gave its access back; its next call opens the browser again
    {"ended": …}                   the class of the error that ended the program
"""

import asyncio
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

SCOPE = "tasks:read environments:read"


class Storage:
    """What the program keeps: its registration, and its tokens."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Callback(HTTPServer):
    """The address that the browser comes back to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.params: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    server: Callback

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/callback":
            self.server.loop.call_soon_threadsafe(self.server.params.put_nowait, dict(parse_qsl(parts.query)))
        content = b"<!doctype html><title>program</title><p>back at the program"
        self.send_response(200 if parts.path == "/callback" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None: ...


def report(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


async def wait_for_line() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


async def run(address: str) -> None:
    storage, callback = Storage(), Callback()

    async def open_browser(url: str) -> None:
        report(open=url)

    async def wait_for_browser() -> AuthorizationCodeResult:
        params = await callback.params.get()
        if "code" not in params:
            raise PermissionError(params.get("error", ""))
        return AuthorizationCodeResult(code=params["code"], state=params.get("state"), iss=params.get("iss"))

    provider = OAuthClientProvider(
        f"{address}/mcp",
        OAuthClientMetadata(
            client_name="A program of a test",
            redirect_uris=[f"http://127.0.0.1:{callback.server_port}/callback"],  # type: ignore[list-item]
            scope=SCOPE,
            token_endpoint_auth_method="none",
        ),
        storage,
        open_browser,
        wait_for_browser,
    )
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
    ):
        listed = await client.list_tools()
        answer = await client.call_tool("list_tasks", {})
        assert storage.tokens is not None
        report(tools=len(listed.tools), failed=bool(answer.is_error), scope=storage.tokens.scope)
        await wait_for_line()
        before = storage.tokens.access_token
        provider.context.token_expiry_time = time.time() - 1
        answer = await client.call_tool("list_tasks", {})
        report(refreshed=storage.tokens.access_token != before, failed=bool(answer.is_error))
        await wait_for_line()
        assert storage.client is not None
        form = {"token": storage.tokens.access_token, "client_id": storage.client.client_id}
        async with httpx2.AsyncClient() as plain:
            answered = await plain.post(f"{address}/oauth/revoke", data=form)
        report(revoked=answered.status_code)
        await wait_for_line()
        await client.call_tool("list_tasks", {})


def main() -> None:
    try:
        asyncio.run(run(sys.argv[1]))
    except BaseException as error:
        causes = [error]
        while isinstance(causes[-1], BaseExceptionGroup):
            causes.append(causes[-1].exceptions[0])
        report(ended=type(causes[-1]).__name__, said=str(causes[-1])[:500])


if __name__ == "__main__":
    main()
