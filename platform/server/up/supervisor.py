"""Starts the embedded platform in order, keeps it running, and ends it in order.

    checks → lock → leftovers of a killed platform → broker → migrations → first-start data and web together
    → the web process answers → worker, beat, watcher → more web processes, as they are needed

Ending: everything but the broker at once, then the broker. Training is not a child of the platform: its runners are
detached and continue, and the next start finds them.
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from fermi.runner.processes import refuse_tracers
from server import env, paths
from server.up import broker, checks, console, running_tasks, schema, web_processes
from server.up.child import ChildProcess, build_environment, describe_exit
from server.up.listen_address import ListenAddress
from server.up.pidfile import Pidfile, PlatformProcess
from server.up.process_health import CHECK_INTERVAL_SECONDS, ProcessSupervision

START_TIMEOUT_SECONDS = 60  # for a child to answer
GRACE_SECONDS = 15  # from the request to end until a child is killed
SECOND_SIGNAL_SECONDS = 1
POLL_SECONDS = 0.02


class ChildStartError(Exception):
    """A process could not be started; the message is for the operator at the terminal."""


class StartInterruptedError(Exception):
    """SIGINT or SIGTERM arrived while starting."""


class Platform:
    """The embedded platform of one data directory."""

    def __init__(self, data: Path, address: ListenAddress) -> None:
        self.data = data
        self.address = address
        self.site = address.url  # where people open it
        self.record = Pidfile(data)
        self.children: list[ChildProcess] = []
        self._standing: list[dict[str, Any]] = []  # notes of what is open from the start on
        self.ending = threading.Event()
        self._me = PlatformProcess.from_pid("fermi", os.getpid())
        self._env = build_environment(
            FERMI_DATA=str(data),
            FERMI_URL=address.url,
            FERMI_ALLOWED_HOSTS=",".join(
                [*filter(None, [os.environ.get("FERMI_ALLOWED_HOSTS")]), *address.allowed_hosts()]
            ),
        )
        self._asked_at = 0.0
        self._impatient = False
        self._broker = not os.environ.get("REDIS_URL")
        self._webs: web_processes.ProcessCount
        self._socket: socket.socket

    def run(self) -> int:
        """Serve until SIGINT, SIGTERM or, without nohup, SIGHUP; return the exit code. Raise StartupError before
        anything is started."""
        began = time.monotonic()
        refuse_tracers()
        checks.check_environment()
        checks.prepare_data_dir(self.data)
        self.record.acquire()
        if left := self.record.stop_leftovers():
            console.print_line(f"ended what a killed platform had left running: {', '.join(left)}")
        self._webs = web_processes.ProcessCount(env.read_setting("FERMI_WEB"))
        self._socket = web_processes.open_socket(self.address)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                signal.signal(number, self._on_signal)
        try:
            self._start(began)
            self._serve()
            console.print_line("stopping")
        except ChildStartError as failure:
            console.print_line(str(failure), fault=True)
            return 1
        except StartInterruptedError:
            pass
        finally:
            self._stop()
        console.print_line(running_tasks.describe_running(self.data))
        return 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Request the end; a second signal kills. Pressing Ctrl-C once may deliver two signals, from the terminal and
        from make, so one that follows within SECOND_SIGNAL_SECONDS does not count."""
        if not self.ending.is_set():
            self._asked_at = time.monotonic()
        elif time.monotonic() - self._asked_at > SECOND_SIGNAL_SECONDS:
            self._impatient = True
        self.ending.set()

    # Starting ---------------------------------------------------------------------------------------------------------

    def _start(self, began: float) -> None:
        if self._broker:
            broker.set_password(self.record.dir)
            child = self._child("broker", broker.build_command(self.record.dir))
            self._until(child, lambda: broker.is_answering(self.record.dir))
        self._migrate()
        web = self._web(1)
        first = self._run("firststart")
        self._standing = first["notes"]
        self._until(web, self._answers)
        self._announce(first, time.monotonic() - began)
        celery = [sys.executable, "-m", "celery", "--quiet", "-A", "server.celery"]
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        self._child("worker", [*celery, "worker", "--pool", "threads", *quiet], is_asked=True)
        self._child("beat", [sys.executable, "-m", "server.beat"])
        self._child("watch", [sys.executable, "manage.py", "watch"])
        for number in range(2, self._webs.at_once + 1):
            self._web(number)
        for child in self.children:
            child.keep_running()

    def _serve(self) -> None:
        supervision = ProcessSupervision(self._me.pid, paths.get_notes_path(self.record.dir), self._standing)
        while not self.ending.wait(CHECK_INTERVAL_SECONDS):
            supervision.check_children(self.children)
            serving = [child for child in self.children if child.inherits]
            there = [child.process.pid for child in serving if child.process and child.alive()]
            if self._webs.compute_target(
                time.monotonic(), {pid: web_processes.read_cpu_seconds(pid) for pid in there}
            ) > len(serving):
                console.print_line(f"starting web process {len(serving) + 1}: {len(serving)} cannot keep up")
                self._web(len(serving) + 1).keep_running()

    def _announce(self, first: dict[str, Any], seconds: float) -> None:
        self.record.publish(self.address.url)
        console.print_line(f"serving {self.site} (ready in {seconds:.1f} s; Ctrl-C stops the platform)")
        console.print_line(f"sign in, once: {self.site}{first['signInLink']}")
        console.print_line(f"the administrator's API token: {first['token_path']}")
        console.print_line(first["isolation"], fault=bool(first["exposed"]))
        if not self.address.loopback:
            console.print_line(
                "Other machines can reach this address, and nothing encrypts what they send: "
                "put a TLS proxy in front of it, or leave HOST out.",
                fault=True,
            )

    def _migrate(self) -> None:
        if schema.needs_migration(self.data):
            console.print_line("preparing the database")
            self._run("migrate", "--no-input", "--verbosity", "0")
            schema.record_migrated(self.data)

    def _web(self, number: int) -> ChildProcess:
        """Start a web process. They share the listening socket; each has its own metrics port, in ascending order."""
        name = "web" if number == 1 else f"web-{number}"
        shared = [self._socket.fileno()]
        more = web_processes.build_metrics_variables(number)
        return self._child(name, web_processes.build_command(self._socket), inherits=shared, more=more, is_asked=True)

    def _child(
        self,
        name: str,
        command: list[str | Path],
        is_shown: Callable[[str], bool] = console.accept_all,
        inherits: Sequence[int] = (),
        more: Mapping[str, str] | None = None,
        *,
        is_asked: bool = False,
    ) -> ChildProcess:
        if self.ending.is_set():
            raise StartInterruptedError
        child = ChildProcess(name, command, {**self._env, **(more or {})}, is_shown, inherits, is_asked=is_asked)
        child.on_change = self._write_record
        self.children.append(child)
        child.start()
        return child

    def _write_record(self) -> None:
        try:
            self.record.write([self._me, *(child.process for child in self.children if child.process)])
        except OSError as error:  # a full disk is no reason to end what runs
            console.print_line(f"{self.record.dir} cannot be written to: {error.strerror}", fault=True)

    def _until(self, child: ChildProcess, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not ready():
            if self.ending.wait(POLL_SECONDS):
                raise StartInterruptedError
            if (code := child.poll()) is not None:
                raise ChildStartError(
                    f"{child.name} {describe_exit(code)} while starting; what it said is above or in {self.record.dir}."
                )
            if time.monotonic() > deadline:
                raise ChildStartError(f"{child.name} did not answer within {START_TIMEOUT_SECONDS} s.")

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(self.address.probe, self.address.port, timeout=5)
        try:
            connection.request("GET", "/readyz", headers={"Host": f"localhost:{self.address.port}"})
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _run(self, *arguments: str) -> dict[str, Any]:
        """Run a management command to its end and return the JSON object that it prints, if any; show its other output.
        It is a child like the others, so that Ctrl-C ends it too."""
        answers: list[str] = []

        def keep_answer(line: str) -> bool:
            if line.startswith("{"):
                answers.append(line)
            return not line.startswith("{")

        child = self._child("fermi", [sys.executable, "manage.py", *arguments], keep_answer)
        while (code := child.poll()) is None:
            if self.ending.wait(POLL_SECONDS):
                raise StartInterruptedError
        self.children.remove(child)
        child.drain()
        if code:
            raise ChildStartError(f"`manage.py {arguments[0]}` {describe_exit(code)}; what it said is above.")
        return json.loads(answers[-1]) if answers else {}

    # Ending -----------------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        self.ending.set()
        self._socket.close()
        self.record.withdraw()
        brokers = [child for child in self.children if child.name == "broker"]
        for stage in ([child for child in self.children if child not in brokers], brokers):
            for child in stage:
                child.stop()
            deadline = time.monotonic() + GRACE_SECONDS
            while any(child.alive() for child in stage) and time.monotonic() < deadline and not self._impatient:
                time.sleep(POLL_SECONDS)
            for child in stage:
                child.kill()
                child.drain()
