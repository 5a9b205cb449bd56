"""The program beside a rank, by itself: what it is told, what it answers, and what it leaves behind."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fermi.engines import bundle, subprocess_stream
from fermi.envd import protocol, rank_exec
from fermi.runner import code_delivery
from tests.envd_client import ran
from tests.polling import until
from tests.process_state import alive
from tests.rank_exec import LEAVES, SHOWN, first_word

PYTHON = sys.executable
ROOT = Path(rank_exec.__file__).parents[2]


class Program:
    """`pipes`: its input and output are two pipes and not one socket, as container runtimes have them."""

    def __init__(self, *, pipes: bool = False, **env: str) -> None:
        self.stream, theirs = socket.socketpair()
        into, out_of = (subprocess.PIPE, subprocess.PIPE) if pipes else (theirs, theirs)
        self.process = subprocess.Popen(
            [PYTHON, "-m", "fermi.envd.rank_exec"], stdin=into, stdout=out_of,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env}, start_new_session=True,
        )  # fmt: skip
        if pipes:
            threading.Thread(target=self._give, args=(theirs,), daemon=True).start()
            threading.Thread(target=self._take, args=(theirs,), daemon=True).start()
        else:
            theirs.close()
        assert subprocess_stream.wait_until_ready(self.stream, 30)

    def _give(self, theirs: socket.socket) -> None:
        assert self.process.stdin
        with self.process.stdin as given, contextlib.suppress(OSError):
            while data := theirs.recv(1 << 16):
                given.write(data)
                given.flush()

    def _take(self, theirs: socket.socket) -> None:
        assert self.process.stdout
        with self.process.stdout as taken, contextlib.suppress(OSError):
            while data := os.read(taken.fileno(), 1 << 16):
                theirs.sendall(data)
        theirs.shutdown(socket.SHUT_RDWR)

    def ask(self, order: Mapping[str, Any], **request: Any) -> dict[str, Any]:
        self.stream.sendall(protocol.encode_line(order))
        return protocol.send_request(
            self.stream, {"open": "exec", "command": None, "env": {}, "tty": None, **request}, 30
        )

    def shown(self, order: Mapping[str, Any], **request: Any) -> tuple[dict[str, str], str]:
        assert self.ask(order, command=[sys.executable, "-c", SHOWN], **request) == {"ok": True}
        env, cwd = json.loads(ran(self.stream).out)
        return env, cwd

    def close(self) -> None:
        self.stream.close()
        self.process.wait(30)


@pytest.fixture(params=[False, True], ids=["socket", "pipes"])
def program(request: pytest.FixtureRequest) -> Iterator[Program]:
    running = Program(pipes=request.param, KEPT="kept", SECRET="s3cret")
    yield running
    running.close()


def test_it_follows_the_order(program: Program, tmp_path: Path) -> None:
    order = {
        "env": {"RANK": "3", "MASTER_ADDR": [{"late": "head host"}], "X": "theirs"}, "cwd": str(tmp_path),
        "head": "127.0.0.1", "first": True, "without": ["SECRET"], "name": "task-x-1",
    }  # fmt: skip
    env, cwd = program.shown(order, env={"X": "mine"})
    assert (env["RANK"], env["MASTER_ADDR"], env["X"], env["KEPT"], cwd) == (
        "3",
        "127.0.0.1",
        "mine",
        "kept",
        str(tmp_path),
    )
    assert env["GLOO_SOCKET_IFNAME"] == "lo"
    assert "SECRET" not in env


def test_without_an_order_a_command_runs_in_the_current_directory(program: Program) -> None:
    env, cwd = program.shown({})
    assert (env["KEPT"], cwd) == ("kept", os.getcwd())


def test_packages_of_the_tasks_code_come_first(program: Program, tmp_path: Path) -> None:
    chosen = str(tmp_path / "python-0")
    code_delivery.write_chosen_interpreter(chosen, "/packages/venv/bin/python")
    env, _ = program.shown({"chosen": chosen})
    assert env["PATH"].startswith("/packages/venv/bin:")
    assert env["VIRTUAL_ENV"] == "/packages/venv"


def test_a_login_shell_keeps_path(program: Program, tmp_path: Path) -> None:
    env = {"PATH": f"/of/the/rank:{os.environ['PATH']}", "HOME": str(tmp_path)}
    assert program.ask({"env": env}) == {"ok": True}
    program.stream.sendall(
        protocol.encode_frame(protocol.IN, b'echo "path $PATH"; exit 3\n') + protocol.encode_control({"end": True})
    )
    done = ran(program.stream)
    assert done.code == 3
    assert f"path {os.path.dirname(sys.executable)}:/of/the/rank:" in done.out


@pytest.mark.parametrize(
    ("request_", "code"),
    [({"open": "port", "port": 22}, "KEEPER_REQUEST_INVALID"), ({"open": "status"}, "KEEPER_REQUEST_INVALID"),
     ({"open": "exec", "command": []}, "KEEPER_REQUEST_INVALID"),
     ({"open": "exec", "command": ["true"], "env": ["X"]}, "KEEPER_REQUEST_INVALID")],
)  # fmt: skip
def test_unsupported_orders_are_reported(request_: dict[str, Any], code: str) -> None:
    running = Program()
    running.stream.sendall(protocol.encode_line({}))
    assert protocol.send_request(running.stream, request_, 30)["code"] in (code, "KEEPER_REQUEST_INVALID")
    assert running.stream.recv(1) == b""
    running.close()


@pytest.mark.parametrize("end", ["stream", "signal", "command"])
def test_all_processes_it_started_end_with_it(end: str) -> None:
    running = Program()
    script = LEAVES if end != "command" else "setsid sleep 600 >/dev/null & echo $!; sleep 0.2"
    assert running.ask({}, command=["sh", "-c", script]) == {"ok": True}
    left = int(first_word(running.stream))
    if end == "stream":
        running.stream.close()
    elif end == "signal":
        running.process.send_signal(signal.SIGTERM)
    running.process.wait(30)
    until(lambda: not alive(left), what="what was left behind is gone")
    running.close()


def test_its_order_cannot_be_read_from_its_memory() -> None:
    running = Program(SECRET="s3cret")
    code = f"open('/proc/{running.process.pid}/environ').read()"
    assert running.ask({}, command=["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code])[
        "ok"
    ]
    done = ran(running.stream)
    assert done.code != 0
    assert "s3cret" not in done.out + done.err
    running.close()


def test_a_failed_start_is_reported_with_its_output() -> None:
    with pytest.raises(subprocess_stream.ProgramNotReadyError) as silent:
        subprocess_stream.open_ready_stream(["sh", "-c", "echo not today >&2; exit 3"], dict(os.environ), 30)
    assert silent.value.said == "not today"
    with pytest.raises(subprocess_stream.ProgramNotReadyError):
        subprocess_stream.open_ready_stream(["sleep", "600"], dict(os.environ), 0.1)
    with pytest.raises(subprocess_stream.ProgramNotReadyError):
        subprocess_stream.open_ready_stream(["/no/such/program"], {}, 1)


def test_a_shells_greeting_is_not_taken_for_an_answer() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = ["sh", "-c", 'echo Welcome; exec "$@"', "sh", sys.executable, "-m", "fermi.envd.rank_exec"]
    with subprocess_stream.open_ready_stream(words, env, 30) as stream:
        stream.sendall(protocol.encode_line({}))
        assert protocol.send_request(stream, {"open": "exec", "command": ["true"]}) == {"ok": True}


def test_pods_and_slurm_nodes_have_all_modules_that_it_imports(tmp_path: Path) -> None:
    for place, runner in (("pod", bundle.POD_MODULES), ("slurm", bundle.SLURM_MODULES)):
        for path, text in bundle.collect_modules(runner, ()).items():
            (tmp_path / place / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place / path).write_text(text, encoding="utf-8")
        words = [sys.executable, "-I", "-c", "import sys; sys.path.insert(0, sys.argv[1]); import fermi.envd.rank_exec"]
        subprocess.run([*words, str(tmp_path / place)], check=True, cwd=tmp_path)
        size = sum(map(len, bundle.collect_modules(runner, ("fermi.train.train_ddp",)).values()))
        assert size < 900_000, "a ConfigMap holds one MiB"
