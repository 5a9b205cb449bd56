"""Stands for envd: it speaks `fermi.envd.protocol` on a Unix socket, and what it opens is real: TCP connections
to a service, and processes."""

import os
import pty
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fermi.envd import protocol


class FakeEnvd:
    """`doors`: name -> port on loopback. `away`: nobody listens."""

    def __init__(self, path: Path, doors: Mapping[str, int]) -> None:
        self.path, self.doors = path, dict(doors)
        self.asked: list[dict[str, Any]] = []
        self.open: set[socket.socket] = set()
        self.away = False
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        threading.Thread(target=self._serve, daemon=True).start()

    def dial(self) -> socket.socket:
        if self.away:
            raise ConnectionRefusedError("away")
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(str(self.path))
        return sock

    def drop_all(self) -> None:
        """As if it were killed."""
        for sock in list(self.open):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.drop_all()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                threading.Thread(target=self._one, args=(sock,), daemon=True).start()

    def _one(self, sock: socket.socket) -> None:
        self.open.add(sock)
        try:
            said = bytearray()
            while not said.endswith(b"\n"):
                byte = sock.recv(1)
                if not byte:
                    return
                said += byte
            asked = protocol.parse_line(bytes(said))
            self.asked.append(asked)
            if asked["open"] == "port":
                self._port(sock, self.doors.get(asked.get("door", ""), asked.get("port", 0)))
            elif asked["open"] == "exec":
                self._exec(sock, asked)
        except OSError:
            pass
        finally:
            self.open.discard(sock)
            sock.close()

    def _port(self, sock: socket.socket, port: int) -> None:
        try:
            inner = socket.create_connection(("127.0.0.1", port))
        except OSError:
            sock.sendall(protocol.encode_line({"ok": False, "code": "PORT_CLOSED", "params": {"port": port}}))
            return
        with inner:
            sock.sendall(protocol.encode_line({"ok": True}))
            back = threading.Thread(target=_splice, args=(inner, sock), daemon=True)
            back.start()
            _splice(sock, inner)
            back.join()

    def _exec(self, sock: socket.socket, asked: dict[str, Any]) -> None:
        command = asked["command"] or [shutil.which("sh"), "-i"]
        env, cwd = {**os.environ, **asked["env"]}, asked["cwd"] or None
        if asked["tty"]:
            ours, theirs = pty.openpty()
            process = subprocess.Popen(
                command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=cwd, start_new_session=True
            )
            os.close(theirs)
            out, into, err = ours, ours, None
        else:
            process = subprocess.Popen(
                command, stdin=-1, stdout=-1, stderr=-1, env=env, cwd=cwd, start_new_session=True
            )
            assert process.stdin
            assert process.stdout
            assert process.stderr
            out, into, err = process.stdout.fileno(), process.stdin.fileno(), process.stderr.fileno()
        sock.sendall(protocol.encode_line({"ok": True}))
        reading = [threading.Thread(target=_frames, args=(out, sock, protocol.OUT))]
        if err is not None:
            reading.append(threading.Thread(target=_frames, args=(err, sock, protocol.ERR)))
        for thread in reading:
            thread.start()
        threading.Thread(target=self._said, args=(sock, process, into), daemon=True).start()
        code = process.wait()
        for thread in reading:
            thread.join()
        sock.sendall(protocol.encode_control({"exit": code if code >= 0 else 128 - code}))

    @staticmethod
    def _said(sock: socket.socket, process: "subprocess.Popen[bytes]", into: int) -> None:
        frames = protocol.FrameDecoder()
        with suppress(OSError):
            while data := sock.recv(65536):
                for channel, payload in frames.feed(data):
                    if channel == protocol.IN:
                        os.write(into, payload)
                    elif protocol.parse_line(payload).get("end") and process.stdin:
                        process.stdin.close()
        with suppress(OSError):
            process.kill()


def _splice(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(1 << 18):
            other.sendall(data)
    with suppress(OSError):
        other.shutdown(socket.SHUT_WR)


def _frames(descriptor: int, sock: socket.socket, channel: int) -> None:
    with suppress(OSError):
        while data := os.read(descriptor, 65536):
            sock.sendall(protocol.encode_frame(channel, data))
