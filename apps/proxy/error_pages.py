"""Errors of the proxy: a page for browsers' navigation, the error envelope for other requests."""

from django.utils.html import format_html

from apps.common import asgi
from apps.common.asgi import Scope, Send
from apps.common.errors import ApiError
from apps.common.texts import render_text

_PAGE = """<!doctype html>
<html lang="{lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">{refresh}
<title>Fermi</title><style>
:root {{ color-scheme: light dark; font: 16px/1.6 system-ui, sans-serif }}
body {{ max-width: 36rem; margin: 18vh auto; padding: 0 1.5rem }}
h1 {{ font-size: 1.25rem; font-weight: 600 }} code {{ opacity: .6 }}
</style></head><body><h1>{message}</h1><p>{hint}</p><p>{link}</p><p><code>{code}</code></p></body></html>
"""
CONSOLE_LINK_CODE = "DOOR_TO_CONSOLE"
SAFE_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
]


def render_page(error: ApiError, lang: str, *, console: str = "", reload_seconds: int = 0) -> bytes:
    """Return the page. `console`: address where the console shows the environment; `reload_seconds`: the page reloads
    itself after this time."""
    [problem] = error.problems
    message, hint = render_text(error.code, problem.params, lang)
    there = format_html('<a href="{}">{}</a>', console, render_text(CONSOLE_LINK_CODE, lang=lang)[0]) if console else ""
    refresh = format_html('<meta http-equiv="refresh" content="{}">', reload_seconds) if reload_seconds else ""
    page = format_html(_PAGE, lang=lang, refresh=refresh, message=message, hint=hint, link=there, code=error.code)
    return str(page).encode()


async def send_error(scope: Scope, send: Send, error: ApiError, *, console: str = "", reload_seconds: int = 0) -> None:
    """Send the error as a page or as the envelope."""
    more = [(b"retry-after", b"%d" % reload_seconds)] if reload_seconds else []
    if not is_page_request(scope):
        await asgi.send_error(scope, send, error, [(b"cache-control", b"no-store"), *more])
        return
    body = render_page(error, asgi.get_request_language(scope), console=console, reload_seconds=reload_seconds)
    await asgi.send_response(send, body, error.status, [*SAFE_HEADERS, *more], content_type=b"text/html; charset=utf-8")


def is_page_request(scope: Scope) -> bool:
    """Return True if a browser navigates to a page (GET)."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    mode = asgi.get_header(scope, b"sec-fetch-mode")
    return mode == "navigate" if mode else "text/html" in asgi.get_header(scope, b"accept")
