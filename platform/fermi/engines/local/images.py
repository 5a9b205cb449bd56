"""Container images: found on this host, or pulled from their registry, and what an error means."""

import re
import subprocess
import time
from collections.abc import Callable, Iterable

from fermi.engines.local.container_engines import Done, Engine, is_away, surroundings
from fermi.jobs.errors import BackendError

_NAME = re.compile(r"[A-Za-z0-9][\w.\-/:@]{0,400}", re.ASCII)
POLL_SECONDS = 0.2
LINE = 200
TOLD_SECONDS = 0.5
ROOM = ("no space left on device", "disk quota exceeded")
ABSENT = ("manifest unknown", "not found", "name unknown", "does not exist", "invalid reference format",
          "did not resolve to an alias", "must be lowercase", "image not known")  # fmt: skip
FORBIDDEN = ("unauthorized", "denied", "authentication required", "forbidden", "invalid username/password")
AWAY = ("dial tcp", "timeout", "connection refused", "connection reset", "no such host",
        "unexpected eof", "toomanyrequests", "rate limit", "bad gateway", "service unavailable", "gateway timeout",
        "network is unreachable", "tls handshake")  # fmt: skip
"""Phrases of podman-pull(1), `docker pull` and registries (errors of the distribution specification), in lower case."""


def is_there(engine: Engine, image: str) -> bool:
    """Return whether the image is on this host. Raise BackendError."""
    if not _NAME.fullmatch(image):  # one that begins with a dash would be an option
        raise BackendError("IMAGE_NOT_FOUND", permanent=True, image=image, evidence="–")
    return engine.ask("image", "inspect", "--format", "{{.Id}}", image).code == 0


def pull(engine: Engine, image: str, say: Callable[[str], None], unwanted: Callable[[], bool]) -> bool:
    """Pull an image; return False where `is_cancelled` returned True meanwhile. `report_line`: called with the newest
    line now and then. Raise BackendError."""
    try:
        pulling = subprocess.Popen(
            [engine.program, "pull", image], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd="/", env=surroundings(), start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise BackendError("CONTAINERS_AWAY", engine=engine.name, why=str(error)) from error
    with pulling:
        assert pulling.stdout
        said = _Lines(say)
        while True:
            try:
                data, _ = pulling.communicate(timeout=POLL_SECONDS)
            except subprocess.TimeoutExpired as late:
                said.learn(late.stdout or b"")
                if unwanted():
                    pulling.terminate()
                    pulling.wait()
                    return False
            else:
                said.learn(data)
                break
    if pulling.returncode:
        raise refusal(engine, image, said.text)
    return True


class _Lines:
    """Output of a pull so far; its newest line is reported now and then."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.text, self._say, self._at = "", say, 0.0

    def learn(self, printed: bytes) -> None:
        self.text = printed.decode(errors="replace")
        now = time.monotonic()
        lines = self.text.split("\n")[:-1]
        if lines and now - self._at >= TOLD_SECONDS:
            self._at = now
            self._say(lines[-1].strip()[:LINE])


def refusal(engine: Engine, image: str, said: str) -> BackendError:
    """Return the error of a pull. An image that does not exist or is forbidden will not be there in a minute; the rest
    may pass."""
    why = Done(1, "", said).why
    if is_away(said):
        return BackendError("CONTAINERS_AWAY", engine=engine.name, why=why)
    code, permanent = _refused(why.lower())
    return BackendError(code, permanent=permanent, image=image, evidence=why)


def _refused(said: str) -> tuple[str, bool]:
    def says(words: Iterable[str]) -> bool:
        return any(word in said for word in words)

    if says(ROOM):
        return "IMAGE_NO_ROOM", False
    if "toomanyrequests" in said or ("dial tcp" in said and "denied" not in said):
        return "IMAGE_REGISTRY_AWAY", False
    if says(FORBIDDEN):
        return "IMAGE_FORBIDDEN", True
    if says(ABSENT):
        return "IMAGE_NOT_FOUND", True
    return ("IMAGE_REGISTRY_AWAY", False) if says(AWAY) else ("IMAGE_PULL_FAILED", True)
