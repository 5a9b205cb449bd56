"""Environments in real containers: Podman runs them, from images made of this machine's own files. Skipped where
there is no Podman that can run one."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.agent.environments import EnvironmentRunner
from fermi.engines.environments import EnvironmentHandle, EnvironmentPhase, EnvironmentPort, EnvironmentSpec
from fermi.engines.local.environments import LocalEnvironmentBackend
from fermi.envd import protocol
from fermi.planning import plugins
from fermi.schema import serialization
from tests import images
from tests.envd_client import Kept, frames
from tests.podman import imported, podman, settings
from tests.polling import until

SERVES = """python3 -c '
import http.server, os
class Here(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"here " + os.environ["COLOUR"].encode())
http.server.HTTPServer(("127.0.0.1", {port}), Here).serve_forever()'
"""
STRANGER = """
import glob, socket
[path] = glob.glob("/fermi/run/service/jupyter.sock")
stream = socket.socket(socket.AF_UNIX)
stream.connect(path)
stream.sendall(b"GET /api/contents HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n")
print(stream.recv(4096).split()[1].decode())
"""
KERNEL = {"path": "a.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}


@pytest.fixture(scope="module", autouse=True)
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for name, value in settings(tmp_path_factory.mktemp("podman")).items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from imported("plain", images.make(tmp_path_factory.mktemp("image") / "root.tar"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    archive = tmp_path_factory.mktemp("image") / "root.tar"
    yield from imported("lab", images.make(archive, ["jupyterlab", "ipykernel"]))


@pytest.fixture
def hosting(tmp_path: Path) -> Iterator[LocalEnvironmentBackend]:
    found = plugins.get_environment_backend("local", {"data_dir": str(tmp_path / "data"), "containers": True})
    assert isinstance(found, LocalEnvironmentBackend)
    yield found
    for one in made(found.data_dir):
        podman("rm", "--force", "--time=0", one)


def made(data: Path) -> list[str]:
    words = podman("ps", "--all", f"--filter=label=io.fermi.data={data}", "--format={{.Names}}")
    return sorted(words.split())


def named(hosting: LocalEnvironmentBackend, image: str, run: int = 1, **more: Any) -> Kept:
    return Kept(hosting, EnvironmentSpec("env-a", "a", "project-1", run, image=image, **{"kind": "custom", **more}))


def test_a_script_runs_in_a_container_and_its_port_is_reachable(hosting: LocalEnvironmentBackend, image: str) -> None:
    port = 20000 + os.getpid() % 10000
    kept = named(
        hosting, image, start_script=SERVES.format(port=port), ports=(EnvironmentPort("web", port),),
        env={"COLOUR": "red"},
        secret_env={"KEY": "name"}, cpu_cores=1, memory_gb=1,
    )  # fmt: skip
    kept.start({"KEY": "hush-hush"}).start()
    assert kept.until(EnvironmentPhase.RUNNING).left is True
    assert made(hosting.data_dir) == ["env-a-1"]
    status, body = until(lambda: (found := _web(kept))[0] == 200 and found)
    assert (status, body) == (200, b"here red")
    ran = kept.run("/bin/sh", "-c", "echo $KEY; pwd; echo edited > kept.txt; cat /proc/self/status")
    said = dict(line.partition(":")[::2] for line in ran.out.splitlines()[2:])
    assert ran.out.splitlines()[:2] == ["hush-hush", "/home/fermi/work"]
    assert (said["CapEff"].strip(), said["CapBnd"].strip()) == ("0" * 16, "0" * 16)
    assert said["NoNewPrivs"].strip() == "1"
    assert kept.run("/bin/sh", "-c", "echo > /fermi/code/fermi/x").code != 0, "our code is read only"
    assert kept.run("/bin/sh", "-c", "echo > /fermi/told/stop.json").code != 0
    pids = kept.run("/bin/sh", "-c", "echo /proc/[0-9]*").out.split()
    assert len(pids) < 12, "it sees its own processes alone"
    for seen in (podman("inspect", "env-a-1"), *_command_lines()):
        assert "hush-hush" not in seen
    assert kept.stop().phase is EnvironmentPhase.ENDED
    assert made(hosting.data_dir) == []

    again = named(hosting, image, 2, start_script="while :; do sleep 1; done").start()
    again.until(EnvironmentPhase.RUNNING)
    assert again.run("/bin/cat", "kept.txt").out == "edited\n", "the disk outlives a run"
    with again.open({"open": "code", "path": ".", "limits": {"files": 10, "fileMb": 1, "totalMb": 1}}) as stream:
        stream.sendall(protocol.encode_control({"end": True}))
        told = b"".join(payload for channel, payload in frames(stream) if channel == protocol.OUT)
    assert json.loads(told.partition(b"\n")[0])["ok"], "a task may take the folder along as its code"
    assert b"kept.txt" in told
    assert not hosting.delete("env-a")
    again.stop()
    assert hosting.delete("env-a")
    assert not (hosting.data_dir / "environments" / "env-a").exists()


def _web(kept: Kept) -> tuple[int, bytes]:
    try:
        return kept.http("GET", "/", door="web")
    except AssertionError:  # it does not listen yet
        return 0, b""


def _command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return found


def test_a_container_is_held_to_its_limits(hosting: LocalEnvironmentBackend, image: str) -> None:
    engine = hosting.containers.engine()
    if not (engine and engine.limits >= {"cpu", "memory"}):
        pytest.skip("this engine holds nobody to sizes")
    kept = named(hosting, image, memory_gb=1, cpu_cores=1, shared_memory_gb=2).start()
    kept.until(EnvironmentPhase.RUNNING)
    much = kept.run("python3", "-c", "x = bytearray(3 << 30); print(len(x))")
    assert (much.code, much.out) == (137, "")
    shared = "import os; of = os.statvfs('/dev/shm'); print(of.f_blocks * of.f_frsize >> 30)"
    assert kept.run("python3", "-c", shared).out == "2\n"
    kept.stop()


def test_a_killed_container_is_detected_and_removed(hosting: LocalEnvironmentBackend, image: str) -> None:
    kept = named(hosting, image, start_script="while :; do sleep 1; done").start()
    kept.until(EnvironmentPhase.RUNNING)
    podman("kill", "env-a-1")
    seen = kept.until(EnvironmentPhase.ENDED)
    assert (seen.left, seen.cause and seen.cause.code) == (False, "KEEPER_LOST")
    assert made(hosting.data_dir) == []


def test_an_image_without_python_is_reported(hosting: LocalEnvironmentBackend, tmp_path: Path) -> None:
    for image in imported("bare", images.make(tmp_path / "root.tar", python=False)):
        cause = named(hosting, image).start().until(EnvironmentPhase.ENDED).cause
        assert cause
        assert (cause.code, cause.params["image"]) == ("IMAGE_WITHOUT_PYTHON", image)
    assert made(hosting.data_dir) == []


def test_a_missing_image_is_reported(hosting: LocalEnvironmentBackend) -> None:
    kept = named(hosting, "localhost:1/no/such/image:1").start()
    waits = until(lambda: (now := kept.read_status()).waiting and now.waiting.code == "IMAGE_REGISTRY_AWAY" and now)
    assert waits.left is True
    hosting.stop(kept.handle, 0.0)
    assert until(lambda: (now := kept.read_status()).left is False and now).cause is None


def test_jupyterlab_serves_only_envd(hosting: LocalEnvironmentBackend, lab: str) -> None:
    kept = named(hosting, lab, kind="jupyter", memory_gb=2).start()
    kept.until(EnvironmentPhase.RUNNING)
    assert kept.http("GET", "/lab")[0] == 200
    kernel = kept.json("POST", "/api/sessions", json.dumps(KERNEL))["kernel"]["id"]
    [seen] = kept.request({"open": "status"})["activity"]["kernels"]
    assert (seen["id"], seen["name"]) == (kernel, "a.ipynb")
    assert until(lambda: kept.request({"open": "status"})["activity"]["kernels"][0]["pid"])
    assert kept.run("python3", "-c", STRANGER).out == "403\n"
    assert kept.stop().phase is EnvironmentPhase.ENDED


def test_an_image_without_jupyterlab_is_reported(hosting: LocalEnvironmentBackend, image: str) -> None:
    cause = named(hosting, image, kind="jupyter").start().until(EnvironmentPhase.ENDED).cause
    assert cause
    assert (cause.code, cause.params["image"]) == ("JUPYTERLAB_MISSING", image)


# --- as the agent drives it ---


class Server:
    """What a platform orders, and hears."""

    def __init__(self, spec: EnvironmentSpec) -> None:
        self.spec, self.printed = spec, b""

    def hosted(self, worker: str, token: str, name: str) -> dict[str, Any]:
        return {"spec": serialization.dump(self.spec), "secrets": {"KEY": "hush"}}

    def append(self, worker: str, token: str, log: str, offset: int, data: bytes) -> int:
        self.printed = self.printed[:offset] + data
        return len(self.printed)


def agent(folder: Path, server: Any) -> EnvironmentRunner:
    kept = {"data_dir": str(folder), "isolation": "off", "containers": True}
    return EnvironmentRunner(kept, server, lambda _: "token", lambda: None, lambda *_: None)


def test_a_container_left_by_a_dead_agent_is_found_and_ended_when_fenced(
    hosting: LocalEnvironmentBackend, image: str, tmp_path: Path
) -> None:
    script = "echo begun $KEY; while :; do sleep 1; done"
    spec = EnvironmentSpec("env-a", "a", "p", 1, "custom", image, start_script=script, secret_env={"KEY": "name"})
    order = {"name": "env-a-1", "environment": "env-a", "run": 1, "stop": None}
    server = Server(spec)
    first = agent(hosting.data_dir, server)
    first.learn("gn6-0", {"runs": [order]})

    def stepped(hosted: EnvironmentRunner) -> Any:
        hosted.step()
        return (hosted.report("gn6-0").get("hosted") or {"runs": {}})["runs"].get("env-a-1")

    until(lambda: (seen := stepped(first)) and seen["phase"] == "running")
    began = podman("inspect", "--format={{.Id}}", "env-a-1")

    second = agent(hosting.data_dir, server)  # the first is not asked again
    second.learn("gn6-0", {"runs": [order]})
    until(lambda: (seen := stepped(second)) and seen["phase"] == "running" and server.printed == b"begun hush\n")
    assert podman("inspect", "--format={{.Id}}", "env-a-1") == began, "it goes on, and no other was begun"

    third = agent(hosting.data_dir, server)
    third.learn("gn6-0", {"runs": []})  # somebody else's environment by now
    before = time.monotonic()
    until(lambda: (third.step(), made(hosting.data_dir) == [])[1])
    assert time.monotonic() - before < 30
    third.learn("gn6-0", {"runs": [], "removed": ["env-a"]})
    until(lambda: (third.step(), "env-a" in third._gone)[1])
    assert hosting.observe([EnvironmentHandle("env-a", 1)])["env-a-1"].phase is EnvironmentPhase.ABSENT
