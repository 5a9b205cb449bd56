"""ASGI application of proxy addresses, in front of Django: authenticates requests and passes them on to
environments."""

import asyncio
import time
from collections.abc import Awaitable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

import httpcore
from django.conf import settings
from websockets.exceptions import InvalidHandshake, InvalidMessage, InvalidStatus

from apps.common import asgi, request_id
from apps.common.asgi import App, Receive, Scope, Send
from apps.common.errors import ApiError
from apps.environments import own_secrets
from apps.environments.models import Hosted
from apps.proxy import envd_streams, error_pages, headers, hostnames, http_client, targets, tickets, websocket_proxy
from apps.proxy.access_watch import CHECK_SECONDS, RevocationWatcher, run_in_thread
from apps.proxy.tickets import SessionState, SessionToken
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem

PROXY_PATH_PREFIX = "/_fermi/"
STARTING_CODES = ("DOOR_COMING", "SERVICE_STARTING")
REFRESH_SECONDS = 3
MAX_CACHED_SESSIONS = 4096
MAX_WEBSOCKETS = 512
"""WebSockets of one session in this process."""


class EnvironmentProxy:
    """Authenticating reverse proxy of environments; other hosts' requests go `onward`."""

    def __init__(self, onward: App) -> None:
        self._onward = onward
        self._pools = http_client.ConnectionPools()
        self._watch = RevocationWatcher()
        self._known: dict[str, tuple[float, asyncio.Future[SessionState | None]]] = {}
        self._sockets: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = None
        if scope["type"] in ("http", "websocket"):
            name = hostnames.parse_host(asgi.get_header(scope, b"host"), settings.DOOR_HOST)
        if name is None:
            await self._onward(scope, receive, send)
            return
        request_id.set_request_id(asgi.get_header(scope, b"x-request-id"))
        if scope["type"] == "websocket":
            await receive()  # its "connect"
        visit = _ProxiedRequest(scope, receive, send, name)
        try:
            await self._serve(visit)
        except http_client.ProxyClientDisconnectedError:
            pass
        except ApiError as error:
            await visit.refuse(error)

    async def _serve(self, visit: "_ProxiedRequest") -> None:
        if visit.scope["path"].startswith(PROXY_PATH_PREFIX):
            await self._enter(visit)
            return
        known = await self._admitted(visit)
        if known is None:
            return
        visit.refuse_cross_site()
        visit.scope.setdefault("extensions", {})[asgi.SLOW_BODY_ALLOWED] = (
            True  # how long it takes is the environment's affair
        )
        inside = targets.resolve_service(known.environment, visit.name.door)
        if not inside:
            raise ApiError(
                404, "DOOR_UNKNOWN", door=visit.name.door, doors=", ".join(targets.list_services(known.environment))
            )
        if known.state in targets.STARTING_STATES:
            raise ApiError(503, "DOOR_COMING", environment=known.environment.name)
        if known.state in targets.STOPPED_STATES:
            raise ApiError(503, "DOOR_SHUT", environment=known.environment.name)
        more = await self._renewed(visit, known)
        with self._watch.watch_access(known.authorization) as over:
            if visit.scope["type"] == "websocket":
                await self._relay(visit, known, inside, more, over)
            else:
                await self._carry(visit, known, inside, more, over)

    # Coming in --------------------------------------------------------------------------------------------------------

    async def _enter(self, visit: "_ProxiedRequest") -> None:
        """Exchange a ticket for a token. The path that follows is stored with the ticket; the request cannot set it."""
        scope = visit.scope
        if scope["type"] != "http" or scope["path"] != f"{PROXY_PATH_PREFIX}enter" or scope["method"] != "GET":
            raise ApiError(404, "NO_SUCH_ADDRESS", path=scope["path"])
        given = dict(pair.partition("=")[::2] for pair in scope["query_string"].decode("latin-1").split("&"))
        ticket, host = given.get("ticket", ""), visit.host
        entry = await run_in_thread(lambda: tickets.redeem_ticket(ticket, host))
        if entry is None:
            raise ApiError(403, "DOOR_TICKET_SPENT")
        cookie = headers.make_token_cookie(tickets.make_token(entry), entry.origin)
        await visit.redirect(entry.path, [cookie])

    async def _admitted(self, visit: "_ProxiedRequest") -> SessionState | None:
        """Return the session, or None if the request was answered already. A page without a valid token learns nothing
        about what exists."""
        token = visit.token
        if token is None or token.age > tickets.TOKEN_SECONDS:
            await self._outside(visit, token)
            return None
        known = await self._look(token)
        if known is None or not known.has_access or tickets.is_token_replayed(known, token):
            if known and tickets.is_token_replayed(known, token):
                await run_in_thread(lambda: tickets.end_session(token.entry))
                self._known.pop(token.entry, None)
            await self._outside(visit, token if known is None or known.has_access else None, lost=known is not None)
            return None
        return known

    async def _outside(self, visit: "_ProxiedRequest", token: SessionToken | None, *, lost: bool = False) -> None:
        console = token.console if token else visit.token.console if visit.token else visit.default_console()
        if error_pages.is_page_request(visit.scope) and console:
            asked = {"path": http_client.get_raw_target(visit.scope).decode("latin-1")}
            if visit.name.door:
                asked["door"] = visit.name.door
            way = f"{console}/environments/{quote(visit.name.environment, safe='')}/open?{urlencode(asked)}"
            await visit.redirect(way, [])
        elif token is not None:
            raise ApiError(401, "DOOR_CLOSED")
        else:
            raise ApiError(404, "NOT_FOUND")

    async def _look(self, token: SessionToken) -> SessionState | None:
        """Return the session, at most CHECK_SECONDS old unless the token is newer; read once for all requests at the
        same time."""
        found = self._known.get(token.entry)
        if found is not None:
            at, asked = found
            fresh = time.monotonic() - at < CHECK_SECONDS
            known = await asyncio.shield(asked) if fresh or not asked.done() else None
            if fresh and not (known and known.entry.serial < token.serial):
                return known
        if len(self._known) > MAX_CACHED_SESSIONS:
            self._known.clear()
        asked = asyncio.ensure_future(run_in_thread(lambda: tickets.read_session(token.entry)))
        self._known[token.entry] = time.monotonic(), asked
        try:
            return await asyncio.shield(asked)
        except Exception:
            self._known.pop(token.entry, None)
            raise

    async def _renewed(self, visit: "_ProxiedRequest", session: SessionState) -> headers.Headers:
        token = visit.token
        assert token is not None
        if token.age < tickets.RENEW_AFTER_SECONDS or token.serial != session.entry.serial:
            return []
        made = await run_in_thread(lambda: tickets.renew_token(token.entry, token.serial))
        self._known.pop(token.entry, None)
        return [headers.make_token_cookie(made, token.origin)] if made else []

    # Going on ---------------------------------------------------------------------------------------------------------

    async def _carry(
        self,
        visit: "_ProxiedRequest",
        session: SessionState,
        service: str,
        extra_headers: headers.Headers,
        revoked: "asyncio.Future[None]",
    ) -> None:
        held = self._pools.acquire(session.environment, session.run, service)
        passed = headers.filter_request_headers(
            visit.scope["headers"], origin=visit.origin, client=visit.client, hidden_cookies=visit.hidden
        )
        passed += _make_key_header(session)
        try:
            await _run_until_revoked(
                revoked,
                http_client.proxy_request(
                    visit.scope,
                    visit.receive,
                    visit.sending,
                    held,
                    passed,
                    hidden_cookies=visit.hidden,
                    extra_headers=extra_headers,
                ),
            )
        except httpcore.PoolTimeout:
            raise ApiError(503, "DOOR_BUSY", most=http_client.MAX_CONNECTIONS) from None
        except (httpcore.NetworkError, httpcore.ProtocolError, *envd_streams.DIAL_ERRORS) as error:
            if visit.begun:
                raise
            raise _make_unreachable_error(error, session) from error
        finally:
            self._pools.release(held)

    async def _relay(
        self,
        visit: "_ProxiedRequest",
        session: SessionState,
        service: str,
        extra_headers: headers.Headers,
        revoked: "asyncio.Future[None]",
    ) -> None:
        count = self._sockets.get(session.entry.pk, 0)
        if count >= MAX_WEBSOCKETS:
            raise ApiError(503, "DOOR_BUSY", most=MAX_WEBSOCKETS)
        self._sockets[session.entry.pk] = count + 1
        try:
            await self._relayed(visit, session, service, extra_headers, revoked)
        finally:
            self._sockets[session.entry.pk] -= 1
            if not self._sockets[session.entry.pk]:
                del self._sockets[session.entry.pk]

    async def _relayed(
        self,
        visit: "_ProxiedRequest",
        session: SessionState,
        service: str,
        extra_headers: headers.Headers,
        revoked: "asyncio.Future[None]",
    ) -> None:
        scope = visit.scope
        passed = headers.filter_request_headers(
            scope["headers"], origin=visit.origin, client=visit.client, hidden_cookies=visit.hidden, is_websocket=True
        )
        try:
            sock, _ = await envd_streams.open_envd_socket(session.environment, {"open": "port", "door": service})
            inside = await websocket_proxy.connect_websocket(sock, scope, passed, visit.origin)
        except InvalidStatus as refused:
            said = refused.response
            raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in said.headers.raw_items()]
            kept = [
                one for one in headers.filter_response_headers(raw, visit.hidden) if one[0] not in (b"content-length",)
            ]
            await visit.send({"type": "websocket.http.response.start", "status": said.status_code, "headers": kept})
            await visit.send({"type": "websocket.http.response.body", "body": bytes(said.body or b"")})
            return
        except (InvalidHandshake, InvalidMessage, TimeoutError, *envd_streams.DIAL_ERRORS) as error:
            raise _make_unreachable_error(error, session) from error
        try:
            relayed = websocket_proxy.relay_messages(
                visit.receive, visit.send, inside, hidden_cookies=visit.hidden, extra_headers=extra_headers
            )
            if await _run_until_revoked(revoked, relayed):
                await visit.send({"type": "websocket.close", "code": 1008, "reason": "DOOR_CLOSED"})
        finally:
            await inside.close()


class _ProxiedRequest:
    """One request or WebSocket to a proxy address."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, name: hostnames.ProxyAddress) -> None:
        self.scope, self.receive, self.send, self.name = scope, receive, send, name
        self.host = asgi.get_header(scope, b"host").lower()
        self.client = str(scope["client"][0]) if scope.get("client") else ""
        self.hidden = frozenset(
            (settings.SESSION_COOKIE_NAME.encode(), settings.CSRF_COOKIE_NAME.encode(),
             headers.TOKEN_COOKIE, headers.SECURE_TOKEN_COOKIE)
        )  # fmt: skip
        self.begun = False
        self.token = self._token()
        self.origin = self.token.origin if self.token else ""

    def _token(self) -> SessionToken | None:
        """Return the token for this host; over https only from the cookie that nothing but the host can set."""
        held = dict(headers.parse_cookies(self.scope["headers"]))
        for name, scheme in ((headers.SECURE_TOKEN_COOKIE, "https"), (headers.TOKEN_COOKIE, "http")):
            if name in held:
                token = tickets.parse_token(held[name].decode("latin-1"))
                if token and token.origin == f"{scheme}://{self.host}":
                    return token
        return None

    def refuse_cross_site(self) -> None:
        """Raise ApiError 403 for requests of other pages, also of the same site, except navigation to a page."""
        origin = asgi.get_header(self.scope, b"origin")
        if self.scope["type"] == "websocket":
            strange = origin != self.origin
        else:
            led = (
                self.scope["method"] in ("GET", "HEAD")
                and asgi.get_header(self.scope, b"sec-fetch-mode") == "navigate"
                and asgi.get_header(self.scope, b"sec-fetch-dest") == "document"
            )
            site = asgi.get_header(self.scope, b"sec-fetch-site")
            strange = not led and (origin not in ("", self.origin) or site in ("cross-site", "same-site"))
        if strange:
            raise ApiError(403, "DOOR_CROSS_SITE", origin=origin or "–")

    def default_console(self) -> str:
        """Return the console's address for a user without a token, as far as it is known."""
        if settings.PUBLIC_URL and not self.host.endswith(f".{hostnames.LOCAL_DOMAIN}"):
            return str(settings.PUBLIC_URL)
        name, port = hostnames.split_host(self.host)
        return f"http://127.0.0.1{port}" if name.endswith(f".{hostnames.LOCAL_DOMAIN}") else ""

    async def sending(self, message: Mapping[str, Any]) -> None:
        self.begun = True
        await self.send(message)

    async def redirect(self, location: str, extra_headers: headers.Headers) -> None:
        said = [(b"location", location.encode("latin-1", "replace")), *error_pages.SAFE_HEADERS, *extra_headers]
        await self.send({"type": "http.response.start", "status": 302, "headers": said})
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, error: ApiError) -> None:
        console = self.token.console if self.token else ""
        where = f"{console}/environments/{quote(self.name.environment, safe='')}" if console else ""
        again = REFRESH_SECONDS if error.code in STARTING_CODES else 0
        await error_pages.send_error(self.scope, self.send, error, console=where, reload_seconds=again)


async def _run_until_revoked(revoked: "asyncio.Future[None]", work: Awaitable[None]) -> bool:
    """Run `work` until it ends or `revoked` is done. Returns True if access was revoked."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait((task, revoked), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
            return False
        return True
    finally:
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _make_key_header(session: SessionState) -> headers.Headers:
    """Return the header by which the program of an environment with a purpose knows the proxy; none for others."""
    hosted: Hosted | None = getattr(session.environment, "hosted", None)
    if hosted is None or not hosted.purpose:
        return []
    key = own_secrets.make_proxy_key(session.environment.pk, session.run)
    return [(own_secrets.PROXY_KEY_HEADER, key.encode())]


def _make_unreachable_error(error: Exception, session: SessionState) -> ApiError:
    """Return the error for an environment that does not answer, or not by HTTP."""
    match error:
        case BackendError() | envd_streams.EnvdRefusedError() if error.code:
            away = ApiError(503 if error.code in STARTING_CODES else 502, error.code)
            away.problems = [Problem("", error.code, dict(error.params))]
            return away
    return ApiError(502, "DOOR_BROKE", environment=session.environment.name, why=f"{type(error).__name__}"[:200])
