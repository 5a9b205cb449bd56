"""What a notebook loses by being proxied: JupyterLab itself, and JupyterLab behind the environment daemon and the web
process, measured alternately.

A download of a large file, in bytes per second; a kernel's answers to requests that wait for each other, and to many at
once. All of it runs on the same cores: the notebook and its kernel lack what the two hops use.
"""

import json
import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from bench.table import Figure, FigureTarget
from bench.temp_platform import make_temp_folder, run_in_django
from bench.timing import measure_in_turns
from bench.web import serve_web
from fermi.engines.environments import EnvironmentHandle, EnvironmentSpec
from fermi.planning import plugins
from tests.platform_process import free_port
from tests.polling import until

FILE = 64 << 20
ROUNDS = 2
DOWNLOADS = 25  # of 40 ms each, and the kernel places three processes on two cores differently from time to time
REQUESTS = 30
AT_ONCE = 10
PACKET_LOSS = FigureTarget(0.9, "at least", "ratio")


@dataclass
class Notebook:
    """An address of JupyterLab; `headers` are those of a browser there."""

    port: int
    host: str
    headers: dict[str, str]
    kernel: str = ""

    def prepare(self) -> "Notebook":
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=60, trust_env=False) as client:
            page = client.get("/lab", headers={"Host": self.host, "Accept": "text/html", **self.headers})
            token = page.cookies["_xsrf"]
            cookie = "; ".join(filter(None, (self.headers.get("Cookie"), f"_xsrf={token}")))
            self.headers = {**self.headers, "Cookie": cookie, "X-XSRFToken": token}
            made = client.post("/api/kernels", json={}, headers={"Host": self.host, **self.headers})
            self.kernel = made.raise_for_status().json()["id"]
        return self

    def download(self) -> float:
        """Return the speed of a download in MiB per second."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as sock:
            head = {"Host": self.host, "Connection": "close", **self.headers}
            lines = ["GET /files/large.bin HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
            held, count, began = memoryview(bytearray(1 << 20)), 0, time.perf_counter()
            sock.sendall("\r\n".join([*lines, "", ""]).encode())
            while got := sock.recv_into(held):
                count += got
            took = time.perf_counter() - began
        assert count > FILE, count
        return FILE / took / 2**20

    @contextmanager
    def channels(self) -> Iterator[ClientConnection]:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        url = f"ws://{self.host}/api/kernels/{self.kernel}/channels"
        with connect(
            url, sock=sock, proxy=None, max_size=None, compression=None,
            origin=Origin(f"http://{self.host}"), additional_headers=self.headers,
        ) as found:  # fmt: skip
            yield found

    def answers(self, at_once: int) -> float:
        """Return a kernel's answers per second."""
        with self.channels() as channels:
            _send_requests(channels)
            _read_answers(channels, 1)
            began = time.perf_counter()
            for _ in range(REQUESTS // at_once):
                for _ in range(at_once):
                    _send_requests(channels)
                _read_answers(channels, at_once)
            return REQUESTS / (time.perf_counter() - began)


def _send_requests(channels: ClientConnection) -> None:
    header = {
        "msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "username": "", "session": "bench", "version": "5.3",
    }  # fmt: skip
    content = {"code": "print(1)", "silent": False, "store_history": False, "user_expressions": {}}
    said = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    channels.send(json.dumps(said))


def _read_answers(channels: ClientConnection, count: int) -> None:
    while count:
        said = json.loads(channels.recv(60))
        count -= said["msg_type"] == "execute_reply"


def measure() -> Iterator[Figure]:
    with make_temp_folder() as data:
        run_in_django(data, "tasks", "1")
        with (
            serve_web(data) as web,
            web.client() as client,
            _start_direct(data.parent / "direct") as direct,
            _start_behind_proxy(data, client, web.port) as proxied,
        ):
            found = measure_in_turns(DOWNLOADS, download_direct=direct.download, download=proxied.download)
            found |= measure_in_turns(
                ROUNDS,
                one_direct=lambda: direct.answers(1), one=lambda: proxied.answers(1),
                many_direct=lambda: direct.answers(AT_ONCE), many=lambda: proxied.answers(AT_ONCE),
            )  # fmt: skip
    yield Figure(
        f"download of {FILE >> 20} MiB", found["download"], "MiB/s", found["download_direct"], "direct", PACKET_LOSS
    )
    yield Figure("cells, one after the other", found["one"], "1/s", found["one_direct"], "direct", PACKET_LOSS)
    yield Figure(f"cells, {AT_ONCE} at once", found["many"], "1/s", found["many_direct"], "direct", PACKET_LOSS)


@contextmanager
def _start_direct(folder: Path) -> Iterator[Notebook]:
    folder.mkdir()
    _make_large_file(folder)
    port = free_port()
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--ServerApp.root_dir={folder}",
        f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=",
    ]  # fmt: skip
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, "HOME": str(folder)})
    try:
        until(lambda: _is_up(port), what="JupyterLab answers")
        yield Notebook(port, f"localhost:{port}", {}).prepare()
    finally:
        process.terminate()
        process.wait()


@contextmanager
def _start_behind_proxy(data: Path, client: httpx.Client, port: int) -> Iterator[Notebook]:
    known = client.get("/api/v1/dev-environments").raise_for_status().json()["data"]["items"][0]
    body = {
        "name": "bench-door", "projectId": known["projectId"], "clusterId": known["clusterId"], "zone": "bench",
        "kind": "jupyter",
    }  # fmt: skip
    made = client.post("/api/v1/dev-environments", json=body).raise_for_status().json()["data"]["id"]
    hosting = plugins.get_environment_backend("local", {"data_dir": str(data), "isolation": "auto"})
    assert hosting is not None
    handle = EnvironmentHandle(made, 0)
    rendered = hosting.render(EnvironmentSpec(made, "bench-door", known["projectId"], 0))
    hosting.start(rendered)
    try:
        headers = {"Host": f"localhost:{port}"}
        opened = client.post(f"/api/v1/dev-environments/{made}/doors", json={}, headers=headers)
        address = urlsplit(opened.raise_for_status().json()["data"]["url"])
        entered = client.get(f"{address.path}?{address.query}", headers={"Host": address.netloc})
        cookie = entered.headers["set-cookie"].partition(";")[0]
        inside_it = {"Host": address.netloc, "Cookie": cookie, "Accept": "text/html"}
        until(lambda: client.get("/lab", headers=inside_it).status_code == 200, what="JupyterLab is up")
        _make_large_file(Path(rendered.artifacts[0].content["workspace"]))
        yield Notebook(port, address.netloc, {"Cookie": cookie}).prepare()
    finally:
        until(lambda: (hosting.stop(handle, 0.0), hosting.observe([handle])[handle.name].left is False)[1])


def _make_large_file(folder: Path) -> None:
    (folder / "large.bin").write_bytes(os.urandom(1 << 20) * (FILE >> 20))
    (folder / "large.bin").chmod(0o644)


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://localhost:{port}/api/status", timeout=5, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
