"""A rank that comes to the store before it listens: asked again soon, and only where that helps."""

import errno
import importlib
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fermi.probe import imports, store_connect
from tests.platform_process import free_port

Create = Callable[..., Any]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each is taken at once, and time passes in them alone."""
    taken: list[float] = []
    monkeypatch.setattr(store_connect.time, "sleep", taken.append)
    monkeypatch.setattr(store_connect.time, "monotonic", lambda: 100 + sum(taken))
    return taken


def hooked(create: Create) -> Create:
    module = ModuleType("rendezvous")
    module._create_c10d_store = create  # type: ignore[attr-defined]
    store_connect.soon(SimpleNamespace(meets=lambda world_size: None, joins=lambda rank, size: None), module)  # type: ignore[arg-type]
    return module._create_c10d_store


def test_pytorch_connects_once_its_store_listens(naps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    port, door = free_port(), socket.socket()

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if sum(naps) > 1.5:
            door.bind(("127.0.0.1", port))
            door.listen()

    monkeypatch.setattr(store_connect.time, "sleep", nap)
    asked = ("127.0.0.1", port, 1, 2, timedelta(minutes=30))
    with door:
        assert hooked(lambda *given, **more: (given, more))(*asked, use_libuv=True) == (asked, {"use_libuv": True})
    assert 1.5 < sum(naps) < 1.61
    assert naps == sorted(naps)
    assert (naps[0], naps[-1]) == (store_connect.MIN_PAUSE_SECONDS, store_connect.MAX_PAUSE_SECONDS)


def test_rank_0_creates_the_store_and_does_not_wait_for_it(naps: list[float]) -> None:
    assert hooked(lambda *given: given[2])("127.0.0.1", free_port(), 0, 2, timedelta(minutes=30)) == 0
    assert naps == []


@pytest.mark.parametrize(("given", "patience"), [(timedelta(minutes=30), 20), (timedelta(seconds=5), 2.5)])
def test_long_waits_are_left_to_pytorch(given: timedelta, patience: float, naps: list[float]) -> None:
    assert hooked(lambda *given: "PyTorch's")("127.0.0.1", free_port(), 3, 4, given) == "PyTorch's"
    assert patience <= sum(naps) < patience + 0.2


@pytest.mark.parametrize(
    "error", [socket.gaierror(8, "no such name"), OSError(errno.ENETUNREACH, "no route"), KeyError()]
)
def test_errors_other_than_refusal_are_left_to_pytorch(
    error: Exception, naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(store_connect.socket, "create_connection", connect)
    assert hooked(lambda *given: "PyTorch's")("gn1", 29500, 1, 2, timedelta(minutes=30)) == "PyTorch's"
    assert naps == []


def test_pytorchs_own_store_is_unaffected() -> None:
    """Whoever knocked and went away is no rank: two of two are there when two have come."""
    assert imports.HOOKS["torch.distributed.rendezvous"] == "store_connect.soon"
    rendezvous = importlib.import_module("torch.distributed.rendezvous")
    create, port = hooked(rendezvous._create_c10d_store), free_port()
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            theirs = create("127.0.0.1", port, 1, 2, timedelta(seconds=60))
            os.write(write, theirs.get("word"))
            theirs.set("heard", "yes")
            code = 0
        finally:
            os._exit(code)
    store = create("127.0.0.1", port, 0, 2, timedelta(seconds=60))
    store.set("word", "here")
    assert store.get("heard") == b"yes"
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert os.read(read, 100) == b"here"
    os.close(read)
    os.close(write)


def test_connecting_imports_no_codec() -> None:
    port = free_port()
    script = "import sys; from fermi.probe import store_connect; "
    script += f"print(store_connect._is_refused('127.0.0.1', {port}), end=' '); "
    script += "print('encodings.idna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "True False\n"


def test_an_international_name_is_resolved_as_by_python() -> None:
    assert store_connect._encode_host("gn1") == b"gn1"
    assert store_connect._encode_host("nœud") == "nœud"
