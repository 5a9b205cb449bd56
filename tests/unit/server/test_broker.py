"""The embedded broker, started as the supervisor starts it."""

import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.up import broker, limits
from tests.apps.brokers import Broker


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit of open files; the soft one is afterwards as before."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def server() -> Iterator[Broker]:
    """Not started yet. In a short path: a socket's is bounded."""
    home = Path(tempfile.mkdtemp(prefix="broker-", dir="/tmp"))
    broker.set_password(home)
    server = Broker(home)
    yield server
    server.stop()
    shutil.rmtree(home)


@pytest.mark.parametrize("open_files", [256, 1024])
def test_the_broker_leaves_the_limits_as_they_are(open_files: int, hard: int, server: Broker) -> None:
    """Debian gives a user 1024 open files, and up to 524288: an ordinary `make up` begins with these."""
    if hard != resource.RLIM_INFINITY and hard <= broker.MAX_CLIENTS + broker.OWN_FILES:
        pytest.skip("the hard limit is below what a broker would take")
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    server.start()
    assert server.process
    started_with = {**limits.of_process(server.process.pid), "RLIMIT_NOFILE": f"{open_files}:{hard}"}
    assert limits.changed(limits.of_process(server.process.pid), [started_with]) == {}
