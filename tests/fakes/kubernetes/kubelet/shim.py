"""Between the fake kubelet and a container's processes: the least of what a container runtime does. Standard library
only, Python 3.9 or later.

    python shim.py COMMAND [ARGUMENT …]
    python shim.py --control DESCRIPTOR

The second form reads the container from a Unix stream socket: `command`, `env`, `cwd`; `user` and `groups`, where it is
not to run as who we are; `rootfs`, where it has namespaces and files of its own (`rootfs.py`). Further processes of the
container are asked for over the same socket, with four descriptors: standard input, output, errors, and a socket that
is told `{"pid": …}`, or `{"errno": …}` where it cannot begin, and at the end `{"code": …}`.

SIGTERM goes to the container's first process alone; when it ends, all that is left in the container is killed: by the
kernel, which does that to a pid namespace, or by us, whose descendants they all are. SIGUSR1 kills everything, and so
does the end of the fake: it closes the socket. (The kernel would tell the end of the parent's thread, which may have
ended long before: prctl(2), PR_SET_PDEATHSIG.) Ends with the first process' exit code, 128 + n for signal n.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
PYTHON_IGNORES = (signal.SIGPIPE, signal.SIGXFSZ)
CANNOT_BUILD = 128
libc = ctypes.CDLL(None)


def main(words: list[str]) -> int:
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    if words[0] != "--control":
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
        return Container({"command": words, "env": dict(os.environ), "cwd": os.getcwd()}, None).run()
    control = socket.socket(fileno=int(words[1]))
    control.set_inheritable(False)
    plan, _ = receive(control)
    return Container(plan, control).run()


def receive(control: socket.socket) -> tuple[dict, list[int]]:
    """Raises EOFError when there is nobody any more."""
    head, descriptors, _, _ = socket.recv_fds(control, 4, 4)
    for one in descriptors:
        os.set_inheritable(one, False)
    body = b""
    size = struct.unpack("<I", head)[0] if len(head) == 4 else 0
    while len(body) < size:
        piece = control.recv(size - len(body))
        if not piece:
            break
        body += piece
    if not size or len(body) < size:
        raise EOFError
    return json.loads(body), descriptors


class Container:
    def __init__(self, plan: dict, control: socket.socket | None) -> None:
        self.plan, self.control = plan, control
        self.rootfs = plan.get("rootfs")
        self.first = 0
        self.code: int | None = None
        self.others: dict[int, socket.socket] = {}

    def run(self) -> int:
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        if self.rootfs:
            sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
            import rootfs

            try:
                rootfs.leave(self.rootfs["mapped"])
            except OSError as error:
                return complain(f"{error.filename}: {error.strerror}", CANNOT_BUILD)
        self.first, _ = self.begin(self.plan, ())
        while self.code is None:
            ready = select.select([one for one in (woken, self.control) if one is not None], [], [])[0]
            if woken in ready:
                with contextlib.suppress(BlockingIOError):
                    for number in os.read(woken, 1 << 16):
                        self.signalled(number)
            if self.control in ready:
                self.take()
            self.reap()
        return self.code if self.code >= 0 else 128 - self.code

    def signalled(self, number: int) -> None:
        to = {signal.SIGTERM: signal.SIGTERM, signal.SIGUSR1: signal.SIGKILL}.get(signal.Signals(number))
        if to:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.first, to)

    def take(self) -> None:
        """A further process."""
        try:
            request, descriptors = receive(self.control)
        except (EOFError, OSError):
            self.control = None
            self.signalled(signal.SIGUSR1)
            return
        *streams, answer = descriptors
        told = socket.socket(fileno=answer)
        try:
            pid, error = self.begin(request, streams)
        except OSError as refused:  # a pid namespace whose first process has ended gives no process
            pid, error = 0, {"errno": refused.errno}
        for one in streams:
            os.close(one)
        send_answer(told, error or {"pid": pid})
        if error:
            told.close()
        else:
            self.others[pid] = told

    def begin(self, request: dict, streams: tuple[int, ...] | list[int]) -> tuple[int, dict]:
        """Returns its pid, and why it could not become what it should."""
        look, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = CANNOT_BUILD
            try:
                os.close(look)
                code = self.become(request, streams, tell)
            finally:
                os._exit(code)
        os.close(tell)
        with os.fdopen(look, "rb") as file:
            said = file.read()
        return pid, json.loads(said) if said else {}

    def become(self, request: dict, streams: tuple[int, ...] | list[int], tell: int) -> int:
        """Returns only where that cannot be."""
        first = not streams
        signal.set_wakeup_fd(-1)
        for number in (*SIGNALS, *PYTHON_IGNORES):
            signal.signal(number, signal.SIG_DFL)
        if first:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for target, source in enumerate(streams):
            os.dup2(source, target)
        os.setsid()
        try:
            if self.rootfs:
                self.enter(first)
            if "user" in self.plan:
                os.setgroups(self.plan["groups"])
                os.setgid(self.plan["group"])
                os.setuid(self.plan["user"])
            os.chdir(request["cwd"])
        except OSError as error:
            return complain(f"{error.filename}: {error.strerror}", CANNOT_BUILD)
        command = request["command"]
        try:
            os.execvpe(command[0], command, request["env"])
        except (OSError, IndexError) as error:
            number = getattr(error, "errno", 2) or 2
            if not first:
                os.write(tell, json.dumps({"errno": number}).encode())
                return 127
            return complain(f"exec {command[0]}: {os.strerror(number)}", 127 if number == 2 else 126)

    def enter(self, first: bool) -> None:
        import rootfs

        if first:
            rootfs.build(self.rootfs, self.plan.get("user", -1), self.plan.get("group", -1))
        rootfs.drop_capabilities()

    def reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, code = ended[0], os.waitstatus_to_exitcode(ended[1])
                if told := self.others.pop(pid, None):
                    send_answer(told, {"code": code})
                    told.close()
                elif pid == self.first:
                    self.code = code
        if self.code is not None:
            self.sweep()

    def sweep(self) -> None:
        """Kills the children until there are none: orphans of theirs become ours. A pid namespace has none by now."""
        while left := [] if self.rootfs else children():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    if told := self.others.pop(ended[0], None):
                        send_answer(told, {"code": os.waitstatus_to_exitcode(ended[1])})


def children() -> list[int]:
    own = str(os.getpid()).encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[1] == own:
                    found.append(int(name))
    return found


def send_answer(told: socket.socket, answer: dict) -> None:
    with contextlib.suppress(OSError):
        told.sendall(json.dumps(answer).encode() + b"\n")


def complain(text: str, code: int) -> int:
    os.write(1, f"{text}\n".encode())
    return code


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a signal during the interpreter's own end would change the code
