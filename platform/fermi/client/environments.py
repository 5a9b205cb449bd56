"""Dev environments: their templates, lifecycle, logs, packages, telemetry, and channels into them."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import MAX_OUTAGE_SECONDS, Transport, build_telemetry_params
from fermi.client.types import (
    DoorTicket,
    EnvironmentDetail,
    EnvironmentItem,
    EnvironmentLife,
    EnvironmentMakeRequest,
    EnvironmentMemory,
    EnvironmentRegisterRequest,
    EnvironmentResizeRequest,
    EnvironmentSummary,
    EnvironmentTemplate,
    EnvironmentTemplateCreateRequest,
    MachineTelemetry,
    PackageInstallation,
    PackageInstallations,
    PackagesCompared,
    PatchedEnvironmentChangeRequest,
    PatchedEnvironmentTemplateChangeRequest,
    Timeline,
)

if TYPE_CHECKING:
    from fermi.client.transport import ChannelAddress

LASTING_STATES = {"running": ("running",), "stopped": ("stopped", "failed"), "deleted": ("deleted",)}
"""States that last, by desired state (of an environment that failed and is to stay stopped: failed, too)."""

SCAN_TIMEOUT_SECONDS = 60.0
"""How long, in seconds, a scan of environments' packages or memory is waited for."""


class EnvironmentTemplates:
    """Templates that environments are created from: the operators' catalogue, and those of projects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, project: str | None = None, search: str | None = None) -> Listing[EnvironmentTemplate]:
        return Listing(self._transport, "/environment-templates", {"project": project, "search": search})

    def get(self, template_id: str) -> EnvironmentTemplate:
        return self._transport.call("GET", f"/environment-templates/{quote(template_id, safe='')}")

    def create(self, request: EnvironmentTemplateCreateRequest) -> EnvironmentTemplate:
        """Create a template. Without a `projectId` it is visible in all projects, which needs an administrator."""
        return self._transport.call("POST", "/environment-templates", json=request)

    def update(self, template_id: str, changes: PatchedEnvironmentTemplateChangeRequest) -> EnvironmentTemplate:
        return self._transport.call("PATCH", f"/environment-templates/{quote(template_id, safe='')}", json=changes)

    def delete(self, template_id: str) -> None:
        """Delete a template. Environments created from it stay as they are."""
        self._transport.call("DELETE", f"/environment-templates/{quote(template_id, safe='')}")


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """Result of a command that has ended; `exit_code` of one that was killed is 128 + signal."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Environments:
    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(
        self,
        *,
        zone: str | Sequence[str] | None = None,
        status: str | Sequence[str] | None = None,
        gpu_type: str | Sequence[str] | None = None,
        kind: str | Sequence[str] | None = None,
        min_gpus: int | None = None,
        search: str | None = None,
        ordering: str | None = None,
    ) -> Listing[EnvironmentItem]:
        """Return environments. Several zones, statuses, … mean any of them; `ordering` is a column such as `gpuCount`,
        or `-gpuCount`."""
        filters = {
            "zone": zone,
            "status": status,
            "gpuType": gpu_type,
            "kind": kind,
            "minGpus": min_gpus,
            "search": search,
            "ordering": ordering,
        }
        return Listing(self._transport, "/dev-environments", filters)

    def get(self, environment_id: str) -> EnvironmentDetail:
        return self._transport.call("GET", _path(environment_id))

    def create(self, request: EnvironmentRegisterRequest) -> EnvironmentDetail:
        """Register an existing machine as an environment. Needs a maintainer."""
        return self._transport.call("POST", "/dev-environments", json=request)

    def make(self, request: EnvironmentMakeRequest, *, idempotency_key: str | None = None) -> EnvironmentDetail:
        """Create an environment from a template: `{"templateId", "name", "projectId", …}` and what differs from the
        template. A request without an answer is repeated under one idempotency key, so that one environment is created.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._transport.call("POST", "/dev-environments/make", json=request, headers=headers, repeatable=True)

    def start(self, environment_id: str) -> EnvironmentDetail:
        """Request the environment's start and return it without waiting."""
        return self._steer(environment_id, "start")

    def stop(self, environment_id: str) -> EnvironmentDetail:
        """Request the environment's stop and return it without waiting; its disk is kept."""
        return self._steer(environment_id, "stop")

    def restart(self, environment_id: str) -> EnvironmentDetail:
        """Request a restart and return the environment without waiting."""
        return self._transport.call("POST", _path(environment_id, "/restart"))

    def keep(self, environment_id: str, hours: float) -> EnvironmentDetail:
        """Do not stop the environment for being idle in the next `hours` hours."""
        return self._transport.call("POST", _path(environment_id, "/keep"), json={"hours": hours}, repeatable=True)

    def resize(self, environment_id: str, sizes: EnvironmentResizeRequest) -> EnvironmentDetail:
        """Change `gpuCount`, `cpuCores`, `memoryGb`, `sharedMemoryGb` or `diskGb`; takes effect at the next start."""
        return self._transport.call("POST", _path(environment_id, "/resize"), json=sizes, repeatable=True)

    def clone(self, environment_id: str, name: str) -> EnvironmentDetail:
        return self._transport.call("POST", _path(environment_id, "/clone"), json={"name": name})

    def update(self, environment_id: str, changes: PatchedEnvironmentChangeRequest) -> EnvironmentDetail:
        return self._transport.call("PATCH", _path(environment_id), json=changes)

    def delete(self, environment_id: str) -> EnvironmentDetail | None:
        """Delete an environment. One that the platform created is removed with its disk, which takes a while, and is
        returned as it is now; None for a registered one."""
        return self._transport.call("DELETE", _path(environment_id))

    def life(self, environment_id: str) -> EnvironmentLife:
        """Return the environment's events and runs."""
        return self._transport.call("GET", _path(environment_id, "/life"))

    def logs(self, environment_id: str, *, follow: bool = False, cursor: int = 0) -> Iterator[str]:
        """Yield what its processes printed, piece by piece; with `follow` also what they print later, until interrupted
        or until the environment is deleted."""
        path, wait = _path(environment_id, "/logs"), 0.5
        while True:
            page = self._transport.call(
                "GET", path, params={"cursor": cursor}, patience=MAX_OUTAGE_SECONDS if follow else 0
            )
            if page["text"]:
                yield page["text"]
            wait = 0.5 if page["text"] else min(wait * 1.3, 2.0)
            cursor = page["cursor"]
            if page["end"]:
                if not follow:
                    return
                time.sleep(wait)

    def door(self, environment_id: str, *, door: str | None = None, path: str | None = None) -> DoorTicket:
        """Return `{"url", "expiresAt"}`: a proxy address that admits one browser, once and for a short time. `door`:
        the name of a declared port."""
        given = {"door": door, "path": path}
        body = {name: value for name, value in given.items() if value is not None}
        return self._transport.call("POST", _path(environment_id, "/doors"), json=body, repeatable=True)

    def wait(
        self,
        environment_id: str,
        *,
        timeout: float | None = None,
        patience: float = MAX_OUTAGE_SECONDS,
        seen: Callable[[EnvironmentDetail], None] | None = None,
    ) -> EnvironmentDetail:
        """Wait until the environment's state is one that lasts (running, stopped, failed, deleted) and return it.
        `seen` is called with each poll's result. Raise TimeoutError after `timeout` seconds."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause = 0.2
        while True:
            found = self._transport.call("GET", _path(environment_id), patience=patience)
            if seen:
                seen(found)
            hosted = found.get("hosted")
            if hosted is None or hosted["state"] in LASTING_STATES.get(hosted["wanted"], ()):
                return found
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{environment_id} is still {hosted['state']}")
            time.sleep(min(pause, left))
            pause = min(pause * 1.4, 1.5)

    def run(
        self,
        environment_id: str,
        command: Sequence[str],
        *,
        stdin: bytes = b"",
        cwd: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CompletedCommand:
        """Run a command in the environment, wait for its end and return the result."""
        return run_command(self.channel(environment_id), command, stdin=stdin, cwd=cwd, env=env)

    def channel(self, environment_id: str) -> "ChannelAddress":
        """Return the environment's channel address, for `fermi.client.channels`."""
        return self._transport.channel_address(_path(environment_id, "/channel"))

    def summary(self, environment_ids: Sequence[str], master: str | None = None) -> EnvironmentSummary:
        """Return the resources of these environments in all, and warnings about using them together."""
        body: dict[str, Any] = {"environmentIds": [*environment_ids]}
        if master is not None:
            body["masterNode"] = master
        return self._transport.call("POST", "/dev-environments/summary", json=body, repeatable=True)

    def packages(
        self,
        environment_ids: Sequence[str],
        *,
        python: str = "",
        anew: bool = False,
        timeout: float = SCAN_TIMEOUT_SECONDS,
    ) -> PackagesCompared:
        """Return where these environments differ in Python, torch, CUDA, NCCL and packages, once all have been scanned;
        after `timeout` seconds as much as is known. `python`: an interpreter's path or a kernel's name, instead of what
        their notebooks run. `anew`: scan again even where a result is known."""
        ids, deadline, pause = ",".join(environment_ids), time.monotonic() + timeout, 0.2
        while True:
            params = {"ids": ids, "python": python, "anew": "true" if anew else None}
            found = self._transport.call("GET", "/dev-environments/packages", params=params)
            if not found["looking"] or time.monotonic() > deadline:
                return found
            anew = False
            time.sleep(pause)
            pause = min(pause * 1.4, 2.0)

    def memory(self, environment_id: str, *, timeout: float = SCAN_TIMEOUT_SECONDS) -> EnvironmentMemory:
        """Return which processes hold memory there and how much GPU memory is free, once it has been scanned; after
        `timeout` seconds the last known result."""
        deadline, pause = time.monotonic() + timeout, 0.2
        while True:
            found = self._transport.call("GET", f"/dev-environments/{environment_id}/memory")
            if not found["looking"] or time.monotonic() > deadline:
                return found
            time.sleep(pause)
            pause = min(pause * 1.4, 2.0)

    def end_kernel(self, environment_id: str, kernel: str) -> None:
        """End a Jupyter kernel of the caller's own environment; what it holds in memory is lost."""
        self._transport.call("POST", f"/dev-environments/{environment_id}/kernels/{kernel}/end")

    def ask_owner(self, environment_id: str) -> None:
        """Notify the environment's owner that the caller would like to train there."""
        self._transport.call("POST", f"/dev-environments/{environment_id}/ask-owner", repeatable=True)

    def level(
        self,
        environment_ids: Sequence[str],
        packages: Sequence[str],
        *,
        python: str = "",
        seen: Callable[[PackageInstallation], None] | None = None,
    ) -> PackageInstallations:
        """Install packages (`einops==0.8.0`) into each of the environments and return the result once all have ended.
        `seen` is called with each installation whose state has changed."""
        body = {"ids": [*environment_ids], "packages": [*packages], "python": python}
        found = self._transport.call("POST", "/dev-environments/packages/level", json=body)
        path, states, pause = f"/dev-environments/packages/level/{quote(found['id'], safe='')}", dict[str, str](), 0.2
        while True:
            for one in found["items"]:
                if seen and states.get(one["environmentId"]) != one["state"]:
                    seen(one)
                states[one["environmentId"]] = one["state"]
            if found["over"]:
                return found
            time.sleep(pause)
            pause = min(pause * 1.4, 2.0)
            found = self._transport.call("GET", path, patience=MAX_OUTAGE_SECONDS)

    def timeline(self, *, begins: str | None = None, ends: str | None = None, project: str | None = None) -> Timeline:
        """Return who used each environment, who uses it until when, who gets it next, and when it is reserved or in
        maintenance. Times are ISO 8601; by default from a day ago on, for two days."""
        params = {"from": begins, "to": ends, "project": project}
        return self._transport.call("GET", "/environments/timeline", params=params)

    def telemetry(
        self,
        environment_id: str,
        *,
        metrics: Sequence[str] = (),
        begins: str | None = None,
        ends: str | None = None,
        points: int | None = None,
    ) -> MachineTelemetry:
        """Return what the machine and its GPUs used, as series on one time grid, and which tasks ran there; of the last
        hour unless `begins` or `ends` (ISO 8601) say otherwise."""
        params = build_telemetry_params(metrics, begins, ends, points)
        return self._transport.call("GET", _path(environment_id, "/telemetry"), params=params)

    def _steer(self, environment_id: str, action: str) -> EnvironmentDetail:
        return self._transport.call("POST", _path(environment_id, f"/{action}"), repeatable=True)


def run_command(
    address: "ChannelAddress",
    words: Sequence[str],
    *,
    stdin: bytes = b"",
    cwd: str = "",
    env: Mapping[str, str] | None = None,
) -> CompletedCommand:
    """Run a command over a channel and return its result. Raise FermiError where the channel breaks. Runs in a thread
    of its own, so it may be called from a notebook."""
    from fermi.client import channels
    from fermi.envd import protocol

    async def once() -> CompletedCommand:
        parts: dict[int, list[bytes]] = {protocol.OUT: [], protocol.ERR: []}
        async with await channels.command(address, words, cwd=cwd, env=env) as running:

            async def feed() -> None:
                await running.write(stdin)
                await running.close_stdin()

            feeding = asyncio.create_task(feed())
            try:
                async for channel, data in running.output():
                    parts[channel].append(data)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            assert running.exit_code is not None
            return CompletedCommand(running.exit_code, b"".join(parts[protocol.OUT]), b"".join(parts[protocol.ERR]))

    return _run_in_thread(once)


def _run_in_thread(work: Callable[[], Any]) -> Any:
    """Return what the coroutine returns, run by an event loop in a thread of its own: a notebook's thread has a running
    loop already."""
    made: list[Any] = []

    def whole() -> None:
        try:
            made.append((asyncio.run(work()), None))
        except BaseException as error:
            made.append((None, error))

    thread = threading.Thread(target=whole, name="fermi-run", daemon=True)
    thread.start()
    thread.join()
    value, error = made[0]
    if error is not None:
        raise error
    return value


def _path(environment_id: str, rest: str = "") -> str:
    return f"/dev-environments/{quote(environment_id, safe='')}{rest}"
