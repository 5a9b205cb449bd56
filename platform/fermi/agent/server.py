"""The agent's requests to the platform. Every request may be lost or repeated; docs/workers.md has the protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from fermi.agent.errors import AgentError
from fermi.client import UnexpectedAnswerError, UnreachableError
from fermi.client.transport import API_PREFIX, unwrap_envelope

TIMEOUT_SECONDS = 10.0
"""Without a byte; a held heartbeat gets as much more as it is to be held."""


class WorkerApi:
    """A client of the platform's worker API. All methods raise FermiError, and may be called from any thread."""

    def __init__(self, url: str, lang: str) -> None:
        try:
            address = httpx.URL(url.rstrip("/"))
        except httpx.InvalidURL as error:
            raise AgentError("WORKER_SERVER_INVALID", url=url, why=str(error)) from error
        if address.scheme not in ("http", "https") or not address.host:
            raise AgentError("WORKER_SERVER_INVALID", url=url, why="http://… / https://…")
        self.url = str(address)
        self.host, self.port = address.host, address.port or (443 if address.scheme == "https" else 80)
        limits = httpx.Limits(max_keepalive_connections=4, keepalive_expiry=60)
        headers = {"Accept-Language": lang}
        self._http = httpx.Client(
            base_url=self.url + API_PREFIX, timeout=TIMEOUT_SECONDS, limits=limits, headers=headers
        )

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def register(self, token: str, body: Mapping[str, Any]) -> dict[str, str]:
        """Register workers, and return their own tokens by id."""
        answer = self._ask("POST", "/workers/register", token, json=body)
        with_tokens = answer["workers"] if isinstance(answer, dict) else answer
        return {item["id"]: item["token"] for item in with_tokens}

    def heartbeat(self, workers: Sequence[Mapping[str, Any]], wait_seconds: float) -> dict[str, Any]:
        """Report workers, and return the answer, for which the server may wait `wait_seconds`."""
        body = {"waitSeconds": wait_seconds, "workers": list(workers)}
        answer = self._ask("POST", "/workers/heartbeat", "", json=body, timeout=TIMEOUT_SECONDS + wait_seconds)
        if not isinstance(answer, dict) or not isinstance(answer.get("workers"), list):
            raise UnexpectedAnswerError(f"{self.url}: not the answer to a heartbeat", code="UNEXPECTED_ANSWER")
        return answer

    def order(self, worker: str, token: str) -> dict[str, Any]:
        """Return the worker's order."""
        answer: dict[str, Any] = self._ask("GET", f"/workers/{worker}/order", token)
        return answer

    def hosted(self, worker: str, token: str, run: str) -> dict[str, Any]:
        """Return the order of a managed environment's run."""
        answer: dict[str, Any] = self._ask("GET", f"/workers/{worker}/hosted/{run}", token)
        return answer

    def channel(self, worker: str, token: str, channel: str) -> ClientConnection:
        """Return the WebSocket through which a stream goes to its waiting client."""
        path = f"{API_PREFIX}/workers/{worker}/channels/{channel}"
        try:
            return connect(
                "ws" + self.url.removeprefix("http") + path,
                additional_headers={"Authorization": f"Bearer {token}"},
                compression=None,
                max_size=None,
                open_timeout=TIMEOUT_SECONDS,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise UnreachableError(f"{self.url}: {error or type(error).__name__}", code="UNREACHABLE") from error

    def append(self, worker: str, token: str, log: str, offset: int, data: bytes) -> int:
        """Send log data, and return how many bytes of it the server has. `log`: `logs/<task>/<attempt>/<rank>`, or
        `hosted/<run>/log`."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        path = f"/workers/{worker}/{log}"
        response = self._send("PUT", path, params={"offset": offset}, content=data, headers=headers)
        if response.status_code == 409 and (known := _acknowledged(response)) is not None:
            return known
        acknowledged = unwrap_envelope(response)["acknowledged"]
        return int(acknowledged)

    def _ask(self, method: str, path: str, token: str, **request: Any) -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return unwrap_envelope(self._send(method, path, headers=headers, **request))

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **request)
        except httpx.HTTPError as error:
            why = f"{self.url} does not answer: {error or type(error).__name__}"
            raise UnreachableError(why, code="UNREACHABLE") from error


def _acknowledged(response: httpx.Response) -> int | None:
    try:
        body = response.json()
    except ValueError:
        return None
    for place in (body, body.get("data"), body.get("params")) if isinstance(body, dict) else ():
        if isinstance(place, dict) and isinstance(place.get("acknowledged"), int):
            return int(place["acknowledged"])
    return None
