"""HTTP through the proxy: requests, responses and access."""

import hashlib
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.sessions.models import Session

from apps.accounts.models import AuditEvent, Membership, Role
from apps.clusters.models import DevEnvironment
from apps.common.clock import now
from apps.proxy import access_watch, http_proxy, tickets
from apps.proxy.models import Entry
from tests.polling import until
from tests.proxy.conftest import ENVIRONMENT, Console, Inside
from tests.proxy.fake_envd import FakeEnvd
from tests.proxy.web_service import LARGE, Service


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_watch, "CHECK_SECONDS", 0.1)
    monkeypatch.setattr(http_proxy, "CHECK_SECONDS", 0.1)


def seen(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    found["headers"] = dict(found["headers"])
    return found


def test_opening_an_environment_redirects_to_its_host_with_a_cookie_for_that_host(member: Console) -> None:
    answer = member.open(path="/lab/tree/train.py?line=3")
    address = answer.headers["location"]
    assert answer.status_code == 302
    assert address.startswith(f"http://{ENVIRONMENT}.localhost:{member.port}/_fermi/enter?ticket=")
    assert answer.headers["referrer-policy"] == "no-referrer"
    inside = member.through(address)
    assert (inside.entered.status_code, inside.entered.headers["location"]) == (302, "/lab/tree/train.py?line=3")
    said = inside.entered.headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=lax" in said
    assert "domain" not in said
    event = AuditEvent.objects.get(action="environment.open")
    assert (event.actor, event.target, event.data) == (member.user, ENVIRONMENT, {"door": "main"})
    assert not Entry.objects.filter(ticket__in=address).exists()  # its hash alone is kept


def test_a_ticket_is_valid_once_and_for_a_minute(member: Console) -> None:
    address = member.open().headers["location"]
    assert member.through(address).cookie
    again = member.through(address)
    assert again.entered.status_code == 403
    assert not again.cookie
    late = member.open().headers["location"]
    Entry.objects.filter(entered_at=None).update(kept_until=now() - timedelta(seconds=1))
    assert member.through(late).entered.status_code == 403
    elsewhere = member.open().headers["location"].replace(ENVIRONMENT, "env-other")
    assert member.through(elsewhere).entered.status_code == 403


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "lab", "/a\nb", "/_fermi/x"]
)
def test_a_path_to_another_site_is_refused(member: Console, path: str) -> None:
    assert member.open(path=path).status_code == 400
    assert not Entry.objects.exists()


def test_a_request_is_forwarded_without_the_consoles_cookies(inside: Inside) -> None:
    answer = inside.send(
        "POST", "/seen%2Fa;b?q=%20x&y=1",
        content=b"body",
        headers={
            "Cookie": f"a=1; sessionid=secret; csrftoken=secret; {inside.cookie}; b=2",
            "Authorization": "Bearer fermi_secret", "Origin": inside.origin, "Connection": "X-Hop", "X-Hop": "gone",
            "X-Forwarded-Host": "evil", "Forwarded": "for=6.6.6.6", "X-Own": "kept",
        },
    )  # fmt: skip
    found = seen(answer)
    assert (found["method"], found["uri"], found["body"]) == ("POST", "/seen%2Fa;b?q=%20x&y=1", "body")
    headers = found["headers"]
    assert headers["cookie"] == "a=1; b=2"
    assert headers["host"] == headers["x-forwarded-host"] == inside.host
    assert (headers["x-forwarded-proto"], headers["x-forwarded-for"]) == ("http", "127.0.0.1")
    assert headers["x-own"] == "kept"
    assert headers["content-length"] == "4"
    assert not {"authorization", "x-hop", "forwarded", "connection"} & headers.keys()
    assert "secret" not in str(found)
    assert seen(inside.get("/seen", Authorization="token theirs"))["headers"]["authorization"] == "token theirs"


def test_a_response_sets_no_cookie_beyond_its_host(inside: Inside) -> None:
    answer = inside.get("/set")
    assert answer.headers.get_list("set-cookie") == ["plain=1; Path=/", "wide=2; Path=/; HttpOnly"]
    assert answer.headers["x-own"] == "kept"
    assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
    assert not {"clear-site-data", "strict-transport-security"} & {name.lower() for name in answer.headers}
    away = inside.get("/away")
    assert (away.status_code, away.headers["location"]) == (302, "http://127.0.0.1:1/there")  # told, and not followed


def test_large_bodies_ranges_and_heads(inside: Inside) -> None:
    whole = inside.get("/large")
    assert len(whole.content) == LARGE == int(whole.headers["content-length"])
    part = inside.get("/large", Range="bytes=1000-1999")
    assert (part.status_code, part.content) == (206, whole.content[1000:2000])
    head = inside.send("HEAD", "/seen")
    assert (head.content, head.headers["content-length"]) == (b"", "12345")

    def pieces() -> Iterator[bytes]:
        for _ in range(24):
            yield whole.content[: 1 << 20]

    sent = inside.send("PUT", "/upload", content=pieces()).json()
    assert sent["count"] == 24 << 20
    assert sent["sha256"] == hashlib.sha256(whole.content[: 1 << 20] * 24).hexdigest()
    assert sent["pieces"] > 1


def test_events_are_streamed_and_end_with_their_reader(inside: Inside, service: Service) -> None:
    service.left.clear()
    with inside.http.stream("GET", "/sse", headers=inside.headers()) as answer:
        lines = answer.iter_lines()
        assert [next(lines), next(lines), next(lines)] == ["data: 0", "", "data: 1"]
    assert service.left.wait(20)


def test_a_slow_reader_does_not_fill_memory(inside: Inside) -> None:
    """The environment waits while the reader does; the rest comes when it goes on."""
    with inside.dial() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        sock.sendall(
            f"GET /large HTTP/1.1\r\nHost: {inside.host}\r\nCookie: {inside.cookie}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        assert sock.recv(100).startswith(b"HTTP/1.1 200")
        assert inside.get("/seen").status_code == 200  # others go on meanwhile
        count = 0
        while piece := sock.recv(1 << 20):
            count += len(piece)
    assert count > LARGE - 100


def test_ambiguous_requests_are_refused(inside: Inside, envd: FakeEnvd) -> None:
    heads = (
        "POST /seen HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "POST /seen HTTP/1.1\r\nHost: {}\r\nCookie: {}\r\nTransfer-Encoding: xchunked\r\n\r\nabcdef",
        "GET /seen HTTP/1.1\r\nHost: {}\r\nHost: localhost\r\nCookie: {}\r\n\r\n",
        "GET /seen HTTP/1.1\r\nHost: {}\r\nX: a\r\n b\x00c\r\nCookie: {}\r\n\r\n",
    )
    envd.asked.clear()
    for head in heads:
        with inside.dial() as sock:
            sock.sendall(head.format(inside.host, inside.cookie).encode())
            assert sock.recv(4096).split(b" ")[1] in (b"400", b"501"), head
    assert not envd.asked


def test_a_body_with_two_lengths_is_reframed(inside: Inside) -> None:
    """Transfer-Encoding counts, as RFC 9112 has it, and the other is not passed on."""
    with inside.dial() as sock:
        sock.sendall(
            f"POST /seen HTTP/1.1\r\nHost: {inside.host}\r\nCookie: {inside.cookie}\r\nContent-Length: 3\r\n"
            "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nabcde\r\n0\r\n\r\n".encode()
        )
        answer = b""
        while piece := sock.recv(65536):
            answer += piece
    assert b'"body": "abcde"' in answer or answer.split(b" ")[1] == b"400"


def test_without_a_cookie_a_page_is_redirected_to_the_console_and_a_program_refused(inside: Inside) -> None:
    inside.cookie = ""
    page = inside.get("/lab?x=1", Accept="text/html")
    assert page.status_code == 302
    assert page.headers["location"] == (
        f"http://127.0.0.1:{inside.port}/environments/{ENVIRONMENT}/open?path=%2Flab%3Fx%3D1"
    )
    there, not_there = inside.get("/api"), Inside(inside.port, f"http://env-nobody.localhost:{inside.port}/api").entered
    assert there.status_code == not_there.status_code == 404
    assert there.json()["error"] == not_there.json()["error"] == "NOT_FOUND"


def test_an_anonymous_user_signs_in_and_returns(member: Console) -> None:
    answer = member.http.get(
        f"/environments/{ENVIRONMENT}/open?path=/lab", headers={"Host": f"localhost:{member.port}"}
    )
    assert answer.status_code == 302
    assert answer.headers["location"] == f"/sign-in?next=%2Fenvironments%2F{ENVIRONMENT}%2Fopen%3Fpath%3D%2Flab"


def test_strangers_find_nothing_and_viewers_get_the_reason(stranger: Console, person: Callable[..., Console]) -> None:
    assert stranger.open().status_code == stranger.open("env-nobody").status_code == 404
    viewer = person("viewer", Role.VIEWER)
    answer = viewer.open()
    assert answer.status_code == 403
    assert "FORBIDDEN" in answer.text
    assert not Entry.objects.exists()
    for who, status in ((stranger, 404), (viewer, 403)):
        made = who.http.post(
            f"/api/v1/dev-environments/{ENVIRONMENT}/doors", json={}, headers={"Authorization": f"Bearer {who.token}"}
        )
        assert made.status_code == status


def test_a_program_gets_an_address_whose_token_can_be_revoked(member: Console) -> None:
    made = member.http.post(
        f"/api/v1/dev-environments/{ENVIRONMENT}/doors", json={"path": "/seen"},
        headers={"Authorization": f"Bearer {member.token}", "Host": f"localhost:{member.port}"},
    )  # fmt: skip
    assert made.status_code == 201
    inside = member.through(made.json()["data"]["url"])
    assert seen(inside.get("/seen"))
    member.user.api_tokens.all().delete() if hasattr(
        member.user, "api_tokens"
    ) else member.user.auth_token_set.all().delete()
    until(lambda: inside.get("/seen").status_code in (401, 404), what="access has ended")


@pytest.mark.parametrize("end", ["sign out", "role", "inactive", "environment", "expired session", "password"])
def test_access_ends_within_seconds_of_its_revocation(member: Console, inside: Inside, end: str) -> None:
    assert inside.get("/seen").status_code == 200
    match end:
        case "sign out":
            member.sign_out()
        case "role":
            Membership.objects.filter(user=member.user).update(role=Role.VIEWER)
        case "inactive":
            member.user.is_active = False
            member.user.save()
        case "environment":
            DevEnvironment.objects.all().delete()
        case "expired session":
            Session.objects.update(expire_date=now() - timedelta(seconds=1))
        case "password":
            member.user.set_password("another long password")
            member.user.save()
    until(lambda: inside.get("/seen").status_code in (401, 404), what="access has ended")


def test_an_open_stream_ends_with_the_access(member: Console, inside: Inside) -> None:
    with inside.http.stream("GET", "/sse", headers=inside.headers()) as answer:
        lines = answer.iter_lines()
        next(lines)
        member.sign_out()
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


def test_a_stolen_token_expires(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tickets, "TOKEN_SECONDS", -1)
    assert inside.get("/seen").json()["error"] == "DOOR_CLOSED"
    back = inside.get("/lab", Accept="text/html")
    assert back.headers["location"].startswith(f"http://localhost:{inside.port}/environments/{ENVIRONMENT}/open")


def test_a_token_is_renewed_by_use_and_reuse_of_an_old_one_ends_both(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "RENEW_AFTER_SECONDS", -1)
    stolen = inside.cookie
    renewed = inside.get("/seen").headers["set-cookie"].partition(";")[0]
    monkeypatch.setattr(tickets, "RENEW_AFTER_SECONDS", 300)
    assert renewed != stolen
    assert inside.get("/seen").status_code == 200  # what was in flight still comes with the one before
    inside.cookie = renewed
    assert inside.get("/seen").status_code == 200
    Entry.objects.update(renewed_at=now() - 2 * tickets.REPLACED_TOKEN_GRACE)
    thief = {**inside.headers(), "Cookie": stolen}
    until(lambda: inside.http.get("/seen", headers=thief).status_code in (401, 404), what="the copy is refused")
    until(lambda: inside.get("/seen").status_code in (401, 404), what="nor does the original lead in")
    assert not Entry.objects.exists()


def test_a_token_is_valid_for_one_environment(inside: Inside) -> None:
    inside.host = f"env-other.localhost:{inside.port}"
    assert inside.get("/seen").status_code == 404
    inside.host = f"second--{ENVIRONMENT}.localhost:{inside.port}"
    assert inside.get("/seen").status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_pages_of_other_origins_cannot_send_requests(inside: Inside, headers: dict[str, str]) -> None:
    answer = inside.get("/seen", **headers)
    assert answer.status_code == 403
    assert "DOOR_CROSS_SITE" in answer.text


def test_a_link_from_another_site_works_and_a_form_does_not(inside: Inside) -> None:
    led = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert inside.get("/seen", **led).status_code == 200
    assert inside.send("POST", "/seen", headers={**led, "Origin": "http://evil.example"}).status_code == 403


def test_an_unreachable_service_is_reported_in_the_readers_language(
    inside: Inside, envd: FakeEnvd, service: Service
) -> None:
    envd.away = True
    envd.drop_all()
    page = until(lambda: (a := inside.get("/seen", Accept="text/html", Accept_Language="en")).status_code == 502 and a)
    assert "DOOR_BROKE" in page.text
    assert "notebook" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    assert inside.get("/seen").json()["error"] == "DOOR_BROKE"
    envd.away = False
    envd.doors["jupyter"] = 1
    try:
        assert inside.get("/seen").json()["error"] == "PORT_CLOSED"
    finally:
        envd.doors["jupyter"] = service.port
    assert inside.get("/seen").status_code == 200


def test_an_interrupted_response_is_not_taken_for_complete(inside: Inside, envd: FakeEnvd) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        inside.get("/broken")
    with inside.http.stream("GET", "/sse", headers=inside.headers()) as answer:
        lines = answer.iter_lines()
        next(lines)
        envd.drop_all()
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert inside.get("/seen").status_code == 200


def test_a_stopped_environment_is_reported(inside: Inside, world: DevEnvironment) -> None:
    DevEnvironment.objects.update(status="stopped")
    until(lambda: inside.get("/seen").status_code == 503, what="it is known to be stopped")
    assert inside.get("/seen").json()["error"] == "DOOR_SHUT"


def test_the_consoles_own_host_is_not_proxied(inside: Inside) -> None:
    """A host that is no proxy address is Django's, whose list of hosts is as short as ever."""
    inside.host = "evil.example"
    assert inside.get("/healthz").status_code == 400
    inside.host = f"a.b.localhost:{inside.port}"
    assert inside.get("/healthz").status_code == 400
    inside.host = f"localhost:{inside.port}"
    assert inside.get("/healthz").status_code == 200
    inside.host = f"{ENVIRONMENT}.localhost:{inside.port}"
    assert inside.get("/api/v1/me").status_code == 404  # the environment's


def test_a_connection_is_reused_after_a_large_body(member: Console) -> None:
    inside = member.enter()
    for _ in range(2):
        assert inside.get("/large").content == bytes(range(256)) * (LARGE // 256)
        assert inside.get("/seen").status_code == 200


def test_a_truncated_large_body_is_cut_and_not_padded(member: Console) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        member.enter().get("/short")
