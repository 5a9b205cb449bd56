"""A web process on temporary data with its broker, and nothing that would start training."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.temp_platform import ROOT, build_environment
from server import paths
from server.up import broker, web_processes
from server.up.listen_address import ListenAddress
from tests.platform_process import free_port
from tests.polling import until


@dataclass(frozen=True)
class BenchWeb:
    port: int
    token: str
    pids: tuple[int, ...]

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The bytes of a request, as they go over the wire."""
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: localhost:{self.port}",
            f"Authorization: Bearer {self.token}",
            "Accept-Language: en",
            *([f"Content-Length: {len(body)}", "Content-Type: application/json"] if body else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + body

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token}", "Accept-Language": "en"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers=headers, timeout=30)


@contextmanager
def serve_web(data: Path, processes: int = 1, **more: str) -> Iterator[BenchWeb]:
    """Serve `data`, which has been migrated and has its first-start data. No worker, beat or watcher runs: what is
    created stays as it is. `more`: settings of the web processes."""
    port = free_port()
    with serve_broker(data):
        with (
            (data / "web.log").open("ab") as log,
            web_processes.open_socket(ListenAddress("127.0.0.1", port)) as shared,
        ):
            env = build_environment(data, FERMI_LOG_LEVEL="WARNING", **more)
            about: Any = {"env": env, "cwd": ROOT, "stdout": log, "stderr": log, "pass_fds": [shared.fileno()]}
            started = [subprocess.Popen(web_processes.build_command(shared), **about) for _ in range(processes)]
        try:
            until(lambda: _is_answering(port), seconds=60, what="the web process answers")
            yield BenchWeb(port, (data / "token").read_text().strip(), tuple(process.pid for process in started))
        finally:
            for process in started:
                process.terminate()
                process.wait()


@contextmanager
def serve_broker(data: Path) -> Iterator[None]:
    """Run the broker alone."""
    run_dir = paths.get_run_dir(data)
    run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    broker.set_password(run_dir)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(broker.build_command(run_dir), **quiet) as store:  # type: ignore[call-overload]
        try:
            until(lambda: broker.is_answering(run_dir), seconds=30, what="the broker answers")
            yield
        finally:
            store.terminate()


def _is_answering(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
