"""Further processes in a container that runs, in the words of those who refuse them."""

import errno
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.fakes.kubernetes.errors import Refused
from tests.fakes.kubernetes.kubelet.containers import Container, Execution, Process
from tests.fakes.kubernetes.kubelet.view import View

FAILED = "OCI runtime exec failed: exec failed"


class NotBegunError(Exception):
    """The container runtime could not begin it."""


@dataclass(frozen=True)
class Inside:
    """What a container's processes are begun with."""

    view: View
    env: Mapping[str, str]
    cwd: str


def execute(
    containers: Sequence[Container], inside: Mapping[str, Inside], name: str, command: Sequence[str]
) -> Execution:
    """Raises Refused, a kubelet's no (pkg/kubelet/kubelet_pods.go: GetExec), and NotBegunError (containerd,
    internal/cri/server/streaming.go and container_execsync.go)."""
    main = next((one for one in containers if one.name == name), None)
    if not isinstance(main, Process) or main.code is not None or name not in inside:
        raise Refused(500, "", f'container not found ("{name}")', plain=True)
    one = inside[name]
    try:
        return main.execute([one.view.rewrite(word) for word in command], one.env, one.cwd)
    except ProcessLookupError:
        raise NotBegunError("container is in CONTAINER_EXITED state") from None
    except OSError as error:
        raise NotBegunError(_refused(command, error)) from None


def _refused(command: Sequence[str], error: OSError) -> str:
    """As runc says it (opencontainers/runc, libcontainer/standard_init_linux.go: exec.LookPath, execve)."""
    if not command:
        return f'failed to start exec "{secrets.token_hex(32)}": {FAILED}: args must not be empty: unknown'
    name = command[0]
    if error.errno == errno.ENOENT:
        why = f"stat {name}: no such file or directory" if "/" in name else "executable file not found in $PATH"
    else:
        why = str(error.strerror).lower()
    runc = f'{FAILED}: unable to start container process: exec: "{name}": {why}'
    return f'failed to start exec "{secrets.token_hex(32)}": {runc}: unknown'
