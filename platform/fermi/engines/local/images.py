"""Container images: found on this host, or pulled from their registry, and what an error means."""

import re
import subprocess
import time
from collections.abc import Callable, Iterable

from fermi.engines.local.container_engines import (
    CommandResult,
    ContainerEngine,
    build_engine_env,
    is_engine_unavailable,
)
from fermi.jobs.errors import BackendError

_NAME = re.compile(r"[A-Za-z0-9][\w.\-/:@]{0,400}", re.ASCII)
POLL_SECONDS = 0.2
MAX_LINE_CHARS = 200
REPORT_SECONDS = 0.5
NO_SPACE_PHRASES = ("no space left on device", "disk quota exceeded")
NOT_FOUND_PHRASES = ("manifest unknown", "not found", "name unknown", "does not exist", "invalid reference format",
          "did not resolve to an alias", "must be lowercase", "image not known")  # fmt: skip
FORBIDDEN_PHRASES = ("unauthorized", "denied", "authentication required", "forbidden", "invalid username/password")
UNAVAILABLE_PHRASES = ("dial tcp", "timeout", "connection refused", "connection reset", "no such host",
        "unexpected eof", "toomanyrequests", "rate limit", "bad gateway", "service unavailable", "gateway timeout",
        "network is unreachable", "tls handshake")  # fmt: skip
"""Phrases of podman-pull(1), `docker pull` and registries (errors of the distribution specification), in lower case."""


def has_image(engine: ContainerEngine, image: str) -> bool:
    """Return whether the image is on this host. Raise BackendError."""
    if not _NAME.fullmatch(image):  # one that begins with a dash would be an option
        raise BackendError("IMAGE_NOT_FOUND", permanent=True, image=image, evidence="–")
    return engine.run_command("image", "inspect", "--format", "{{.Id}}", image).code == 0


def pull_image(
    engine: ContainerEngine, image: str, report_line: Callable[[str], None], is_cancelled: Callable[[], bool]
) -> bool:
    """Pull an image; return False where `is_cancelled` returned True meanwhile. `report_line`: called with the newest
    line now and then. Raise BackendError."""
    try:
        pulling = subprocess.Popen(
            [engine.program, "pull", image], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd="/", env=build_engine_env(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise BackendError("CONTAINERS_AWAY", engine=engine.name, why=str(error)) from error
    with pulling:
        assert pulling.stdout
        said = _PullOutput(report_line)
        while True:
            try:
                data, _ = pulling.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired as late:
                said.learn(late.stdout or b"")
                if is_cancelled():
                    pulling.terminate()
                    pulling.wait()
                    return False
            else:
                said.learn(data)
                break
    if pulling.returncode:
        raise build_pull_error(engine, image, said.text)
    return True


class _PullOutput:
    """Output of a pull so far; its newest line is reported now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.text, self._say, self._at = "", say, 0.0

    def learn(self, printed: bytes) -> None:
        self.text = printed.decode(errors="replace")
        now = time.monotonic()
        lines = self.text.split("\n")[:-1]
        if lines and now - self._at >= REPORT_SECONDS:
            self._at = now
            self._say(lines[-1].strip()[:MAX_LINE_CHARS])


def build_pull_error(engine: ContainerEngine, image: str, output: str) -> BackendError:
    """Return the error of a pull. An image that does not exist or is forbidden will not be there in a minute; the rest
    may pass."""
    why = CommandResult(1, "", output).why
    if is_engine_unavailable(output):
        return BackendError("CONTAINERS_AWAY", engine=engine.name, why=why)
    code, permanent = _classify_error(why.lower())
    return BackendError(code, permanent=permanent, image=image, evidence=why)


def _classify_error(output: str) -> tuple[str, bool]:
    def says(words: Iterable[str]) -> bool:
        return any(word in output for word in words)

    if says(NO_SPACE_PHRASES):
        return "IMAGE_NO_ROOM", False
    if "toomanyrequests" in output or ("dial tcp" in output and "denied" not in output):
        return "IMAGE_REGISTRY_AWAY", False
    if says(FORBIDDEN_PHRASES):
        return "IMAGE_FORBIDDEN", True
    if says(NOT_FOUND_PHRASES):
        return "IMAGE_NOT_FOUND", True
    return ("IMAGE_REGISTRY_AWAY", False) if says(UNAVAILABLE_PHRASES) else ("IMAGE_PULL_FAILED", True)
