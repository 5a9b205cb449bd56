"""Further processes in a container that runs."""

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.kubelet.containers import Container, base
from tests.fakes.kubernetes.kubelet.view import View


@dataclass
class Inside:
    """What a container's processes are begun with. In it, the end of its first process is the end of all."""

    view: View
    env: Mapping[str, str]
    cwd: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def begin(self, name: str, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        """Raises OSError."""
        process = subprocess.Popen(
            [self.view.rewrite(word) for word in command], env={**base(self.cwd, name), **self.env}, cwd=self.cwd,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, bufsize=0,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


def execute(
    containers: Sequence[Container], inside: Mapping[str, Inside], name: str, command: Sequence[str]
) -> "subprocess.Popen[bytes]":
    main = next((one for one in containers if one.name == name), None)
    if main is None or main.code is not None or name not in inside:
        raise Refused(500, "InternalError", f'container not found ("{name}")')
    try:
        process = inside[name].begin(name, command)
    except OSError as error:
        why = f'exec: "{command[0]}": {error.strerror}: unknown'
        raise Refused(500, "InternalError", f"error executing command in container: {why}") from error
    if main.code is not None:  # meanwhile
        process.kill()
    return process
