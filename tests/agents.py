"""Hosts of tests: real worker agents (`fermi worker`), each with a folder of its own, at a real platform."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fermi.runner import processes
from tests.platform_process import ROOT, Running
from tests.polling import until


class Host:
    """A node with emulated GPUs. `start` returns once the platform has heard of all its workers."""

    def __init__(self, platform: Running, folder: Path, node: str, gpus: int, token: str) -> None:
        self.platform, self.folder, self.node = platform, folder, node
        self.ids = [f"{node}-{number}" for number in range(gpus)]
        self.workspace = folder / "workspace"
        self.workspace.mkdir(parents=True)
        self.shared = folder.parent / "shared"  # of all hosts beside it: their ranks may write there
        self.shared.mkdir(exist_ok=True)
        self.config = folder / "worker.toml"
        lines = {
            "server": platform.url, "token": token, "node": node, "gpus": list(range(gpus)), "emulate": True,
            "state": str(folder / "state"), "workspace": str(self.workspace), "warm": True,
            "writes": [str(self.shared)],
        }  # fmt: skip
        self.config.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in lines.items()))
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self) -> "Host":
        self.launch()
        self.wait()
        return self

    def launch(self, *prefix: str) -> None:
        """`prefix`: what the agent's command is run by."""
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "platform")])}
        with (self.folder / "agent.out").open("ab") as output:
            self.agent = subprocess.Popen(
                [*prefix, sys.executable, "-m", "fermi.cli", "worker", "--config", str(self.config), "--lang", "en"],
                env=env, cwd=ROOT, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def wait(self) -> None:
        until(self.is_online, what=f"{self.node} is online")

    def is_online(self) -> bool:
        assert self.agent is not None
        assert self.agent.poll() is None, (self.folder / "agent.out").read_text()
        return all(self.status(worker) == "online" for worker in self.ids)

    def status(self, worker: str) -> str:
        found = self.platform.get("/workers", search=worker)["items"]
        return next((item["status"] for item in found if item["id"] == worker), "unknown")

    def kill_agent(self) -> None:
        """kill -9; ranks go on."""
        assert self.agent is not None
        self.agent.kill()
        self.agent.wait()

    def freeze(self) -> None:
        """As a host that nobody hears any more, while its ranks go on."""
        assert self.agent is not None
        self.agent.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.agent is not None
        self.agent.send_signal(signal.SIGCONT)

    def kill_runs(self) -> None:
        for written in self.statuses():
            for process in (written["runner"], *written["ranks"]):
                if process and process["pid"]:
                    processes.send_signal(process, signal.SIGKILL)

    def statuses(self) -> Iterator[dict[str, Any]]:
        """What its node runners wrote."""
        for path in sorted((self.folder / "state" / "workers").glob("*/runs/*/rank.status.json")):
            yield json.loads(path.read_text())

    def strays(self) -> list[str]:
        """Attempts of which something still runs."""
        return [one["name"] for one in self.statuses() if processes.list_session_members(one["ranks"])]

    def log(self, task_id: str, attempt: int, rank: int) -> Path:
        return self.folder / "state" / "logs" / task_id / str(attempt) / f"{rank}.log"

    def close(self) -> None:
        if self.agent and self.agent.poll() is None:
            self.agent.send_signal(signal.SIGCONT)
            self.kill_agent()
        self.kill_runs()
