"""A keeper with real services: JupyterLab, a script, commands and terminals. One data directory for all."""

import asyncio
import json
import os
import signal
import socket
import stat
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.client import connect as websocket

from fermi import messages
from fermi.engines import logfiles
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentPort,
    EnvironmentSpec,
)
from fermi.engines.inside import managed_environment
from fermi.engines.inside.session import InsideError
from fermi.engines.local import environment_runs, stop_everything
from fermi.envd import exec_session, login_shell, protocol
from fermi.envd.login_shell import find_shell
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import LogChunk, Node
from fermi.planning import plugins
from fermi.runner import log_rotation, processes
from tests.disks import small_disk
from tests.envd_client import HOST, Kept, Ran, frames, ran
from tests.polling import until
from tests.wheels import make_wheel

SERVES = """
import http.server, sys
class Here(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"here")
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Here).serve_forever()
"""
EDITOR = """
import argparse, http.server, os, socketserver, sys
if os.fork(): sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.closerange(3, 64)
parser = argparse.ArgumentParser()
for name in ("socket", "socket-mode", "auth", "config", "user-data-dir", "extensions-dir"):
    parser.add_argument(f"--{name}", required=True)
for name in ("telemetry", "update-check", "workspace-trust", "getting-started-override"):
    parser.add_argument(f"--disable-{name}", action="store_true", required=True)
parser.add_argument("workspace")
asked = parser.parse_args()
class Here(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"editor")
    def address_string(self):
        return ""
socketserver.UnixStreamServer(asked.socket, Here).serve_forever()
"""
CELL = "import os; print(6 * 7, os.getcwd(), os.environ['COLOUR'])"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def hosting(data: Path) -> Iterator[EnvironmentBackend]:
    found = plugins.get_environment_backend("local", {"data_dir": str(data), "isolation": "auto"})
    assert found
    yield found
    for run in environment_runs.list_living_runs(data):
        until(lambda run=run: (run.request_end(0.0), not run.read_state().left and not run.strays())[1])


@pytest.fixture(scope="module")
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def jupyter(hosting: EnvironmentBackend, port: int) -> Kept:
    spec = EnvironmentSpec(
        "env-a", "a", "project-1", 1, ports=(EnvironmentPort("board", port),), env={"COLOUR": "red"}, cpu_cores=3
    )
    return Kept(hosting, spec).start()


def named(hosting: EnvironmentBackend, name: str, **more: Any) -> Kept:
    return Kept(hosting, EnvironmentSpec(name, name, "project-1", 1, **more))


def members(kept_run: Kept) -> list[int]:
    disk = environment_runs.EnvironmentDisk.from_environment(kept_run.hosting.data_dir, kept_run.spec.id)  # type: ignore[attr-defined]
    return [one["pid"] for one in disk.run(kept_run.spec.run).strays()]


# --- JupyterLab ---


def test_a_jupyter_run_counts_as_running_and_starts_on_the_first_connection(jupyter: Kept) -> None:
    before = jupyter.read_status()
    assert (before.phase, before.left, members(jupyter)) == (EnvironmentPhase.RUNNING, True, [])
    assert jupyter.request({"open": "status"})["service"]["state"] == "idle", "a terminal needs no JupyterLab"
    assert jupyter.http("GET", "/lab")[0] == 200
    assert jupyter.request({"open": "status"})["service"]["state"] == "up"


def test_jupyterlab_does_not_ask_about_news(jupyter: Kept) -> None:
    settings = jupyter.json("GET", "/lab/api/settings/@jupyterlab/apputils-extension:notification")
    assert settings["schema"]["properties"]["fetchNews"]["default"] == "false"


def test_a_cell_runs_and_its_kernel_is_listed_and_ended(jupyter: Kept) -> None:
    notebook = {"path": "work.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
    kernel = jupyter.json("POST", "/api/sessions", json.dumps(notebook))["kernel"]["id"]
    said, disk = _execute(jupyter, kernel, CELL), jupyter.hosting.render(jupyter.spec).artifacts[0].content
    assert said == f"42 {disk['workspace']} red\n"
    [seen] = jupyter.request({"open": "status"})["activity"]["kernels"]
    assert (seen["id"], seen["name"], seen["busy"]) == (kernel, "work.ipynb", False)
    assert seen["pid"] in members(jupyter)
    assert seen["since"] <= seen["busy_at"]
    told = until(lambda: (now := jupyter.read_status().activity).kernels and now)
    assert told.at is not None
    assert told.at >= seen["busy_at"]
    assert jupyter.request({"open": "end-kernel", "kernel": kernel}) == {"ok": True}
    assert processes.read_start_time(seen["pid"]) is None
    assert jupyter.request({"open": "end-kernel", "kernel": kernel})["code"] == "KERNEL_UNKNOWN"
    assert jupyter.json("GET", "/api/kernels") == []


def test_a_kernel_that_holds_memory_is_named(jupyter: Kept) -> None:
    kernel = jupyter.json("POST", "/api/kernels", "{}")["id"]
    _execute(jupyter, kernel, "held = bytearray(200 << 20); held[::4096] = b'x' * len(held[::4096]); print(1)")
    [holder] = [one for one in jupyter.request({"open": "status"})["processes"] if one["kernel"] == kernel]
    assert holder["rss_bytes"] > 200 << 20
    assert kernel in holder["name"] or "ipykernel" in holder["name"]
    jupyter.request({"open": "end-kernel", "kernel": kernel})


def test_jupyter_serves_only_connections_through_envd(jupyter: Kept) -> None:
    """Another environment may run as the same user."""
    jupyter.http("GET", "/api/status")
    content = jupyter.hosting.render(jupyter.spec).artifacts[0].content
    path = os.path.join(content["service"], "jupyter.sock")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    folder = os.open(content["service"], os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(f"/proc/self/fd/{folder}/jupyter.sock")
        stranger.sendall(b"GET /api/kernels HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert b" 403 " in stranger.recv(100)
    os.close(folder)


def test_a_websocket_from_another_origin_is_refused(jupyter: Kept) -> None:
    kernel = jupyter.json("POST", "/api/kernels", "{}")["id"]
    stream = jupyter.open({"open": "port", "door": "jupyter"})
    with pytest.raises(Exception, match="403"):
        websocket(
            f"ws://{HOST}/api/kernels/{kernel}/channels",
            sock=stream,
            origin="http://evil.localhost:8000",
            open_timeout=120,
        )  # type: ignore[arg-type]
    jupyter.request({"open": "end-kernel", "kernel": kernel})


def test_a_passed_socket_leads_inside_and_counts_as_a_connection(jupyter: Kept) -> None:
    inside, answer = protocol.request_with_fd(jupyter.hosting.dial(jupyter.handle), {"open": "port", "door": "jupyter"})
    assert isinstance(inside, protocol.PassedSocket)
    assert answer == {"ok": True}
    inside.settimeout(60)
    inside.sendall(f"GET /api/status HTTP/1.0\r\nHost: {HOST}\r\n\r\n".encode())
    assert inside.recv(1 << 16).startswith(b"HTTP/1.1 200"), "the server takes it for the keeper's own"
    until(lambda: jupyter.read_status().activity.connections == 1)
    inside.close()
    until(lambda: jupyter.read_status().activity.connections == 0)


def test_a_killed_jupyter_is_restarted(jupyter: Kept) -> None:
    jupyter.http("GET", "/api/status")
    [server] = [pid for pid in members(jupyter) if b"jupyterlab" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(server, signal.SIGKILL)
    until(lambda: jupyter.request({"open": "status"})["service"]["restarts"] == 1)
    assert jupyter.http("GET", "/api/status")[0] == 200
    assert "ended with code 137" in jupyter.log()


def _execute(run: Kept, kernel: str, code: str) -> str:
    stream = run.open({"open": "port", "door": "jupyter"})
    with websocket(
        f"ws://{HOST}/api/kernels/{kernel}/channels", sock=stream, origin=f"http://{HOST}", open_timeout=120
    ) as channel:  # type: ignore[arg-type]
        number, said = uuid.uuid4().hex, ""
        asked = {"code": code, "silent": False, "store_history": False, "user_expressions": {}}
        header = {"msg_id": number, "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
        message = {"channel": "shell", "parent_header": {}, "metadata": {}, "header": header, "content": asked}
        channel.send(json.dumps(message))
        while True:
            message = json.loads(channel.recv(60))
            if message["parent_header"].get("msg_id") != number:
                continue
            if message["msg_type"] == "stream":
                said += message["content"]["text"]
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return said


# --- editors ---


def test_an_editor_on_the_path_is_used_with_an_unnamed_socket(
    hosting: EnvironmentBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of code-server, which takes minutes to install: as strict about its options (its `--help`), it takes no
    socket that is there, and runs in a process of a process that has none of the descriptors it was given."""
    program = tmp_path / "code-server"
    program.write_text(f"#!{sys.executable}\n{EDITOR}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    run = named(hosting, "env-e", kind="vscode").start()
    run.until(EnvironmentPhase.RUNNING)
    assert run.http("GET", "/healthz", door="vscode") == (200, b"editor")
    content = hosting.render(run.spec).artifacts[0].content
    assert not [name for name in os.listdir(content["service"]) if name.endswith(".sock")]
    run.stop()


def test_missing_requirements_of_an_editor_are_reported_before_creation(
    hosting: EnvironmentBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = EnvironmentSpec("env-n", "n", "project-1", 1, kind="vscode")
    monkeypatch.setenv("PATH", str(tmp_path))
    for number, why in ((0, "no Node.js"), (18, "for Node.js v18"), (20, "without a C++ compiler (g++), make, Python")):
        for name in ("node", "npm") if number else ():
            (tmp_path / name).write_text(f"#!/bin/sh\necho v{number}.1.0\n")
            (tmp_path / name).chmod(0o755)
        [problem] = hosting.problems(spec)
        assert (problem.code, why in problem.params["why"]) == ("VSCODE_MISSING", True), problem


# --- commands and terminals ---


def test_a_command_has_its_streams_directory_variables_and_exit_code(jupyter: Kept) -> None:
    big = os.urandom(3 << 20)
    assert jupyter.run("sh", "-c", "wc -c; echo wrong >&2; exit 3", given=big) == Ran(3, f"{len(big)}\n", "wrong\n")
    workspace = jupyter.hosting.render(jupyter.spec).artifacts[0].content["workspace"]
    assert jupyter.run("sh", "-c", 'mkdir -p d; echo "$COLOUR $OMP_NUM_THREADS $X"; pwd', env={"X": "y"}).out == (
        f"red 3 y\n{workspace}\n"
    )
    assert jupyter.run("pwd", cwd="d").out == f"{workspace}/d\n"
    assert jupyter.run("head", "-c", "5000000", "/dev/zero").out == "\0" * 5_000_000
    assert jupyter.run("no-such-program").code == 127
    assert jupyter.run("sh", "-c", "kill -9 $$").code == 128 + signal.SIGKILL
    assert jupyter.run("pwd", cwd="nowhere").code == 126


def test_a_signal_reaches_the_process_group_of_a_command(jupyter: Kept) -> None:
    stream = jupyter.open(
        {"open": "exec", "command": ["sh", "-c", "trap 'echo got; exit 5' INT; echo on; sleep 60 & wait"]}
    )
    said = frames(stream)
    assert next(said) == (protocol.OUT, b"on\n")
    stream.sendall(protocol.encode_control({"signal": "INT"}))
    assert list(said) == [(protocol.OUT, b"got\n"), (protocol.CONTROL, b'{"exit": 5}')]


def test_a_terminal_has_a_size_that_can_change(jupyter: Kept) -> None:
    stream = jupyter.open({"open": "exec", "command": None, "tty": {"columns": 101, "rows": 31}})
    stream.sendall(protocol.encode_frame(protocol.IN, b"PS1=; stty -echo size; tty; command -v python; echo ready\n"))
    said, seen = frames(stream), ""
    while "ready\r\n" not in seen.split("echo ready")[-1]:
        seen += next(said)[1].decode()
    assert "31 101\r\n" in seen
    assert "/dev/pts/" in seen
    assert "/home/.fermi/python/bin/python\r\n" in seen
    stream.sendall(protocol.encode_control({"resize": {"columns": 77, "rows": 22}}))
    stream.sendall(protocol.encode_frame(protocol.IN, b"stty size; exit 9\n"))
    last = ran(stream)
    assert last.code == 9
    assert "22 77\r\n" in last.out


def test_a_silent_login_shell_reports_what_it_waits_for(jupyter: Kept) -> None:
    """Also to somebody who types meanwhile, which the terminal shows; and not once it has printed something."""
    home = Path(jupyter.hosting.render(jupyter.spec).artifacts[0].content["workspace"]) / "slow"
    (home / ".config/fish").mkdir(parents=True)
    for name in (".bash_profile", ".zprofile", ".config/fish/config.fish"):
        (home / name).write_text("test -e ~/go || sleep 613\n")
    shell = os.path.basename(find_shell())
    tty = {"columns": 80, "rows": 24}
    stream = jupyter.open({"open": "exec", "command": None, "tty": tty, "env": {"HOME": str(home)}})
    stream.sendall(protocol.encode_frame(protocol.IN, b"typed\r"))
    said, echo = frames(stream), b""
    while (frame := next(said))[0] == protocol.OUT:
        echo += frame[1]
    assert b"typed" in echo
    starting = json.loads(frame[1])["starting"]
    assert starting["command"] == "sleep 613"
    profiles = {"bash": "~/.bash_profile", "zsh": "~/.zprofile", "fish": "~/.config/fish/config.fish"}
    assert profiles[shell] in starting["files"]
    stream.close()
    (home / "go").touch()
    stream = jupyter.open({"open": "exec", "command": None, "tty": tty, "env": {"HOME": str(home)}})
    stream.sendall(protocol.encode_frame(protocol.IN, b"PS1=; sleep 4; exit 5\n"))
    assert ran(stream).code == 5, "the last frame is the only one that tells of something"


@pytest.mark.parametrize("prints_meanwhile", [False, True])
def test_a_hanging_home_directory_does_not_block_other_callers(
    monkeypatch: pytest.MonkeyPatch, prints_meanwhile: bool
) -> None:
    told: list[bytes] = []
    shell = exec_session.ExecSession(None, {"tty": {"columns": 80, "rows": 24}}, "/")  # type: ignore[arg-type]
    shell.child = SimpleNamespace(pid=1)  # type: ignore[assignment]
    found = {"files": ["~/.bashrc"], "command": ""}

    async def drain() -> None:
        pass

    async def tell() -> None:
        looks, answered, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

        def describe(pid: int) -> dict[str, Any]:
            loop.call_soon_threadsafe(looks.set)
            if threading.current_thread() is not threading.main_thread():
                assert threading.current_thread().daemon, "the process would not end before it does"
                answered.wait()
            return found

        monkeypatch.setattr(login_shell, "describe_start", describe)
        writer: Any = SimpleNamespace(write=told.append, drain=drain)
        telling = asyncio.create_task(shell._tell_silence(writer))
        await looks.wait()
        assert told == [], "nobody else was served before the home answered"
        shell._starts = not prints_meanwhile
        answered.set()
        await telling

    monkeypatch.setattr(exec_session, "SILENT_SECONDS", 0)
    asyncio.run(tell())
    assert told == ([] if prints_meanwhile else [protocol.encode_control({"starting": found})])


def test_a_terminal_without_a_size_gets_the_default(jupyter: Kept) -> None:
    stream = jupyter.open({"open": "exec", "command": ["stty", "size"], "tty": {"columns": 0, "rows": 0}})
    assert ran(stream).out == "24 80\r\n"


def test_processes_of_a_caller_end_with_it(jupyter: Kept) -> None:
    for tty in (None, {"columns": 80, "rows": 24}):
        command = ["sh", "-c", "trap '' HUP TERM; sleep 600 & echo $$ $!; wait"]
        stream = jupyter.open({"open": "exec", "command": command, "tty": tty})
        pids = [int(word) for word in next(frames(stream))[1].split()]
        assert all(processes.read_start_time(pid) for pid in pids)
        assert jupyter.request({"open": "status"})["activity"]["connections"] == 1
        stream.close()
        until(lambda pids=pids: not any(processes.read_start_time(pid) for pid in pids))
    until(lambda: jupyter.request({"open": "status"})["activity"]["connections"] == 0)


# --- who is let in, and where to ---


def test_only_declared_ports_are_opened(jupyter: Kept, port: int) -> None:
    assert jupyter.request({"open": "port", "door": "board"})["code"] == "PORT_CLOSED"
    serving = jupyter.open({"open": "exec", "command": [sys.executable, "-c", SERVES, str(port)]})
    until(lambda: jupyter.request({"open": "port", "port": port})["ok"])
    assert jupyter.http("GET", "/", door="board") == (200, b"here")
    serving.close()
    for other in ({"port": 22}, {"door": "other"}, {}, {"door": "custom"}, {"port": "board"}):
        assert jupyter.request({"open": "port", **other})["code"] == "PORT_UNKNOWN", other


def test_a_caller_without_the_token_is_refused(jupyter: Kept, data: Path) -> None:
    jupyter.request({"open": "status"})
    run = data / "environments/env-a/runs/1"
    for said in (b'{"open": "status"}\n', b'{"token": "wrong", "open": "status"}\n', b"nonsense\n", b"[]\n"):
        folder = os.open(run, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(f"/proc/self/fd/{folder}/keeper.sock")
            stranger.sendall(said)
            answer = json.loads(stranger.makefile().readline())
        os.close(folder)
        assert answer["code"] in ("KEEPER_TOKEN_WRONG", "KEEPER_REQUEST_INVALID")
    assert stat.S_IMODE((run / "keeper.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE((run / "keeper.token").stat().st_mode) == 0o600
    for request in ({"open": "nothing"}, {"open": "exec", "command": "ls"}, {"open": "exec", "command": [1]}):
        assert jupyter.request(request)["code"] == "KEEPER_REQUEST_INVALID", request


def test_environments_are_isolated_from_each_other_and_the_platform(
    hosting: EnvironmentBackend, jupyter: Kept, data: Path
) -> None:
    if not hosting.backend.isolation.protects:  # type: ignore[attr-defined]
        pytest.skip("nothing confines processes on this machine")
    assert jupyter.run("sh", "-c", "echo mine > secret; touch ~/here").code == 0
    (data / "token").write_text("secret")
    (data / "token").chmod(0o600)
    other = named(hosting, "env-b").start()
    at = data / "environments"
    for script in (
        f"cat {at}/env-a/runs/1/keeper.token", f"cat {at}/env-b/runs/1/keeper.token", f"cat {data}/token",
        f"echo x > {at}/env-b/runs/1/stop.json",
        *([f"cat {at}/env-a/workspace/secret", f"echo x > {at}/env-a/home/y"]
          if hosting.backend.isolation.landlock else []),  # type: ignore[attr-defined]
    ):  # fmt: skip
        assert other.run("sh", "-c", script).code != 0 or "stop.json" in script, script
    assert not (at / "env-b" / "runs" / "1" / "stop.json").exists()  # in a view of its own it may have made another
    assert other.run("sh", "-c", "echo fine > own && echo fine > ~/own && cat own").out == "fine\n"
    other.stop()


# --- lives ---


def test_secrets_reach_processes_and_are_in_no_file(hosting: EnvironmentBackend, data: Path) -> None:
    run = named(hosting, "env-s", kind="custom", secret_env={"KEY": "my-key"}).start({"KEY": "s3cr3t-value"})
    run.until(EnvironmentPhase.RUNNING)
    assert run.run("sh", "-c", 'echo "$KEY"').out == "s3cr3t-value\n"
    for path in (data / "environments/env-s").rglob("*"):
        assert not path.is_file() or b"s3cr3t-value" not in path.read_bytes(), path
    run.stop()


def test_a_script_serves_a_declared_port_and_its_output_is_the_log(hosting: EnvironmentBackend, port: int) -> None:
    script = f"echo begun\nexec {sys.executable} -c '{SERVES}' {port}\n"
    run = named(hosting, "env-c", kind="custom", start_script=script, ports=(EnvironmentPort("web", port),)).start()
    run.until(EnvironmentPhase.RUNNING)
    until(lambda: run.request({"open": "port", "door": "web"})["ok"])
    assert run.http("GET", "/", door="web") == (200, b"here")
    assert run.log().startswith("begun\n")
    assert run.stop().cause is None


def test_an_endless_log_keeps_its_newest_part_with_stable_offsets(tmp_path: Path) -> None:
    path, line = tmp_path / "keeper.log", b"x" * 1023 + b"\n"
    with path.open("ab") as log:
        for _ in range(8):
            log.write(line * 1024)
            log.flush()
            log_rotation.trim_log(log.fileno(), kept=2 << 20, step=1 << 20)
    assert path.stat().st_blocks * 512 <= 3 << 20
    chunk = logfiles.read_chunk(path, 0, 1 << 20)
    assert (chunk.data, chunk.cursor, chunk.end) == (line * 1024, 7 << 20, False)
    assert logfiles.read_chunk(path, -1024, 1 << 20).data == line
    assert logfiles.read_chunk(path, 8 << 20, 10) == LogChunk(b"", 8 << 20, end=True)


def test_a_script_that_keeps_failing_is_given_up_with_its_output(hosting: EnvironmentBackend) -> None:
    run = named(hosting, "env-f", kind="custom", start_script="echo no such thing; exit 7").start()
    cause = run.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert (cause.code, cause.params["exitCode"]) == ("SERVICE_CRASHED", 7)
    assert "no such thing" in cause.params["output"]
    assert members(run) == []


def test_a_fork_bomb_is_ended_and_given_up(data: Path) -> None:
    """The script stops by itself after 300, should nobody else end it."""
    bounded = plugins.get_environment_backend(
        "local", {"data_dir": str(data), "isolation": "auto", "bounds": {"processes": 60}}
    )
    assert bounded
    forks = (
        "import os, signal\nfor _ in range(300):\n    if os.fork() == 0:\n        os.setsid()\n        signal.pause()\n"
    )
    script = f"exec {sys.executable} -c '{forks}signal.pause()'"
    run = named(bounded, "env-forks", kind="custom", start_script=script).start()
    cause = run.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert (cause.code, cause.params["exitCode"]) == ("SERVICE_CRASHED", 128 + 9)
    assert "fermi: PROCESS_BOUND_REACHED" in cause.params["output"]
    assert members(run) == []


WRITES = """
import time
for number in range(400):
    with open(f"{number}.bin", "wb") as file:
        file.write(b"x" * (1 << 20))
    time.sleep(0.02)
time.sleep(600)
"""


def begun(run: Kept, number: int = 1, *, size: int | None = None, **spec: Any) -> Kept:
    """A run of the environment, with the size of its disk in bytes: a template's are GiB."""
    again = Kept(run.hosting, replace(run.spec, run=number, **spec))
    rendered = run.hosting.render(again.spec)
    rendered.artifacts[0].content["bounds"].update(disk=size)
    run.hosting.start(rendered)
    return again


def ended(run: Kept) -> tuple[str, Mapping[str, Any]]:
    seen = run.until(EnvironmentPhase.ENDED)
    assert seen.cause
    assert (seen.left, members(run)) == (False, [])
    for lang in ("en", "zh"):
        assert all(messages.render_text(seen.cause.code, lang, **seen.cause.params))
    return seen.cause.code, seen.cause.params


def test_an_environment_over_its_disk_limit_ends_and_restarts_for_cleanup(hosting: EnvironmentBackend) -> None:
    run = named(hosting, "env-size", kind="custom", start_script=f"exec {sys.executable} -c '{WRITES}'")
    code, params = ended(begun(run, size=16 << 20))
    assert (code, params["bound"]) == ("ENVIRONMENT_OVER_ITS_SIZE", "16 MiB")
    again = begun(run, 2, size=16 << 20, start_script="")
    assert again.run("sh", "-c", "ls | wc -l; rm -f *.bin; ls | wc -l").out.split()[1:] == ["0"]
    assert again.read_status().phase is EnvironmentPhase.RUNNING
    again.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path) as found:
        yield found


def test_an_environment_ends_before_the_disk_is_full_and_restarts_when_there_is_space(disk: Path) -> None:
    """64 MiB, of which the platform has a half."""
    connection = {"data_dir": str(disk), "isolation": "auto", "bounds": {"reservePercent": 50}}
    hosting = plugins.get_environment_backend("local", connection)
    assert hosting
    run = named(hosting, "env-fills", kind="custom", start_script=f"exec {sys.executable} -c '{WRITES}'")
    code, params = ended(begun(run))
    assert (code, params["totalMiB"], params["reserveMiB"]) == ("ENVIRONMENT_FILLED_THE_DISK", 64, 32)
    refused = begun(run, 2, start_script="")
    with pytest.raises(BackendError) as away:  # it begins when it is opened
        refused.run("true")
    code, params = ended(refused)
    assert code == away.value.code
    assert (code, params["path"]) == ("ENVIRONMENT_WITHOUT_ROOM", str(disk / "environments" / "env-fills" / "home"))
    for path in (disk / "environments" / "env-fills" / "workspace").iterdir():
        path.unlink()
    again = begun(run, 3, start_script="echo there is room")
    again.until(EnvironmentPhase.RUNNING)
    again.stop()


def test_failed_packages_end_the_run_with_pips_output(hosting: EnvironmentBackend, tmp_path: Path) -> None:
    nowhere = (tmp_path / "absent-1.0-py3-none-any.whl").as_uri()
    run = named(hosting, "env-p", packages=(f"absent @ {nowhere}",)).start()
    cause = run.until(EnvironmentPhase.ENDED).cause
    assert cause
    assert cause.code == "PACKAGES_FAILED"
    assert "absent-1.0" in cause.params["output"]


def test_packages_and_their_programs_are_installed_per_project(
    hosting: EnvironmentBackend, data: Path, tmp_path: Path
) -> None:
    (data / "datasets").mkdir(exist_ok=True)  # one of the folders that an environment may read
    package = f"tiny @ {make_wheel(data / 'datasets').as_uri()}"
    runs = [named(hosting, f"env-{name}", kind="custom", packages=(package,)).start() for name in "xy"]
    for run in runs:
        run.until(EnvironmentPhase.RUNNING)
        assert run.run("tiny").out == "tiny it is\n"
        assert run.run("python", "-c", "import tiny, django; print('both')").out == "both\n", "on top of ours"
        if hosting.backend.isolation.landlock:  # type: ignore[attr-defined]
            found = run.run("python", "-c", "import tiny; print(tiny.__file__)").out.strip()
            assert found.startswith(f"{data}/packages/project-1/")
            assert run.run("sh", "-c", f"echo x >> {found}").code != 0
        run.stop()
    assert len([path for path in (data / "packages/project-1").iterdir() if path.is_dir()]) == 1, "made once"


def test_pip_installs_into_the_environment_and_outlives_its_runs(
    hosting: EnvironmentBackend, data: Path, tmp_path: Path
) -> None:
    (data / "datasets").mkdir(exist_ok=True)
    wheel, python = make_wheel(data / "datasets"), "import sys, tiny, django; print(sys.prefix)"
    first, other = (named(hosting, f"env-own-{name}", kind="custom").start() for name in "xy")
    before = set(Path(sys.prefix, "lib").rglob("tiny*"))
    installed = first.run("pip", "install", "--no-index", str(wheel))
    assert installed.code == 0, installed
    assert first.run("tiny").out == "tiny it is\n"
    home = data / "environments/env-own-x/home"
    assert first.run("python", "-c", python).out == f"{home}/.fermi/python\n", "on top of the platform's"
    assert (other.run("python", "-c", python).code, other.run("tiny").code) == (1, 127)
    assert set(Path(sys.prefix, "lib").rglob("tiny*")) == before, "nothing was put among the platform's own"
    first.stop()
    again = Kept(
        hosting, replace(first.spec, run=2, packages=(f"small @ {make_wheel(data / 'datasets', 'small').as_uri()}",))
    )
    again.start().until(EnvironmentPhase.RUNNING)
    assert (again.run("tiny").out, again.run("small").out) == ("tiny it is\n", "small it is\n"), (
        "on top of its template's"
    )
    again.stop()
    other.stop()


def test_starting_and_stopping_are_idempotent(hosting: EnvironmentBackend, data: Path) -> None:
    run = named(hosting, "env-t").start()
    for _ in range(2):
        run.start()
    keeper = json.loads(run.run("sh", "-c", 'echo "{\\"pid\\": $PPID}"').out)["pid"]
    run.start()
    assert json.loads(run.run("sh", "-c", 'echo "{\\"pid\\": $PPID}"').out)["pid"] == keeper
    for _ in range(2):
        assert run.stop().phase is EnvironmentPhase.ENDED
    run.start()
    assert run.read_status().phase is EnvironmentPhase.ENDED
    with pytest.raises(BackendError, match="ENVIRONMENT_AWAY"):
        run.request({"open": "status"})
    never = replace(run.spec, run=2)
    after = Kept(hosting, never)
    after.stop()
    after.start()
    assert (after.read_status().phase, after.read_status().left) == (EnvironmentPhase.ABSENT, False), (
        "it can no longer begin"
    )
    third = Kept(hosting, replace(run.spec, run=3)).start()
    third.run("sh", "-c", "touch kept")
    assert hosting.delete("env-t") is False, "something of it runs"
    third.stop()
    assert hosting.delete("env-t") is True
    assert not (data / "environments/env-t").exists()
    assert hosting.delete("env-t") is True


def test_a_killed_daemon_leaves_no_process_and_restarts_on_demand(
    hosting: EnvironmentBackend,
) -> None:
    run = named(hosting, "env-k").start()
    stream = run.open({"open": "exec", "command": ["sh", "-c", "setsid sleep 600 & echo $PPID $!; wait"]})
    keeper, sleeper = (int(word) for word in next(frames(stream))[1].split())
    os.kill(keeper, signal.SIGKILL)
    until(lambda: processes.read_start_time(keeper) is None)
    assert run.read_status().phase is EnvironmentPhase.RUNNING
    assert run.run("echo", "again").out == "again\n"
    assert processes.read_start_time(sleeper) is None
    run.stop()


def test_an_environment_of_the_same_name_on_another_platform_is_ignored(
    hosting: EnvironmentBackend, tmp_path: Path
) -> None:
    other = plugins.get_environment_backend("local", {"data_dir": str(tmp_path), "isolation": "off"})
    assert other
    run, twin = named(hosting, "env-n").start(), named(other, "env-n").start()
    stream = twin.open({"open": "exec", "command": ["sh", "-c", "sleep 600 & echo $!; wait"]})
    sleeper = int(next(frames(stream))[1])
    keeper = int(run.run("sh", "-c", "echo $PPID").out)
    os.kill(keeper, signal.SIGKILL)
    until(lambda: processes.read_start_time(keeper) is None)
    assert run.run("echo", "again").out == "again\n"
    assert processes.read_start_time(sleeper) is not None
    assert run.stop().left is False
    twin.stop()
    assert processes.read_start_time(sleeper) is None


def test_a_killed_daemon_of_a_script_is_a_lost_run_without_leftovers(hosting: EnvironmentBackend) -> None:
    run = named(hosting, "env-l", kind="custom", start_script="setsid sleep 600 & sleep 600").start()
    run.until(EnvironmentPhase.RUNNING)
    until(lambda: len(members(run)) >= 3)
    keeper = (
        environment_runs.EnvironmentDisk.from_environment(hosting.data_dir, "env-l")
        .run(1)
        .read_daemon_status()["runner"]["pid"]
    )  # type: ignore[attr-defined]
    os.kill(keeper, signal.SIGKILL)
    seen = run.until(EnvironmentPhase.ENDED)
    assert seen.cause
    assert (seen.cause.code, seen.left) == ("KEEPER_LOST", True)
    assert run.stop().left is False
    assert members(run) == []


def test_a_platform_shutdown_stops_environments_and_its_start_restarts_them(
    tmp_path: Path,
) -> None:
    hosting = plugins.get_environment_backend("local", {"data_dir": str(tmp_path), "isolation": "off"})
    assert hosting
    lazy, script = (
        named(hosting, "env-d").start(),
        named(hosting, "env-g", kind="custom", start_script="sleep 600").start(),
    )
    lazy.run("true")
    script.until(EnvironmentPhase.RUNNING)
    assert stop_everything(tmp_path, 30.0) == []
    assert (members(lazy), members(script)) == ([], [])
    assert lazy.read_status().phase is EnvironmentPhase.RUNNING
    assert lazy.run("echo", "back").out == "back\n"
    ended = script.read_status()
    assert ended.cause
    assert (ended.phase, ended.cause.code, ended.left) == (EnvironmentPhase.ENDED, "KEEPER_LOST", False)
    stop_everything(tmp_path, 0.0)
    assert (members(lazy), environment_runs.list_living_runs(tmp_path)) == ([], [])


def test_concurrent_connections_share_one_daemon(hosting: EnvironmentBackend) -> None:
    run = named(hosting, "env-m").start()
    with ThreadPoolExecutor(6) as pool:
        told = {ran.out for ran in pool.map(lambda _: run.run("sh", "-c", "echo $PPID"), range(6))}
    assert len(told) == 1
    run.stop()


def test_a_connection_before_the_start_waits(hosting: EnvironmentBackend) -> None:
    run = named(hosting, "env-early")
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(run.request, {"open": "status"})
        wait([said], 0.2)
        run.start()
        assert said.result(30)
    run.stop()


def test_an_unknown_handle_is_absent(hosting: EnvironmentBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fermi.engines.local.environments.DIAL_SECONDS", 0.1)
    handle = EnvironmentHandle("env-none", 1)
    assert hosting.observe([handle])[handle.name].phase is EnvironmentPhase.ABSENT
    with pytest.raises(BackendError, match="ENVIRONMENT_AWAY"):
        hosting.dial(handle)


def test_the_platform_enters_an_unopened_environment_without_starting_it(
    hosting: EnvironmentBackend, data: Path
) -> None:
    backend: Any = hosting.backend  # type: ignore[attr-defined]
    run = named(hosting, "env-enter", env={"COLOUR": "blue"}).start()
    with backend.enter(Node("env-enter", "lab")) as session:
        survey = session.request("survey")
        own = data / "environments/env-enter/home/.fermi"
        assert survey["python"] == survey["interpreter"] == f"{own}/python/bin/python"
        with pytest.raises(InsideError) as refused:
            session.request("dance")
    assert refused.value.code == "INSIDE_UNKNOWN_REQUEST"
    assert list((own / "bundles").iterdir())
    assert members(run) == []
    assert environment_runs.EnvironmentDisk.from_environment(data, "env-enter").run(1).read_state().state == "absent"
    until(lambda: not began("fermi.runner.sandboxed_program"), what="it ends with its stream")
    for key, code in (("env-of-nobody", "INSIDE_NOT_HERE"), ("env-enter", "INSIDE_NOT_RUNNING")):
        run.stop()
        with pytest.raises(BackendError) as away:
            backend.enter(Node(key, "lab"))
        assert away.value.code == code


def began(module: str) -> list[int]:
    """Living children of this process that run it."""
    own = os.getpid()
    return [
        pid
        for pid, fields in processes.list_living_processes()
        if int(fields[1]) == own and module in processes.read_words(pid, "cmdline")
    ]


def test_a_command_through_envd_is_a_stream(hosting: EnvironmentBackend) -> None:
    """As the platform enters environments of worker hosts."""
    run = named(hosting, "env-through").start()
    with managed_environment.enter_environment(hosting.dial(run.handle)) as session:
        assert session.request("survey")["python"].endswith("/home/.fermi/python/bin/python")
        assert any("fermi.inside" in processes.read_words(pid, "cmdline") for pid in members(run))
    until(
        lambda: not any("fermi.inside" in processes.read_words(pid, "cmdline") for pid in members(run)), what="its end"
    )
    with pytest.raises(InsideError) as silent:
        managed_environment.enter_environment(hosting.dial(run.handle), "/no/python")
    assert silent.value.code == "INSIDE_SILENT"
    assert "cannot run /no/python" in silent.value.params["why"]
    run.stop()
