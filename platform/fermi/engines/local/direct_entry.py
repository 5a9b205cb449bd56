"""Enter an environment of this machine without its environment daemon: one that no user has opened uses no memory, and
stays so."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from fermi.engines.inside import bundle
from fermi.engines.inside.session import InsideSession
from fermi.engines.local.environment_runs import EnvironmentDisk, EnvironmentRun
from fermi.engines.local.launcher import build_training_env
from fermi.runner import files

MAKE_INTERPRETER = '"$0" -m fermi.envd.interpreter "$1" "$2" >/dev/null 2>&1; shift 2; exec "$@"'
"""Shell command that first makes the environment's own interpreter, which may not exist yet."""


def enter_environment(disk: EnvironmentDisk, run: EnvironmentRun) -> InsideSession:
    """Return a session with `fermi.inside` as a process of its own, with what the environment's processes may reach; it
    ends with its stream. Raise InsideError and OSError."""
    spec: Mapping[str, Any] = files.read_json(str(run.spec)) or {}
    own, base = str(disk.own), str(spec.get("python") or sys.executable)
    env = {**build_training_env(), **spec.get("env", {}), "HOME": str(disk.home), "VIRTUAL_ENV": own}
    env["PATH"] = os.pathsep.join([f"{own}/bin", os.path.dirname(base), env.get("PATH", os.defpath)])
    order = {
        "command": ["sh", "-c", MAKE_INTERPRETER, sys.executable, base, own, *bundle.build_command()],
        "env": {**env, "FERMI_PYTHON": f"{own}/bin/python"}, "name": run.name, "confine": spec.get("confine"),
    }  # fmt: skip
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "fermi.runner.sandboxed_program"], stdin=theirs.fileno(), stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            cwd="/", env=build_training_env(), start_new_session=True,
        )  # fmt: skip
    threading.Thread(target=process.wait, name="inside", daemon=True).start()
    ours.sendall(json.dumps(order).encode() + b"\n")
    return InsideSession(ours).greet()
