import socket

import pytest

from server.up.listen_address import ListenAddress


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
def test_loopback_addresses_need_no_other_hostnames(host: str) -> None:
    assert ListenAddress(host, 8000).loopback
    assert ListenAddress(host, 8000).allowed_hosts() == []


def test_a_named_address_allows_only_its_name() -> None:
    assert ListenAddress("10.0.0.7", 8000).allowed_hosts() == ["10.0.0.7"]
    assert ListenAddress("fd00::7", 8000).allowed_hosts() == ["[fd00::7]"]


def test_the_wildcard_address_allows_this_machines_names() -> None:
    names = ListenAddress("0.0.0.0", 8000).allowed_hosts()
    assert socket.gethostname() in names
    assert "*" not in names


def test_the_url_can_be_opened_on_this_machine() -> None:
    assert ListenAddress("0.0.0.0", 8000).url == "http://127.0.0.1:8000"
    assert ListenAddress("::", 8000).url == "http://[::1]:8000"
    assert ListenAddress("localhost", 80).url == "http://localhost:80"
