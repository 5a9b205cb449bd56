"""A task's two attempts on Kubernetes as the reconciler leads them: the first fails, the second is stopped.

    python kubernetes_life.py <kubeconfig> <namespace> <folder>

Each step is done, then written down, so whoever comes after a crash does the last one again. As a program it forks a
process for each line `<task id>` that it reads, says its pid, lets it begin with the next line, and says how it ended.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fermi.engines.kubernetes.engine import KubernetesBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Phase
from fermi.planning import plugins

SECONDS = 120.0


def job(task_id: str, attempt: int) -> JobSpec:
    nodes = tuple(
        Node(
            id=f"env-{i}",
            name=f"dev-{i}",
            gpu_count=1,
            emulated=True,
            image="training:1",
            engine={"node": f"machine-{i}"},
        )
        for i in range(2)
    )
    entrypoint = Entrypoint("train.py")
    return JobSpec(task_id, "ddp", nodes, "env-0", entrypoint=entrypoint, attempt=attempt, grace_seconds=1.0)


def connection(kubeconfig: str, namespace: str, folder: Path) -> dict[str, str]:
    return {"kubeconfig": kubeconfig, "namespace": namespace, "data_dir": str(folder)}


def live(backend: KubernetesBackend, task_id: str, state: Path) -> None:
    """From the step that `state` names to the last one. What the engine refuses for now is tried again."""
    done = int(state.read_text(encoding="utf-8")) if state.exists() else 0
    steps = [
        step
        for attempt, phase in ((1, Phase.FAILED), (2, Phase.RUNNING))
        for step in _steps(backend, task_id, attempt, phase)
    ]
    deadline = time.monotonic() + SECONDS
    while done < len(steps):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{task_id}: step {done}")
        try:
            finished = steps[done]()
        except BackendError as error:
            if error.permanent:
                raise
            finished = False
        if finished:
            done += 1
            state.write_text(str(done), encoding="utf-8")
        else:
            time.sleep(0.02)


def _steps(backend: KubernetesBackend, task_id: str, attempt: int, until: Phase) -> list[Callable[[], bool]]:
    spec = job(task_id, attempt)
    handle = Handle(spec.name, task_id, attempt, spec.world_size)

    def submit() -> bool:
        backend.submit(backend.render(spec, plugins.get_framework(spec.framework).plan(spec)))
        return True

    def wait() -> bool:
        """A start that did not happen is asked for again, as the reconciler does."""
        phase = backend.observe([handle])[handle.name].phase
        if phase in (Phase.ABSENT, Phase.STARTING):
            submit()
        return phase is until

    def cancel() -> bool:
        backend.cancel(handle, 0.0)
        return backend.observe([handle])[handle.name].left is False

    def forget() -> bool:
        backend.delete_attempt(handle)
        return True

    return [submit, wait, cancel, forget]


def read_line() -> str:
    """Byte by byte, so that a fork takes nothing along that is its parent's to read."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


def main(kubeconfig: str, namespace: str, folder: str) -> None:
    while task_id := read_line():
        pid = os.fork()
        if pid == 0:
            print(os.getpid(), flush=True)
            read_line()
            own = Path(folder, task_id)
            live(KubernetesBackend(connection(kubeconfig, namespace, own)), task_id, own.with_suffix(".state"))
            os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
