"""A folder of a running environment as a snapshot of its project: its keeper is asked, and tells what is not here yet.

An environment gives its files to its own project alone, as doors do; to one that it is shared with, it gives its GPUs.
"""

import io
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.code import store, uploads
from apps.code.errors import FetchError
from apps.code.models import Snapshot
from apps.common.errors import ApiError
from apps.environments import reaching
from apps.environments.models import Hosted
from fermi.keeper import wire
from fermi.launch import snapshot
from fermi.launch.errors import BackendError
from fermi.launch.spec import Problem

SECONDS = 300
"""Of all that is asked and told."""
SILENT_SECONDS = 60.0
CHANGED = 3
LARGEST_MANIFEST = 64 << 20


def problems(project: Project, environment: DevEnvironment, field: str) -> list[Problem]:
    """What can be told without asking its keeper."""
    params = {"environment": environment.name}
    if environment.project_id != project.pk:
        return [Problem(field, "CODE_ENVIRONMENT_SHARED", params)]
    if not Hosted.objects.filter(pk=environment.pk).exists():
        return [Problem(field, "CODE_ENVIRONMENT_UNREACHABLE", params)]
    if environment.status != EnvironmentStatus.RUNNING:
        return [Problem(field, "CODE_ENVIRONMENT_STOPPED", {**params, "status": environment.status})]
    return []


def gather(user: User, project: Project, source: Mapping[str, Any]) -> Snapshot:
    """Raises FetchError and ApiError."""
    environment = DevEnvironment.objects.select_related("cluster").filter(pk=source["environment"]).first()
    if environment is None:
        raise FetchError("CODE_ENVIRONMENT_STOPPED", environment=source["name"], status=EnvironmentStatus.DELETED)
    if wrong := problems(project, environment, "code.environment"):
        raise FetchError(wrong[0].code, **wrong[0].params)
    try:
        with reaching.dial(environment) as stream:
            return _talk(stream, user, project, environment, source["path"])
    except BackendError as error:
        raise FetchError(error.code, retry=not error.permanent, **error.params) from error
    except (OSError, wire.WireError) as error:
        why = f"{type(error).__name__}: {error}"
        raise FetchError("CODE_ENVIRONMENT_BROKE", retry=True, environment=environment.name, why=why) from error


def _talk(stream: socket.socket, user: User, project: Project, environment: DevEnvironment, path: str) -> Snapshot:
    answer = wire.ask(stream, {"open": "code", "path": path, "limits": _limits()})
    if not answer.get("ok"):
        raise _refused(environment, answer)
    told = _Told(stream, environment.name)
    with io.BufferedReader(told, uploads.MB) as reader:
        head = wire.read_line(reader.readline(wire.LONGEST_LINE))
        if not head.get("ok"):
            raise FetchError(head["code"], **head["params"])
        if head["manifest"] > LARGEST_MANIFEST:
            raise wire.WireError("too long a manifest")
        manifest = reader.read(head["manifest"])
        patch = reader.read(min(head["patch"], uploads.MOST_PATCH)).decode(errors="replace")
        files = uploads.read(manifest)
        store.put_manifest(manifest)
        row = uploads.begin(user, project, snapshot.identity(manifest), files)
        wanted = uploads.missing(project, files)
        _want(stream, wanted)
        try:
            uploads.take(project, wanted, reader)
        except ApiError as error:
            raise _changed(environment) from error
        if told.code == CHANGED:
            raise _changed(environment)
        if uploads.missing(project, files):
            raise wire.WireError(f"it ended with {told.code}: {told.said}")
    origin = {**head["origin"], "kind": "environment", "environment": environment.name, "path": path}
    return uploads.complete(user, row, origin, patch)


def _want(stream: socket.socket, digests: Mapping[str, int]) -> None:
    words = "".join(f"{one}\n" for one in digests).encode()
    for at in range(0, len(words), wire.LONGEST_FRAME):
        stream.sendall(wire.frame(wire.IN, words[at : at + wire.LONGEST_FRAME]))
    stream.sendall(wire.control({"end": True}))


def _limits() -> dict[str, int]:
    return {
        "files": settings.CODE_MAX_FILES,
        "fileMb": settings.CODE_MAX_FILE_MB,
        "totalMb": settings.CODE_MAX_MB,
    }


def _changed(environment: DevEnvironment) -> FetchError:
    return FetchError("CODE_ENVIRONMENT_CHANGED", retry=True, environment=environment.name)


def _refused(environment: DevEnvironment, answer: Mapping[str, Any]) -> FetchError:
    """A keeper of an earlier release does not know what it is asked."""
    params = {"environment": environment.name, **answer.get("params", {})}
    code = str(answer.get("code"))
    return FetchError("CODE_ENVIRONMENT_OLD" if code == "KEEPER_REQUEST_INVALID" else code, **params)


class _Told(io.RawIOBase):
    """What the command in the environment writes. `code`: how it ended; `said`: what it complained of."""

    def __init__(self, stream: socket.socket, environment: str) -> None:
        self._stream, self._environment = stream, environment
        self._frames, self._rest = wire.Frames(), bytearray()
        self._limit = time.monotonic() + SECONDS
        self.code: int | None = None
        self.said = ""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        while not self._rest and self.code is None:
            self._hear()
        size = min(len(into), len(self._rest))
        into[:size] = self._rest[:size]
        del self._rest[:size]
        return size

    def _hear(self) -> None:
        if (left := self._limit - time.monotonic()) <= 0:
            raise FetchError("CODE_ENVIRONMENT_SLOW", environment=self._environment, seconds=SECONDS)
        self._stream.settimeout(min(left, SILENT_SECONDS))
        if not (data := self._stream.recv(1 << 18)):
            raise wire.WireError("the environment hung up")
        for channel, payload in self._frames.feed(data):
            if channel == wire.OUT:
                self._rest += payload
            elif channel == wire.ERR:
                self.said = (self.said + payload.decode(errors="replace"))[-500:]
            elif channel == wire.CONTROL:
                with suppress(ValueError, KeyError):
                    self.code = int(wire.read_line(payload)["exit"])
