"""A data directory with everything that a rank must not get, and a real rank of the local engine that tries:

    python -m tests.isolation.data_directory <folder> <mode>

prints what it got, as JSON. A program of its own, so that the platform's side can be another user than the tests."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

from fermi.engines import isolation
from fermi.engines.local import LocalBackend
from fermi.jobs.spec import Entrypoint, Handle, JobSpec, Node, Phase
from fermi.planning import plugins
from fermi.runner.record_frames import strip_frames
from tests.isolation.intruder import harmful
from tests.polling import until

INTRUDER = Path(__file__).with_name("intruder.py")
PLATFORM = "import os, sys, time; kept = 'fermi_secret' * 100; print(os.getpid(), flush=True); sys.stdin.read()"


def furnish_user(folder: Path) -> dict[str, list[str]]:
    """Returns what the intruder is after outside of the platform's folders: what its user runs and is known by."""
    kept = ["user/.bashrc", "user/.ssh/id_ed25519", "user/.local/lib/x.pth", "bin/git", "notes.txt"]
    for name in kept:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("fermi_secret")
        (folder / name).chmod(0o600)
    there = [str(folder / name) for name in kept]
    made = [*(str(folder / name) for name in ("bin/ssh", "user/.ssh/authorized_keys", "user/new", "new"))]
    programs = [f"{path}/fermi-intruder" for path in os.environ["PATH"].split(os.pathsep)]
    system = [sys.prefix, sys.base_prefix, purelib(), "/etc/profile.d", "/usr/local/lib", "/var/spool", "/opt"]
    real = [*programs, *(f"{path}/fermi-intruder" for path in system)] if isolated() else []
    return {"read": [path for path in there if not path.endswith("/git")], "write": there, "replace": there,
            "make": [*made, *real], "chmod": there}  # fmt: skip


def isolated() -> bool:
    return sys.argv[2] != "off"


def purelib() -> str:
    return sysconfig.get_path("purelib")


def furnish(data: Path) -> dict[str, list[str]]:
    """As a platform that has run for a while. Gives what the intruder is after and what it has a right to."""
    for folder in ("datasets/version-1", "workspace", "checkpoints/other", "checkpoints/mine", "logs/other/1",
                   "runs/other-1/files", "run"):  # fmt: skip
        (data / folder).mkdir(parents=True, exist_ok=True)
    secrets = [
        "token",
        "secret_key",
        "fermi.sqlite3",
        "fermi.sqlite3-wal",
        "run/processes.json",
        "runs/other-1/node-0.json",
    ]
    others = ["checkpoints/other/step_1.pt", "logs/other/1/0.log"]
    for name in [*secrets, *others]:
        (data / name).write_text("fermi_secret")
        (data / name).chmod(0o600)
    (data / "datasets/version-1/train.bin").write_bytes(b"\1\0")
    (data / "datasets/version-1").chmod(0o755)  # what is registered is for all tasks' eyes, whatever the umask
    (data / "datasets/version-1/train.bin").chmod(0o644)
    private = [str(data / name) for name in (*secrets, *others)]
    return {
        "read": private,
        "write": [*private, isolation.__file__],
        "replace": private,
        "link": [str(data / name) for name in ("planted", "logs/mine/1/9.log", "runs/mine-1/planted")],
        "use": [str(data / "datasets/version-1/train.bin"), isolation.__file__],
        "free": [str(data / "workspace"), str(data / "checkpoints/mine")],
    }


def main(folder: Path, mode: str) -> dict[str, object]:
    data = folder / "data"
    data.mkdir(mode=0o700)
    backend = LocalBackend({"data_dir": str(data), "warm": False, "isolation": mode})
    found = isolation.choose_isolation(mode, backend.place)  # as at the platform's start, with nothing there yet
    order = furnish(data)
    for kind, paths in furnish_user(folder).items():
        order[kind] = [*order.get(kind, []), *paths]
    gate = socket.socket(socket.AF_UNIX)  # as a tmux server's: whoever connects has programs run
    gate.bind(str(folder / "gate.sock"))
    gate.listen()
    script = data / "workspace" / "intruder.py"
    script.write_text(INTRUDER.read_text())
    with subprocess.Popen(
        [sys.executable, "-c", PLATFORM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=data,
        env={**os.environ, "DATABASE_URL": "postgresql://fermi:fermi_secret@db/fermi"},
    ) as platform:  # fmt: skip
        assert platform.stdout is not None
        own = [int(platform.stdout.readline())]
        order = {**order, "pids": own, "sockets": [str(folder / "gate.sock")] if found.view or not isolated() else []}
        (data / "workspace" / "what.json").write_text(json.dumps(order))
        for name in ("intruder.py", "what.json"):
            (data / "workspace" / name).chmod(0o644)
        entry = Entrypoint(str(script), (str(data / "workspace" / "what.json"),))
        node = Node("env-0", "node-0", gpu_type="A100", gpu_count=1, emulated=True)
        job = JobSpec(
            "mine", "ddp", (node,), "env-0", entrypoint=entry, attempt=1, master_port=29500,
            checkpoint_dir=str(data / "checkpoints" / "mine"), grace_seconds=5.0,
        )  # fmt: skip
        handle = Handle(job.name, job.task_id, 1, 1)
        backend.submit(backend.render(job, plugins.get_framework("ddp").plan(job)))
        seen = until(
            lambda: (now := backend.observe([handle])[handle.name]).phase in (Phase.SUCCEEDED, Phase.FAILED) and now,
            seconds=120,
        )
        text = strip_frames(backend.logs(handle, 0, 0).data).decode()
        until(lambda: backend.observe([handle])[handle.name].left is False)
    if seen.phase != Phase.SUCCEEDED:
        raise SystemExit(f"{seen}\n{text}")
    *lines, last = text.splitlines()
    got = json.loads(last)
    got["got"] = harmful(got["got"])
    for path in order["make"]:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return {**got, "code": found.code, "view": found.view, "why": [code for code, _ in found.reasons], "lines": lines}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2])))
