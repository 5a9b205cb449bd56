"""What tests of by-hand launching share: a folder of scripts, and an ssh that stays on this machine."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fermi import export
from fermi.jobs.spec import JobSpec, Node
from tests.clean_environment import as_in_a_terminal
from tests.polling import until

ROOT = Path(__file__).resolve().parents[1]
LOOPBACK = "127.0.0.1"

SSH = """#!/usr/bin/env bash
# ssh on this machine: options, a host, a command for the shell of the other side, whose home is a folder of its own.
while [[ $1 == -* ]]; do
  if [[ $1 == -o ]]; then shift; fi
  shift
done
host=$1
echo "$host" >>"$SSH_LOG"
if [[ $host == gone ]]; then
  echo "ssh: connect to host gone port 22: No route to host" >&2
  exit 255
fi
cd "$SSH_HOME" && exec bash -c "$2"
"""


def local(job: JobSpec) -> JobSpec:
    """The job with every node on this machine."""
    return replace(job, nodes=tuple(replace(node, ip=LOOPBACK) for node in job.nodes))


def nodes(*gpus: int, **more: Any) -> tuple[Node, ...]:
    return tuple(
        Node(f"env-{index}", f"node-{index}", ip=LOOPBACK, gpu_type="A100", gpu_count=count, emulated=True, **more)
        for index, count in enumerate(gpus)
    )


def write(place: Path, job: JobSpec, target: str, lang: str = "en", **connection: Any) -> Path:
    for path, text in export.render_files(job, target, lang, connection).items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text, "utf-8", "surrogateescape")
    return place


def fake_ssh(folder: Path) -> dict[str, str]:
    """The environment in which `ssh` is this machine."""
    (folder / "bin").mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "bin" / "ssh").write_text(SSH)
    (folder / "bin" / "ssh").chmod(0o755)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    return {"PATH": path, "FERMI_SSH": "ssh", "SSH_HOME": str(folder / "home"), "SSH_LOG": str(folder / "ssh.log")}


class Started:
    """A command in a session of its own, with what it printed."""

    def __init__(self, output: Path, *command: str | Path, cwd: Path | None = None, **env: str) -> None:
        self.output = output
        ours = {"FERMI_PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": "", **env}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with output.open("wb") as file, as_in_a_terminal():
            self.process = subprocess.Popen(
                list(map(str, command)), env=inherited | ours, cwd=cwd or output.parent, stdin=subprocess.DEVNULL,
                stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(timeout=270)

    def succeed(self) -> str:
        assert self.wait() == 0, self.text
        return self.text

    def until_says(self, what: str) -> None:
        def said() -> bool:
            assert self.process.poll() is None or what in self.text, self.text
            return what in self.text

        until(said, seconds=120, what=f"{what!r} in the output")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """With everything it started, where something still runs."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def fermi(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "fermi.cli", arguments[0], "--lang", "en", *arguments[1:]]


def lines_of(text: str, rank: int) -> list[str]:
    """What a rank printed, among prefixed lines."""
    mark = f"[rank {rank}] "
    return [line.removeprefix(mark) for line in text.splitlines() if line.startswith(mark)]
