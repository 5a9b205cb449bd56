"""The embedded broker, started as the supervisor starts it."""

import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.up import broker, limits
from tests.waiting import until

START = """
import os, resource, sys
from pathlib import Path
from server.up import broker
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
words = list(map(str, broker.command(Path(sys.argv[1]))))
os.execv(words[0], words)
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short path: a socket's is bounded."""
    folder = Path(tempfile.mkdtemp(prefix="broker-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("open_files", [256, 1024])
def test_the_broker_leaves_the_limits_as_they_are(open_files: int, short: Path) -> None:
    """Debian gives a user 1024 open files, and up to 524288: an ordinary `make up` begins with these."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard <= broker.MAX_CLIENTS + broker.OWN_FILES:
        pytest.skip("the hard limit is below what a broker would take")
    broker.set_password(short)
    process = subprocess.Popen([sys.executable, "-c", START, str(short), str(open_files)])
    try:
        until(lambda: broker.answers(short), what="the broker answers")
        started_with = {**limits.of_process(process.pid), "RLIMIT_NOFILE": f"{open_files}:{hard}"}
        assert limits.changed(limits.of_process(process.pid), [started_with]) == {}
    finally:
        process.kill()
        process.wait()
