"""Whose word is taken for who asks, and how."""

import asyncio
from typing import Any

import pytest
import uvicorn

from server import env
from server.asgi import DjangoHandler
from server.web import build_proxy_options

NAME = "FERMI_TRUSTED_PROXIES"
CLAIMS = [
    (b"x-forwarded-for", b"6.6.6.6"),
    (b"x-forwarded-for", b"198.51.100.7, 10.0.0.9"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"evil.example.org"),
    (b"forwarded", b"for=6.6.6.6;proto=https;host=evil.example.org"),
]


def seen(proxies: list[str], client: str) -> tuple[str, str]:
    """Client and scheme, as the application hears of them."""
    found: list[tuple[str, str]] = []

    async def application(scope: Any, *_: Any) -> None:
        found.append((scope["client"][0], scope["scheme"]))

    config = uvicorn.Config(application, lifespan="off", log_config=None, **build_proxy_options(proxies))
    config.load()
    scope = {"type": "http", "scheme": "http", "client": (client, 4711), "headers": CLAIMS}
    asyncio.run(config.loaded_app(scope, None, None))  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize("client", ["127.0.0.1", "10.0.0.9", "203.0.113.5"])
def test_without_a_configured_proxy_forwarded_headers_are_ignored(client: str) -> None:
    assert seen([], client) == (client, "http")


def test_forwarded_addresses_are_read_from_the_right_up_to_the_proxy() -> None:
    assert seen(["10.0.0.0/8"], "10.0.0.1") == ("198.51.100.7", "https")
    assert seen(["10.0.0.1"], "10.0.0.1") == ("10.0.0.9", "https")
    assert seen(["10.0.0.0/8"], "127.0.0.1") == ("127.0.0.1", "http")


def test_loopback_is_trusted_only_behind_a_configured_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(NAME, raising=False)
    monkeypatch.delenv("FERMI_PUBLIC_URL", raising=False)
    assert env.read_setting(NAME) == []
    monkeypatch.setenv("FERMI_PUBLIC_URL", "https://fermi.example.org")
    assert seen(env.read_setting(NAME), "127.0.0.1") == ("10.0.0.9", "https")
    monkeypatch.setenv(NAME, "10.0.0.0/8, fd00::/8")
    assert env.read_setting(NAME) == ["10.0.0.0/8", "fd00::/8"]


@pytest.mark.parametrize("text", ["*", "proxy.example.org", "10.0.0.1/8", "10.0.0"])
def test_an_invalid_network_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(NAME, text)
    with pytest.raises(env.InvalidSettingError, match=NAME):
        env.read_setting(NAME)


@pytest.mark.parametrize(
    ("public", "host", "secure"),
    [
        ("https://fermi.example.org", b"fermi.example.org", True),
        ("https://fermi.example.org", b"localhost", False),
        ("", b"localhost", False),
    ],
)
def test_the_scheme_of_the_public_host_comes_from_the_setting(
    settings: Any, public: str, host: bytes, secure: bool
) -> None:
    settings.PUBLIC_URL = public
    settings.ALLOWED_HOSTS = ["*"]
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": b"", "scheme": "http",
        "headers": [(b"host", host), *CLAIMS],
    }  # fmt: skip
    request, _ = DjangoHandler().create_request(scope, None)  # type: ignore[arg-type]
    assert (request.is_secure(), request.get_host()) == (secure, host.decode())
