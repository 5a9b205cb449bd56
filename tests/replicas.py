"""Two of each process of the platform, on one PostgreSQL and one Redis of their own."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from fermi.engines.local.engine import stop_everything
from tests import services
from tests.platform_process import ROOT, Running, free_port
from tests.polling import until

CELERY = [sys.executable, "-m", "celery", "--quiet", "-A", "server.celery"]
ALONE = ["--pool", "threads", "--without-gossip", "--without-mingle", "--without-heartbeat"]


class Replicas(Running):
    """Nothing starts them again: what is killed stays away until `start_process`. Their code lies in `root`."""

    def __init__(self, data: Path, root: Path = ROOT, **env: str) -> None:
        self.services = services.Own()
        super().__init__(data, **env)
        self.env |= {**self.services.env, "DJANGO_SETTINGS_MODULE": "server.settings"}
        self.run(root)
        self.other_port = free_port()
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> "Replicas":
        self.data.mkdir(mode=0o700)
        self.manage("migrate", "--no-input", "--verbosity", "0")
        self.manage("firststart", "--demo")
        for name in ("web", "web-2", "worker", "worker-2", "beat", "beat-2", "watch", "watch-2"):
            self.start_process(name)
        self.connect()
        until(lambda: not any(map(self.faults, self.ports)), seconds=120, what="both serve")
        until(self._has_data, seconds=120, what="the demo dataset is ready")
        return self

    def run(self, root: Path) -> None:
        """What is begun from now on has its code there."""
        self.root = root
        self.env["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "platform")])

    @property
    def ports(self) -> tuple[int, int]:
        return self.port, self.other_port

    def manage(self, *words: str) -> None:
        subprocess.run([sys.executable, "manage.py", *words], env=self.env, cwd=self.root, check=True)

    def connect(self) -> None:
        self.api, self.other_api = self._client(self.port), self._client(self.other_port)

    def moved(self, name: str, port: int) -> tuple[int, int]:
        """That web process serves at another port from now on; gives both."""
        self.port, self.other_port = (port, self.other_port) if name == "web" else (self.port, port)
        self.connect()
        return self.ports

    def start_process(self, name: str, port: int | None = None) -> None:
        port = port or (self.other_port if name == "web-2" else self.port)
        own_beat = (self.root / "platform" / "server" / "beat.py").exists()  # since 0.1.0
        command = {
            "web": [sys.executable, "-m", "server.web", "127.0.0.1", str(port)],
            "worker": [*CELERY, "worker", *ALONE, "--hostname", f"{name}@%h"],
            "beat": [sys.executable, "-m", "server.beat"] if own_beat else [*CELERY, "beat"],
            "watch": [sys.executable, "manage.py", "watch"],
        }[name.partition("-")[0]]
        with self.output.with_name(f"{name}.out").open("ab") as output:
            self.children[name] = subprocess.Popen(
                command, env=self.env, cwd=self.root, stdout=output, stderr=output, start_new_session=True
            )

    def send(self, name: str, number: signal.Signals) -> None:
        os.kill(self.children[name].pid, number)
        if number == signal.SIGKILL:
            self.children[name].wait()

    def get(self, path: str, **query: Any) -> Any:
        def asked() -> httpx.Response | None:
            with suppress(httpx.TransportError):
                return self.api.get(path, params=query)
            return None

        answer = until(asked, what=f"an answer from {path}")
        return answer.raise_for_status().json()["data"]

    def faults(self, port: int) -> dict[str, str]:
        """What /readyz says: codes by part; `web` where nothing answers."""
        try:
            answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=30)
            said = answer.json().get("faults")
        except (httpx.TransportError, ValueError):
            return {"web": "AWAY"}
        if said is None:  # an earlier release only says that there are some
            return {} if answer.is_success else {"web": "NOT_READY"}
        return {fault["part"]: fault["code"] for fault in said}

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


def assert_stored_once(platform: Replicas, task_id: str) -> int:
    """Each step, and each event, in its first attempt. Ends it, if it has not ended. How many steps there were."""
    platform.api.post(f"/training-tasks/{task_id}/stop")
    task = platform.until_state(task_id, "succeeded", "stopped", seconds=240)
    assert task["attempt"] == 1
    points = [one for one in platform.items(task_id, "metrics", limit=5000) if "loss" in one["values"]]
    events = platform.items(task_id, "events", pageSize=200)
    [steps] = [one["params"]["step"] for one in events if one["code"] in ("SCRIPT_STOPPED", "SCRIPT_FINISHED")]
    assert [point["step"] for point in points] == list(range(1, steps + 1))
    said = [(one["code"], str(one["params"])) for one in events if one["code"].startswith(("SCRIPT_", "STATE_"))]
    assert len(said) == len(set(said))
    assert sum(code == f"STATE_{task['status'].upper()}" for code, _ in said) == 1
    return int(steps)
