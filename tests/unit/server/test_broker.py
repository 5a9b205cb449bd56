"""The embedded broker, started as the supervisor starts it."""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.up import broker, limits
from tests.polling import until

START = """
import os, sys
from pathlib import Path
from server.up import broker
command = broker.build_command(Path(sys.argv[1]))
os.execv(command[0], command)
"""
"""Becomes the broker of the folder that is named, within the limits that the process has."""


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: a socket's is bounded."""
    with tempfile.TemporaryDirectory(prefix="broker-", dir="/tmp") as folder:
        broker.set_password(Path(folder))
        yield Path(folder)


@pytest.mark.parametrize("open_files", [256, 1024])
def test_the_broker_keeps_resource_limits(open_files: int, home: Path) -> None:
    """Debian gives a user 1024 open files, and up to 524288: an ordinary `make up` begins with these."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= broker.MAX_CLIENTS + broker.RESERVED_FILES:
        pytest.skip("the hard limit is below what a broker would take")
    started = ["sh", "-c", f'ulimit -Sn {open_files}; exec "$@"', "sh", sys.executable, "-c", START, home]
    process = subprocess.Popen(started)
    try:
        until(lambda: broker.is_answering(home), what="the broker answers")
        seen = limits.read_process_settings(process.pid)
    finally:
        process.kill()
        process.wait()
    assert limits.find_changes(seen, [{**seen, "RLIMIT_NOFILE": f"{open_files}:{hard}"}]) == {}
