"""A broker of a test's own, which it starts and ends."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.common import pubsub
from server import paths
from server.up import broker
from tests.polling import until


class Broker:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(broker.build_command(self.home))
        until(lambda: broker.is_answering(self.home), what="the broker answers")

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def redis(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """Not started yet. In a short path: a socket's is bounded."""
    home = Path(tempfile.mkdtemp(prefix="bus-", dir="/tmp"))
    broker.set_password(home)
    settings.REDIS_URL = f"unix://:{paths.read_broker_password(home)}@{home / 'broker.sock'}"
    pubsub.get_client.cache_clear()
    monkeypatch.setattr(pubsub, "_paused_until", 0.0)
    monkeypatch.setattr(pubsub, "BROKER_PAUSE_SECONDS", 0.05)
    server = Broker(home)
    yield server
    server.stop()
    pubsub.get_client.cache_clear()
    shutil.rmtree(home)
