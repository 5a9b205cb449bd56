"""Two of each process of the platform, on one PostgreSQL and one Redis of their own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from fermi.launch.backends.local.engine import stop_everything
from tests import services
from tests.running import ROOT, Running, free_port
from tests.waiting import until

CELERY = [sys.executable, "-m", "celery", "--quiet", "-A", "server.celery"]
ALONE = ["--pool", "threads", "--without-gossip", "--without-mingle", "--without-heartbeat"]


class Replicas(Running):
    """Nothing starts them again: what is killed stays away until `begin`."""

    def __init__(self, data: Path, **env: str) -> None:
        self.services = services.Own()
        super().__init__(data, **env)
        self.env |= {**self.services.env, "DJANGO_SETTINGS_MODULE": "server.settings"}
        self.other_port = free_port()
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> "Replicas":
        self.data.mkdir(mode=0o700)
        for words in (["migrate", "--no-input", "--verbosity", "0"], ["firststart", "--demo"]):
            subprocess.run(
                [sys.executable, "manage.py", *words], env=self.env, cwd=ROOT, check=True, capture_output=True
            )
        for name in ("web", "web-2", "worker", "worker-2", "beat", "beat-2", "watch", "watch-2"):
            self.begin(name)
        self.api, self.other_api = self._client(self.port), self._client(self.other_port)
        until(lambda: not any(map(self.faults, self.ports)), seconds=120, what="both serve")
        until(self._has_data, seconds=120, what="the demo dataset is ready")
        return self

    @property
    def ports(self) -> tuple[int, int]:
        return self.port, self.other_port

    def begin(self, name: str) -> None:
        port = str(self.other_port if name == "web-2" else self.port)
        command = {
            "web": [sys.executable, "-m", "server.web", "127.0.0.1", port],
            "worker": [*CELERY, "worker", *ALONE, "--hostname", f"{name}@%h"],
            "beat": [*CELERY, "beat"],
            "watch": [sys.executable, "manage.py", "watch"],
        }[name.partition("-")[0]]
        with self.output.with_name(f"{name}.out").open("ab") as output:
            self.children[name] = subprocess.Popen(
                command, env=self.env, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
            )

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.children[name].pid, number)
        if number == signal.SIGKILL:
            self.children[name].wait()

    def get(self, path: str, **query: Any) -> Any:
        """A connection that its server has closed answers once more, with 503: whoever asks asks again."""

        def asked() -> httpx.Response | None:
            with suppress(httpx.TransportError):
                answer = self.api.get(path, params=query)
                return None if answer.status_code == 503 else answer
            return None

        answer = until(asked, what=f"an answer from {path}")
        return answer.raise_for_status().json()["data"]

    def faults(self, port: int) -> dict[str, str]:
        """What /readyz says: codes by part; `web` where nothing answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30).json()
        except (httpx.TransportError, ValueError):
            return {"web": "AWAY"}
        return {fault["part"]: fault["code"] for fault in answer["faults"]}

    def close(self) -> None:
        for child in self.children.values():
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.terminate()
        for child in self.children.values():
            try:
                child.wait(30)
            except subprocess.TimeoutExpired:
                child.kill()
        stop_everything(self.data, grace_seconds=0.0)
        self.services.close()

    def _client(self, port: int) -> httpx.Client:
        token = (self.data / "token").read_text().strip()
        return httpx.Client(
            base_url=f"http://127.0.0.1:{port}/api/v1",
            headers={"Authorization": f"Bearer {token}", "Accept-Language": "en"},
            timeout=30,
            transport=httpx.HTTPTransport(retries=5),
        )
