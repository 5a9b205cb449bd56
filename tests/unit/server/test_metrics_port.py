"""The port that tells nothing but metrics."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from wsgiref.simple_server import make_server

import pytest

from server.env import InvalidSettingError
from server.metrics_port import choose_token, make_app


@contextmanager
def listening(token: str) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, make_app(token, lambda: b"fermi_tasks 1\n"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def status(url: str, token: str = "") -> int:
    try:
        with urlopen(Request(url, headers={"Authorization": f"Bearer {token}"})) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def test_a_port_with_a_token_requires_it() -> None:
    with listening("secret") as url:
        assert status(f"{url}/metrics", "secret") == 200
        assert status(f"{url}/metrics", "another") == 401
        assert status(f"{url}/admin/", "secret") == 404


def test_a_port_without_a_token_is_open() -> None:
    with listening("") as url:
        assert status(f"{url}/metrics") == 200


def test_only_loopback_or_an_explicit_setting_opens_it() -> None:
    assert choose_token("127.0.0.1", "secret", open_to_all=False) == ""
    assert choose_token("0.0.0.0", "secret", open_to_all=False) == "secret"
    assert choose_token("0.0.0.0", "", open_to_all=True) == ""
    with pytest.raises(InvalidSettingError):
        choose_token("0.0.0.0", "", open_to_all=False)
