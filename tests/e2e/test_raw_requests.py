"""What no well-behaved client sends, over a plain socket to the web process as `make up` starts it."""

import json
import socket
from typing import Any

import httpx
import pytest

from tests.platform_process import Running
from tests.polling import until

pytestmark = pytest.mark.e2e

JSON = b"Content-Type: application/json"
TASKS, PROJECTS = b"/api/v1/training-tasks", b"/api/v1/projects"

NOT_HTTP = {
    "a path": b"GET /api/v1/\xff\xfe HTTP/1.1",
    "a query": b"GET /api/v1/projects?search=\xff HTTP/1.1",
    "a method": b"G\xffT /api/v1/projects HTTP/1.1",
    "a page's path": b"GET /admin/\xff HTTP/1.1",
    "a header's name": b"GET /api/v1/projects HTTP/1.1\r\nX-\xff: 1",
    "a length below zero": b"POST /api/v1/projects HTTP/1.1\r\nContent-Length: -1",
    "two lengths": b"POST /api/v1/projects HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3",
    "a coding": b"POST /api/v1/projects HTTP/1.1\r\nTransfer-Encoding: \xff",
    "another protocol": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
"""Not to be understood as HTTP, so that no view and no envelope comes to it."""

ODD = {
    "percent-encoded path": (b"GET /api/v1/training-tasks/%ff%fe", [], 404, "NOT_FOUND"),
    "half a surrogate pair": (b"GET /api/v1/training-tasks/%ed%a0%80", [], 404, "NOT_FOUND"),
    "NUL in a path": (b"GET /api/v1/training-tasks/%00", [], 404, "NOT_FOUND"),
    "NUL in a query": (b"GET /api/v1/projects?search=%00", [], 400, "INVALID_REQUEST"),
    "name in a query": (b"GET /api/v1/projects?%ff=1", [], 400, "INVALID_REQUEST"),
    "long query": (b"GET /api/v1/projects?search=" + b"x" * 50_000, [], 400, "INVALID_REQUEST"),
    "token": (b"GET /api/v1/projects", [b"Authorization: Bearer \xff\xfe"], 401, "TOKEN_INVALID"),
    "cookies": (
        b"GET /api/v1/projects",
        [b"Authorization:", b"Cookie: sessionid=\xff; \xff"],
        401,
        "NOT_AUTHENTICATED",
    ),
    "host": (b"GET /api/v1/projects", [b"Host: \xff\xfe"], 400, "HOST_NOT_ALLOWED"),
    "language": (b"GET /api/v1/nope", [b"Accept-Language: \xff", b"Accept: \xff"], 404, "NO_SUCH_ADDRESS"),
    "content type": (b"POST /api/v1/projects", [b"Content-Type: \xff"], 415, "UNSUPPORTED_MEDIA_TYPE"),
    "charset": (b"POST /api/v1/projects", [JSON + b"; charset=\xff"], 400, "PARSE_ERROR"),
    "body": (b"POST /api/v1/projects", [JSON], 400, "PARSE_ERROR"),
    "key": (b"POST /api/v1/training-tasks", [JSON, b"Idempotency-Key: \xff"], 400, "PARSE_ERROR"),
    "heartbeat": (b"POST /api/v1/workers/heartbeat", [JSON, b"Authorization: \xff"], 400, "PARSE_ERROR"),
    "method": (b"BREW /api/v1/projects", [], 405, "METHOD_NOT_ALLOWED"),
    "place in a stream": (b"GET /api/v1/training-tasks/x/stream", [b"Last-Event-ID: \xff"], 404, "NOT_FOUND"),
    "sign-in": (b"POST /_allauth/browser/v1/auth/login", [JSON], 400, "PARSE_ERROR"),
    "metrics": (b"GET /metrics", [b"Authorization: Bearer \xff"], 401, "TOKEN_INVALID"),
}
"""HTTP with bytes that are no UTF-8 wherever it can hold some; what has a body has `\\xff`."""


def send_request(platform: Running, request: bytes) -> tuple[int, str, bytes]:
    """Status, media type and body, all that comes until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", platform.port), timeout=60) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    named = {name.lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
    if named.get("transfer-encoding") == "chunked":
        size, _, rest = body.partition(b"\r\n")
        body = rest[: int(size, 16)]
    return int(line.split()[1]), named["content-type"], body


def headers(platform: Running, *others: bytes) -> bytes:
    token = (platform.data / "token").read_text("utf-8").strip().encode()
    usual = [b"Host: localhost", b"Authorization: Bearer " + token]
    names = {other.partition(b":")[0] for other in others}
    kept = [header for header in usual if header.partition(b":")[0] not in names]
    return b"".join(b"\r\n" + header for header in (*kept, *others, b"Connection: close"))


@pytest.mark.parametrize("line", NOT_HTTP.values(), ids=NOT_HTTP.keys())
def test_malformed_http_is_refused_in_one_line(platform: Running, line: bytes) -> None:
    status, media, body = send_request(platform, line + headers(platform) + b"\r\n\r\n")
    assert (status, media) == (400, "text/plain; charset=utf-8")
    assert body == b"Invalid HTTP request received."


@pytest.mark.parametrize(("line", "sent", "status", "code"), ODD.values(), ids=ODD.keys())
def test_invalid_utf_8_is_answered_with_the_envelope(
    platform: Running, line: bytes, sent: list[bytes], status: int, code: str
) -> None:
    content = b'{"name": "\xff"}' if line.startswith(b"POST") else b""
    length = [b"Content-Length: %d" % len(content)] if content else []
    answer = send_request(platform, line + b" HTTP/1.1" + headers(platform, *sent, *length) + b"\r\n\r\n" + content)
    assert answer[:2] == (status, "application/json")
    told = json.loads(answer[2])
    assert (told["code"], told["error"]) == (status, code)
    assert told["requestId"]


def test_a_failing_download_is_cut_and_logged(platform: Running) -> None:
    """All that is wrong is a log that cannot be read; its heading has been sent by then."""
    (platform.data / "workspace").mkdir(exist_ok=True)
    (platform.data / "workspace" / "short.py").write_text("print('done')\n", "utf-8")
    task = platform.create(["env-001"], entrypoint={"script": "short.py"})
    platform.until_final(task)
    address = f"/training-tasks/{task}/logs/download"
    assert "done" in platform.api.get(address, params={"rank": "all"}).text
    log = platform.data / "logs" / task / "1" / "0.log"
    log.unlink()
    log.mkdir()
    received: list[Any] = []
    with platform.api.stream("GET", address, params={"rank": "all"}) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
            received.extend(answer.iter_raw())
    assert b"".join(received) == b"==> rank 0 <==\n"
    until(lambda: "IsADirectoryError" in platform.output.read_text("utf-8"), what="the cause in the server's log")
    refused = platform.api.get(address, params={"rank": 0})
    assert (refused.status_code, refused.json()["error"]) == (500, "INTERNAL_ERROR")
    assert platform.api.get("/auth/me").status_code == 200
