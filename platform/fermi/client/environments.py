"""Dev environments: where training runs; what they are made from, their life, and the ways in."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fermi.client.pagination import Listing
from fermi.client.transport import Transport, build_telemetry_params
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
    from fermi.client.channels import ChannelAddress

ENDS = {"running": ("running",), "stopped": ("stopped", "failed"), "deleted": ("deleted",)}
"""By what is wanted of it (of one that failed that is to stay stopped): the states that last."""

PATIENCE_S = 300.0
LOOK_S = 60.0
"""How long a look at environments' packages is waited for."""


class EnvironmentTemplates:
    """What environments are made from: the operators' catalogue, and those of projects."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, project: str | None = None, search: str | None = None) -> Listing[EnvironmentTemplate]:
        return Listing(self._transport, "/environment-templates", {"project": project, "search": search})

    def get(self, template_id: str) -> EnvironmentTemplate:
        return self._transport.call("GET", f"/environment-templates/{quote(template_id, safe='')}")

    def create(self, request: EnvironmentTemplateCreateRequest) -> EnvironmentTemplate:
        """Without a `projectId` it is everybody's, which takes the administrator."""
        return self._transport.call("POST", "/environment-templates", json=request)

    def update(self, template_id: str, changes: PatchedEnvironmentTemplateChangeRequest) -> EnvironmentTemplate:
        return self._transport.call("PATCH", f"/environment-templates/{quote(template_id, safe='')}", json=changes)

    def delete(self, template_id: str) -> None:
        """What was made from it stays as it is."""
        self._transport.call("DELETE", f"/environment-templates/{quote(template_id, safe='')}")


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended; of one that was killed `exit_code` is 128 + signal."""

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
        """Several zones, statuses, … mean any of them; `ordering` is a column such as `gpuCount`, or `-gpuCount`."""
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
        """Registers a machine by hand; takes a maintainer."""
        return self._transport.call("POST", "/dev-environments", json=request)

    def make(self, request: EnvironmentMakeRequest, *, idempotency_key: str | None = None) -> EnvironmentDetail:
        """A new one from a template: `{"templateId", "name", "projectId", …}` and what is to differ from the template.
        Sent again when no answer came, under one key, so that there is one environment."""
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._transport.call("POST", "/dev-environments/make", json=request, headers=headers, repeatable=True)

    def start(self, environment_id: str) -> EnvironmentDetail:
        return self._steer(environment_id, "start")

    def stop(self, environment_id: str) -> EnvironmentDetail:
        """Asks it to stop and does not wait; its disk stays."""
        return self._steer(environment_id, "stop")

    def restart(self, environment_id: str) -> EnvironmentDetail:
        return self._transport.call("POST", _path(environment_id, "/restart"))

    def keep(self, environment_id: str, hours: float) -> EnvironmentDetail:
        """It is not stopped for being idle, for so long from now on."""
        return self._transport.call("POST", _path(environment_id, "/keep"), json={"hours": hours}, repeatable=True)

    def resize(self, environment_id: str, sizes: EnvironmentResizeRequest) -> EnvironmentDetail:
        """`gpuCount`, `cpuCores`, `memoryGb`, `sharedMemoryGb`, `diskGb`; holds from the next start."""
        return self._transport.call("POST", _path(environment_id, "/resize"), json=sizes, repeatable=True)

    def clone(self, environment_id: str, name: str) -> EnvironmentDetail:
        return self._transport.call("POST", _path(environment_id, "/clone"), json={"name": name})

    def update(self, environment_id: str, changes: PatchedEnvironmentChangeRequest) -> EnvironmentDetail:
        return self._transport.call("PATCH", _path(environment_id), json=changes)

    def delete(self, environment_id: str) -> EnvironmentDetail | None:
        """Of one that the platform made: begins to remove it, its disk and all that is on it, and gives it as it is."""
        return self._transport.call("DELETE", _path(environment_id))

    def life(self, environment_id: str) -> EnvironmentLife:
        """What happened to it, and its runs."""
        return self._transport.call("GET", _path(environment_id, "/life"))

    def logs(self, environment_id: str, *, follow: bool = False, cursor: int = 0) -> Iterator[str]:
        """What its processes printed, piece by piece; with `follow` also what they will, until interrupted or until it
        has gone."""
        path, wait = _path(environment_id, "/logs"), 0.5
        while True:
            page = self._transport.call("GET", path, params={"cursor": cursor}, patience=PATIENCE_S if follow else 0)
            if page["text"]:
                yield page["text"]
            wait = 0.5 if page["text"] else min(wait * 1.3, 2.0)
            cursor = page["cursor"]
            if page["end"]:
                if not follow:
                    return
                time.sleep(wait)

    def door(self, environment_id: str, *, door: str | None = None, path: str | None = None) -> DoorTicket:
        """`{"url", "expiresAt"}`: an address that lets one browser in, once and soon."""
        given = {"door": door, "path": path}
        body = {name: value for name, value in given.items() if value is not None}
        return self._transport.call("POST", _path(environment_id, "/doors"), json=body, repeatable=True)

    def wait(
        self,
        environment_id: str,
        *,
        timeout: float | None = None,
        patience: float = PATIENCE_S,
        seen: Callable[[EnvironmentDetail], None] | None = None,
    ) -> EnvironmentDetail:
        """The environment once its state is one that lasts: running, stopped, failed, or gone (then as it was last).
        `seen` hears of each look. TimeoutError after `timeout` seconds."""
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        pause = 0.2
        while True:
            found = self._transport.call("GET", _path(environment_id), patience=patience)
            if seen:
                seen(found)
            hosted = found.get("hosted")
            if hosted is None or hosted["state"] in ENDS.get(hosted["wanted"], ()):
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
    ) -> Completed:
        """Runs a command in it and waits for its end."""
        return run_to_end(self.channel(environment_id), command, stdin=stdin, cwd=cwd, env=env)

    def channel(self, environment_id: str) -> "ChannelAddress":
        """The way in, for `fermi.client.channels`."""
        return self._transport.channel_address(_path(environment_id, "/channel"))

    def summary(self, environment_ids: Sequence[str], master: str | None = None) -> EnvironmentSummary:
        """What these environments are together, and what is worth knowing before they are used together."""
        body: dict[str, Any] = {"environmentIds": [*environment_ids]}
        if master is not None:
            body["masterNode"] = master
        return self._transport.call("POST", "/dev-environments/summary", json=body, repeatable=True)

    def packages(
        self, environment_ids: Sequence[str], *, python: str = "", anew: bool = False, timeout: float = LOOK_S
    ) -> PackagesCompared:
        """Where they differ in Python, torch, CUDA, NCCL and packages, once all have been looked at; after `timeout`
        seconds as much as is known. `python`: an interpreter's path or a kernel's name, in place of what their
        notebooks run. `anew`: look again, however much is known."""
        ids, deadline, pause = ",".join(environment_ids), time.monotonic() + timeout, 0.2
        while True:
            params = {"ids": ids, "python": python, "anew": "true" if anew else None}
            found = self._transport.call("GET", "/dev-environments/packages", params=params)
            if not found["looking"] or time.monotonic() > deadline:
                return found
            anew = False
            time.sleep(pause)
            pause = min(pause * 1.4, 2.0)

    def memory(self, environment_id: str, *, timeout: float = LOOK_S) -> EnvironmentMemory:
        """Who holds memory there, and how much of its GPUs' is left, once it has been looked at; after `timeout`
        seconds what was known before."""
        deadline, pause = time.monotonic() + timeout, 0.2
        while True:
            found = self._transport.call("GET", f"/dev-environments/{environment_id}/memory")
            if not found["looking"] or time.monotonic() > deadline:
                return found
            time.sleep(pause)
            pause = min(pause * 1.4, 2.0)

    def end_kernel(self, environment_id: str, kernel: str) -> None:
        """Of an environment of your own; what the kernel holds in memory is lost."""
        self._transport.call("POST", f"/dev-environments/{environment_id}/kernels/{kernel}/end")

    def ask_owner(self, environment_id: str) -> None:
        """Tells its owner that you would like to train there."""
        self._transport.call("POST", f"/dev-environments/{environment_id}/ask-owner", repeatable=True)

    def level(
        self,
        environment_ids: Sequence[str],
        packages: Sequence[str],
        *,
        python: str = "",
        seen: Callable[[PackageInstallation], None] | None = None,
    ) -> PackageInstallations:
        """Installs packages (`einops==0.8.0`) into each of them, and gives the result once all have ended. `seen` hears
        of each one whose state has changed."""
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
            found = self._transport.call("GET", path, patience=PATIENCE_S)

    def timeline(self, *, begins: str | None = None, ends: str | None = None, project: str | None = None) -> Timeline:
        """Who had each environment, who has it until when, who gets it next, and when it is reserved or maintained.
        Times are ISO 8601: from a day ago on by default, and for two days."""
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
        """What its machine and GPUs used, as series on one grid, and which tasks had it; of the last hour unless
        `begins` or `ends` (ISO 8601) say otherwise."""
        params = build_telemetry_params(metrics, begins, ends, points)
        return self._transport.call("GET", _path(environment_id, "/telemetry"), params=params)

    def _steer(self, environment_id: str, action: str) -> EnvironmentDetail:
        return self._transport.call("POST", _path(environment_id, f"/{action}"), repeatable=True)


def run_to_end(
    address: "ChannelAddress",
    words: Sequence[str],
    *,
    stdin: bytes = b"",
    cwd: str = "",
    env: Mapping[str, str] | None = None,
) -> Completed:
    from fermi.client import channels
    from fermi.envd import protocol

    async def once() -> Completed:
        parts: dict[int, list[bytes]] = {protocol.OUT: [], protocol.ERR: []}
        async with await channels.command(address, words, cwd=cwd, env=env) as running:

            async def feed() -> None:
                await running.write(stdin)
                await running.end()

            feeding = asyncio.create_task(feed())
            try:
                async for channel, data in running.output():
                    parts[channel].append(data)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
            assert running.exit_code is not None
            return Completed(running.exit_code, b"".join(parts[protocol.OUT]), b"".join(parts[protocol.ERR]))

    return _in_a_loop(once)


def _in_a_loop(work: Callable[[], Any]) -> Any:
    """A notebook has a loop of its own that runs; so this one runs beside it."""
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
