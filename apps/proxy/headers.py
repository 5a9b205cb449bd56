"""Filters of headers: what of a request reaches an environment, and what of its answer reaches a browser. Pure
functions.

The console's and the proxy's cookies are not passed on, and an environment's answer can neither set cookies for a name
that it shares with others, nor clear the browser's.
"""

from collections.abc import Iterable, Iterator

Headers = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
     b"trailer", b"transfer-encoding", b"upgrade")
)  # fmt: skip
_PROXY_HEADER_PREFIXES = (b"x-forwarded-", b"forwarded", b"x-real-ip", b"via", b"x-request-id")
_WEBSOCKET_PREFIX = b"sec-websocket-"
_FORBIDDEN_RESPONSE_HEADERS = frozenset(
    (b"clear-site-data", b"strict-transport-security", b"alt-svc", b"server-timing")
)
TOKEN_COOKIE = b"fermi_door"
SECURE_TOKEN_COOKIE = b"__Host-fermi_door"
"""Browsers accept a cookie of this name only from the host itself, over https."""
_PLATFORM_BEARER = b"bearer fermi_"
FRAME_ANCESTORS_HEADER = (b"content-security-policy", b"frame-ancestors 'self'")


def get_header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the value of a header, or an empty text."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def parse_cookies(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield each cookie's name and value, unchanged."""
    for key, value in headers:
        if key.lower() == b"cookie":
            for crumb in value.split(b";"):
                name, _, held = crumb.strip().partition(b"=")
                yield name.strip(), held.strip()


def filter_request_headers(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    origin: str,
    client: str,
    hidden_cookies: frozenset[bytes],
    is_websocket: bool = False,
) -> Headers:
    """Return the headers that reach the environment. `hidden_cookies`: cookies that are not passed on. `is_websocket`:
    the handshake is made anew."""
    listed = list(headers)
    scheme, _, host = origin.encode().partition(b"://")
    passed: Headers = [(b"host", host)] if not is_websocket else []
    framed = any(key.lower() == b"transfer-encoding" for key, _ in listed)
    dropped = (
        HOP_BY_HOP
        | _list_connection_headers(listed)
        | {b"host", b"cookie"}
        | ({b"content-length"} if framed else set())
    )
    for key, value in listed:
        name = key.lower()
        if (
            name in dropped
            or name.startswith(_PROXY_HEADER_PREFIXES)
            or (is_websocket and name.startswith(_WEBSOCKET_PREFIX))
        ):
            continue
        if name == b"authorization" and value.lower().startswith(_PLATFORM_BEARER):
            continue
        if is_websocket and name in (b"origin", b"content-length"):
            continue
        passed.append((key, value))
    kept = [b"=".join((name, value)) for name, value in parse_cookies(listed) if name not in hidden_cookies]
    if kept:
        passed.append((b"cookie", b"; ".join(kept)))
    if framed and not is_websocket:
        passed.append((b"transfer-encoding", b"chunked"))
    passed += [(b"x-forwarded-host", host), (b"x-forwarded-proto", scheme)]
    return [*passed, (b"x-forwarded-for", client.encode())] if client else passed


def filter_response_headers(headers: Iterable[tuple[bytes, bytes]], hidden_cookies: frozenset[bytes]) -> Headers:
    """Return the headers that reach the browser. `hidden_cookies`: cookies that the environment may not set."""
    listed = list(headers)
    dropped = HOP_BY_HOP | _list_connection_headers(listed) | _FORBIDDEN_RESPONSE_HEADERS
    passed: Headers = []
    for key, value in listed:
        name = key.lower()
        if name in dropped or name.startswith(_WEBSOCKET_PREFIX):
            continue
        if name == b"set-cookie":
            if value.split(b"=", 1)[0].strip() in hidden_cookies:
                continue
            value = _drop_domain(value)
        passed.append((name, value))
    return [*passed, FRAME_ANCESTORS_HEADER]


def make_token_cookie(token: str, origin: str) -> tuple[bytes, bytes]:
    """Return the Set-Cookie header of a token, for this host alone. Without an age: an expired token still names the
    console."""
    secure = origin.startswith("https://")
    name = SECURE_TOKEN_COOKIE if secure else TOKEN_COOKIE
    rest = b"; Path=/; HttpOnly; SameSite=Lax" + (b"; Secure" if secure else b"")
    return b"set-cookie", name + b"=" + token.encode() + rest


def _list_connection_headers(headers: Headers) -> set[bytes]:
    """Return the headers that Connection declares as hop-by-hop."""
    return {
        word.strip().lower() for key, value in headers if key.lower() == b"connection" for word in value.split(b",")
    }


def _drop_domain(cookie: bytes) -> bytes:
    first, *attributes = cookie.split(b";")
    kept = [part for part in attributes if part.split(b"=", 1)[0].strip().lower() != b"domain"]
    return b";".join((first, *kept))
