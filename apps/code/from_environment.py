"""Takes a snapshot of a folder in a running environment, through its environment daemon (envd), which sends only what
the project does not have yet.

An environment gives its files to its own project only, as the proxy does. A project that it is shared with may use its
GPUs, not its files.
"""

import io
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, cast

from apps.accounts.models import Project, User
from apps.clusters.models import DevEnvironment, EnvironmentStatus
from apps.code import store, uploads
from apps.code.errors import FetchError
from apps.code.models import Snapshot
from apps.common.bounds import get_max_manifest_bytes
from apps.common.errors import ApiError
from apps.environments import connection
from apps.environments.models import Hosted
from fermi.envd import protocol
from fermi.jobs import snapshot
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Problem

TIMEOUT_SECONDS = 300
"""Timeout of the whole transfer."""
MAX_SILENCE_SECONDS = 60.0
"""Timeout while the environment sends nothing."""
EXIT_CHANGED = 3
"""Exit code of `fermi.runner.snapshot_upload` if a file changed while it was read."""


def check_environment(project: Project, environment: DevEnvironment, field: str) -> list[Problem]:
    """Return what is wrong with the environment, without asking its daemon."""
    params = {"environment": environment.name}
    if environment.project_id != project.pk:
        return [Problem(field, "CODE_ENVIRONMENT_SHARED", params)]
    if not Hosted.objects.filter(pk=environment.pk).exists():
        return [Problem(field, "CODE_ENVIRONMENT_UNREACHABLE", params)]
    if environment.status != EnvironmentStatus.RUNNING:
        return [Problem(field, "CODE_ENVIRONMENT_STOPPED", {**params, "status": environment.status})]
    return []


@dataclass(frozen=True, slots=True)
class _RemoteFolder:
    """A folder as the environment described it; `reader` yields the contents that are requested over `stream`."""

    environment: DevEnvironment
    origin: Mapping[str, Any]
    manifest: bytes
    patch: str
    stream: socket.socket
    reader: IO[bytes]
    output: "_CommandOutput"


def create_snapshot(user: User, project: Project, source: Mapping[str, Any]) -> Snapshot:
    """Take a snapshot of the folder. Raises FetchError and ApiError."""
    with _open_folder(project, source, TIMEOUT_SECONDS) as folder:
        files = uploads.parse_manifest(folder.manifest)
        store.write_manifest(folder.manifest)
        row = uploads.start_snapshot(user, project, snapshot.compute_snapshot_id(folder.manifest), files)
        wanted = uploads.find_missing_blobs(project, files)
        _request_contents(folder.stream, wanted)
        try:
            uploads.store_blobs(project, wanted, folder.reader)
        except ApiError as error:
            raise _make_changed_error(folder.environment) from error
        if folder.output.code == EXIT_CHANGED:
            raise _make_changed_error(folder.environment)
        if uploads.find_missing_blobs(project, files):
            raise protocol.ProtocolError(f"it ended with {folder.output.code}: {folder.output.said}")
    name, path = folder.environment.name, source["path"]
    origin = {**folder.origin, "kind": "environment", "environment": name, "path": path}
    return uploads.complete_snapshot(user, row, origin, folder.patch)


def read_snapshot_id(project: Project, source: Mapping[str, Any], seconds: float) -> str:
    """Return the id that a snapshot of the folder would have now; stores nothing. `seconds` is the timeout. Raises
    FetchError."""
    with _open_folder(project, source, seconds) as folder:
        return snapshot.compute_snapshot_id(folder.manifest)


@contextmanager
def _open_folder(project: Project, source: Mapping[str, Any], seconds: float) -> Iterator[_RemoteFolder]:
    environment = DevEnvironment.objects.select_related("cluster").filter(pk=source["environment"]).first()
    if environment is None:
        raise FetchError("CODE_ENVIRONMENT_STOPPED", environment=source["name"], status=EnvironmentStatus.DELETED)
    if wrong := check_environment(project, environment, "code.environment"):
        raise FetchError(wrong[0].code, **wrong[0].params)
    try:
        with connection.dial_envd(environment) as stream:
            told = _CommandOutput(stream, environment.name, seconds)
            request = {"open": "code", "path": source["path"], "limits": uploads.get_limits()}
            answer = protocol.send_request(stream, request, min(seconds, MAX_SILENCE_SECONDS))
            if not answer.get("ok"):
                raise _make_refused_error(environment, answer)
            with io.BufferedReader(told, uploads.MIB) as reader:
                head = protocol.parse_line(reader.readline(protocol.MAX_LINE_BYTES))
                if not head.get("ok"):
                    raise _make_refused_error(environment, head)
                _check_head(head)
                manifest = reader.read(head["manifest"])
                patch = reader.read(min(head["patch"], uploads.MAX_PATCH_LENGTH)).decode(errors="replace")
                yield _RemoteFolder(environment, head["origin"], manifest, patch, stream, cast(IO[bytes], reader), told)
    except BackendError as error:
        raise FetchError(error.code, retry=not error.permanent, **error.params) from error
    except (OSError, protocol.ProtocolError) as error:
        why = f"{type(error).__name__}: {error}"
        raise FetchError("CODE_ENVIRONMENT_BROKE", retry=True, environment=environment.name, why=why) from error


def _request_contents(stream: socket.socket, digests: Mapping[str, int]) -> None:
    words = "".join(f"{one}\n" for one in digests).encode()
    for at in range(0, len(words), protocol.MAX_FRAME_BYTES):
        stream.sendall(protocol.encode_frame(protocol.IN, words[at : at + protocol.MAX_FRAME_BYTES]))
    stream.sendall(protocol.encode_control({"end": True}))


def _make_changed_error(environment: DevEnvironment) -> FetchError:
    return FetchError("CODE_ENVIRONMENT_CHANGED", retry=True, environment=environment.name)


def _make_refused_error(environment: DevEnvironment, answer: Mapping[str, Any]) -> FetchError:
    """Return the error of a refusal; a daemon of an earlier release does not know the request. Raises WireError if the
    answer is no refusal."""
    code, params = answer.get("code"), answer.get("params", {})
    if not isinstance(code, str) or not isinstance(params, dict) or params.keys() & {"self", "code", "retry"}:
        raise protocol.ProtocolError("no such refusal")
    params = {"environment": environment.name, **params}
    return FetchError("CODE_ENVIRONMENT_OLD" if code == "KEEPER_REQUEST_INVALID" else code, **params)


def _check_head(head: Mapping[str, Any]) -> None:
    """Raise WireError unless `head` is what `fermi.runner.snapshot_upload` sends before a manifest."""
    sizes = [head.get("manifest"), head.get("patch")]
    if not all(isinstance(size, int) and size >= 0 for size in sizes) or not isinstance(head.get("origin"), dict):
        raise protocol.ProtocolError("not the sizes of a manifest and a patch")
    if head["manifest"] > get_max_manifest_bytes():
        raise protocol.ProtocolError("too long a manifest")


class _CommandOutput(io.RawIOBase):
    """Output of the command in the environment. `code`: its exit code; `said`: the end of its stderr."""

    def __init__(self, stream: socket.socket, environment: str, seconds: float) -> None:
        self._stream, self._environment, self._seconds = stream, environment, seconds
        self._frames, self._rest = protocol.FrameDecoder(), bytearray()
        self._limit = time.monotonic() + seconds
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
        left = self._limit - time.monotonic()
        if left <= 0:
            raise self._slow()
        self._stream.settimeout(min(left, MAX_SILENCE_SECONDS))
        try:
            data = self._stream.recv(1 << 18)
        except TimeoutError:
            if left > MAX_SILENCE_SECONDS:
                raise
            raise self._slow() from None
        if not data:
            raise protocol.ProtocolError("the environment hung up")
        for channel, payload in self._frames.feed(data):
            if channel == protocol.OUT:
                self._rest += payload
            elif channel == protocol.ERR:
                self.said = (self.said + payload.decode(errors="replace"))[-500:]
            elif channel == protocol.CONTROL:
                with suppress(ValueError, KeyError, TypeError, OverflowError):
                    self.code = int(protocol.parse_line(payload)["exit"])

    def _slow(self) -> FetchError:
        return FetchError("CODE_ENVIRONMENT_SLOW", environment=self._environment, seconds=round(self._seconds))
