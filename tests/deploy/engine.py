"""A Docker engine: the machine's own, or one that root starts for these tests alone from Debian's packages."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.platform_process import ROOT
from tests.polling import until


class Engine:
    """`env`: what makes `docker` speak to it."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = {**os.environ, **env}

    def answers(self) -> bool:
        return bool(shutil.which("docker")) and self.run("docker", "info", check=False).returncode == 0

    def run(
        self, *command: str, check: bool = True, env: Mapping[str, str] | None = None, cwd: Path = ROOT, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """With `check`, a command that fails is shown with what it said."""
        done = subprocess.run(
            command, env={**self.env, **(env or {})}, cwd=cwd, text=True, errors="replace",
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options},
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done

    def docker(self, *words: str, **options: Any) -> str:
        return str(self.run("docker", *words, **options).stdout).strip()

    def compose(self) -> Sequence[str]:
        """Compose as a plug-in of docker, else the older program of its own; empty where there is neither."""
        if self.run("docker", "compose", "version", check=False).returncode == 0:
            return ("docker", "compose")
        return ("docker-compose",) if shutil.which("docker-compose") else ()

    def has(self, image: str) -> bool:
        return self.run("docker", "image", "inspect", image, check=False).returncode == 0


@contextmanager
def private() -> Iterator[Engine | None]:
    """An engine with folders and a socket of its own, ended afterwards; None where it cannot be started."""
    program = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if program is None or os.getuid() != 0:
        yield None
        return
    # Not in /tmp, which may be kept in memory: images are large.
    with tempfile.TemporaryDirectory(prefix="fermi-docker-", dir="/var/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        socket = f"unix://{folder}/docker.sock"
        with (folder / "dockerd.log").open("wb") as log:
            daemon = subprocess.Popen(
                [program, "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
                 "--pidfile", f"{folder}/pid", "--host", socket, "--live-restore=false"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        engine = Engine({"DOCKER_HOST": socket})
        try:
            until(lambda: engine.answers() or daemon.poll() is not None, seconds=60, what="dockerd answers or ends")
            yield engine if daemon.poll() is None else None
        finally:
            daemon.terminate()
            daemon.wait(60)
