"""Sign-in in the browser: authorization code with PKCE on a loopback port (RFC 8252, RFC 7636), or a code that is typed
on another device (RFC 8628)."""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from fermi.client.errors import InvalidRequestError, NotAuthenticatedError, UnreachableError

CLIENT_ID = "fermi-cli"
SCOPE = "all"
WAIT_SECONDS = 600.0  # for the person, in the browser
SLOW_DOWN_SECONDS = 5.0  # more between two requests, each time that the platform asks for it (RFC 8628, 3.5)
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

_DONE = "You can close this page and return to the terminal. / 可以关闭此页面并回到终端。"


@dataclass(frozen=True, slots=True)
class DevicePrompt:
    """What a person needs to approve a device: the address, with and without the code in it, and the code."""

    address: str
    complete_address: str
    user_code: str
    device_code: str
    interval: float
    expires_in: float


def sign_in_in_browser(url: str, show: Callable[[str], None], wait_seconds: float = WAIT_SECONDS) -> str:
    """Return a token that the person approved in a browser on this machine. `show` opens the address or prints it.

    Raise NotAuthenticatedError where it was denied or nobody came in time, UnreachableError where the platform does not
    answer.
    """
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(32)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    with _CallbackServer(state) as server:
        redirect = f"http://127.0.0.1:{server.server_port}/callback"
        query = {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": redirect,
            "scope": SCOPE,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        show(f"{url}/oauth/authorize?{urlencode(query)}")
        params = server.wait(wait_seconds)
    if params is None:
        raise NotAuthenticatedError("nobody signed in in the browser in time", code="SIGN_IN_TIMED_OUT")
    if "code" not in params:
        raise _make_refusal(params.get("error", ""))
    form = {
        "grant_type": "authorization_code",
        "client_id": CLIENT_ID,
        "redirect_uri": redirect,
        "code": params["code"],
        "code_verifier": verifier,
    }
    answer = _post_form(url, "token", form)
    if "access_token" not in answer:
        raise _make_refusal(str(answer.get("error", "")))
    return str(answer["access_token"])


class _CallbackServer(HTTPServer):
    """Waits on a loopback port for the browser to come back. What comes with another state is refused."""

    def __init__(self, state: str) -> None:
        self.state = state
        self.params: dict[str, str] | None = None
        super().__init__(("127.0.0.1", 0), _CallbackHandler)

    def wait(self, seconds: float) -> dict[str, str] | None:
        """Return the parameters that the browser brings, or None if it does not come in time."""
        end = time.monotonic() + seconds
        while self.params is None and (left := end - time.monotonic()) > 0:
            self.timeout = left
            self.handle_request()
        return self.params


class _CallbackHandler(BaseHTTPRequestHandler):
    server: _CallbackServer
    timeout = 5  # seconds for a request that somebody begins and does not end

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        params = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != "/callback":
            self.send_error(404)
            return
        if not hmac.compare_digest(params.get("state", "").encode(), self.server.state.encode()):
            self.send_error(400)
            return
        self.server.params = params
        no_icon = '<link rel="icon" href="data:,">'  # else the browser requests one when nothing listens any more
        body = f'<!doctype html><meta charset="utf-8">{no_icon}<title>Fermi</title><p>{_DONE}</p>'.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Print nothing: the address contains the code."""


def begin_device_sign_in(url: str) -> DevicePrompt:
    """Return the code that a person types on the platform's page. Raise UnreachableError or InvalidRequestError."""
    answer = _post_form(url, "device/code", {"client_id": CLIENT_ID, "scope": SCOPE})
    if "device_code" not in answer:
        raise InvalidRequestError("this platform has no sign-in by code", code="NO_DEVICE_SIGN_IN", status=400)
    return DevicePrompt(
        address=f"{url}/oauth/device",
        complete_address=f"{url}/oauth/device?{urlencode({'code': answer['user_code']})}",
        user_code=str(answer["user_code"]),
        device_code=str(answer["device_code"]),
        interval=float(answer.get("interval", SLOW_DOWN_SECONDS)),
        expires_in=float(answer["expires_in"]),
    )


def wait_for_device_sign_in(url: str, prompt: DevicePrompt, sleep: Callable[[float], None] = time.sleep) -> str:
    """Return the token as soon as the person has approved. Raise NotAuthenticatedError where it was denied or the code
    expired."""
    end, interval = time.monotonic() + prompt.expires_in, prompt.interval
    form = {"grant_type": DEVICE_GRANT, "client_id": CLIENT_ID, "device_code": prompt.device_code}
    while time.monotonic() < end:
        sleep(interval)
        try:
            answer = _post_form(url, "token", form)
        except UnreachableError:
            continue  # it may come back before the code expires
        if "access_token" in answer:
            return str(answer["access_token"])
        error = str(answer.get("error", ""))
        if error == "slow_down":
            interval += SLOW_DOWN_SECONDS
        elif error != "authorization_pending":
            raise _make_refusal(error)
    raise _make_refusal("expired_token")


def revoke_token(url: str, token: str) -> None:
    """Revoke a token that came of a sign-in in the browser; others stay as they are. Raise UnreachableError."""
    _post_form(url, "revoke", {"client_id": CLIENT_ID, "token": token})


def _make_refusal(error: str) -> NotAuthenticatedError:
    if error == "access_denied":
        return NotAuthenticatedError("access was denied in the browser", code="SIGN_IN_DENIED")
    if error in ("expired_token", "invalid_grant"):
        return NotAuthenticatedError("the code has expired or was used", code="SIGN_IN_EXPIRED")
    return NotAuthenticatedError(f"the platform refused the sign-in: {error}", code="SIGN_IN_REFUSED")


def _post_form(url: str, path: str, form: dict[str, str]) -> dict[str, Any]:
    try:
        answer = httpx.post(f"{url}/oauth/{path}", data=form, timeout=30)
    except httpx.HTTPError as error:
        raise UnreachableError(f"{url} does not answer: {error}", code="UNREACHABLE") from error
    if answer.status_code >= 500:
        raise UnreachableError(f"{url} answers HTTP {answer.status_code}", code="UNREACHABLE")
    try:
        body = answer.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
