"""Hosts with a network of their own: each a worker agent in a network namespace (`tests.netlab`), which reaches the
platform past that network, as over a host's second interface."""

import asyncio
import ctypes
import json
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

from tests.agents import Host
from tests.netlab import Lab
from tests.platform_process import Running

CLONE_NEWNET = 0x40000000
PORT = 8000


class Site:
    """`workspace`: what all of them share, with the scripts."""

    def __init__(self, platform: Running, folder: Path, workspace: Path, name: str, nodes: int) -> None:
        self.platform, self.folder, self.workspace, self.name = platform, folder, workspace, name
        self.lab = Lab(nodes)
        self.hosts: list[Host] = []
        self.relay = Relay(platform.port)

    def __enter__(self) -> "Site":
        self.lab.__enter__()
        try:
            made = self.platform.api.post("/workers/join-tokens", json={"name": self.name})
            token = made.raise_for_status().json()["data"]["token"]
            for number in self.lab.nodes:
                space = self.lab.space(number)
                self.relay.listen(space)
                name = f"{self.name}-{'abcd'[number]}"
                host = Inside(self.platform, self.folder / str(number), name, 1, token)
                host.prepare(space, self.lab.address(number), self.workspace)
                self.hosts.append(host)
                host.start()
            for host in self.hosts:
                host.wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            with suppress(Exception):
                host.close()
        self.relay.close()
        self.lab.__exit__()

    def lose(self, number: int) -> None:
        """The host loses its power: the agent and its ranks are gone at once, and nobody hears of it."""
        host = self.hosts[number]
        host.kill_agent()
        host.kill_runs()


class Inside(Host):
    def prepare(self, space: str, address: str, workspace: Path) -> None:
        self.space = space
        settings = self.config.read_text().replace(self.platform.url, f"http://127.0.0.1:{PORT}")
        settings = settings.replace(json.dumps(str(self.workspace)), json.dumps(str(workspace)))
        self.config.write_text(f'{settings}address = "{address}"\n')

    def start(self) -> None:
        self.launch("ip", "netns", "exec", self.space)


class Relay:
    """Carries connections from a port of each namespace to the platform's on this machine."""

    def __init__(self, port: int) -> None:
        self.port, self.loop = port, asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def listen(self, space: str) -> None:
        found: list[socket.socket] = []
        inside = threading.Thread(target=lambda: found.append(_listen_in(space)))  # it stays in that namespace
        inside.start()
        inside.join()
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self._carry, sock=found[0]), self.loop).result(10)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.close()
            return
        with suppress(asyncio.CancelledError):  # the relay is being closed
            await asyncio.gather(_pump(reader, other_writer), _pump(other_reader, writer))

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    async def _cancel(self) -> None:
        going_on = asyncio.all_tasks() - {asyncio.current_task()}
        for one in going_on:
            one.cancel()
        await asyncio.gather(*going_on, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with suppress(OSError):
        writer.close()


def _listen_in(space: str) -> socket.socket:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(f"/var/run/netns/{space}", os.O_RDONLY)
    try:
        if libc.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    finally:
        os.close(descriptor)
    return socket.create_server(("127.0.0.1", PORT))
