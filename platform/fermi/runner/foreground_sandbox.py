"""The sandbox of a run that is started by hand. Standard library only, Python 3.9 or later.

    readable   the working directory, the job's data and files (FERMI_TRAIN_DATA, FERMI_VALID_DATA, FERMI_FILES_DIR,
               FERMI_RESUME_FROM), DATA_FOLDERS, the folders of PATH and PYTHONPATH, and --read
    writable   FERMI_CHECKPOINT_DIR, FERMI_OUTPUT_DIR, a HOME in the working directory, and --write

The working directory is not writable: it has the scripts and logs of the next start, which is not confined. The user's
own home is inaccessible, except for paths in it that are named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from fermi.runner.mounts import ViewError
from fermi.runner.sandbox import Sandbox, list_program_folders, read_landlock_abi

DATA_FOLDERS = ("/data", "/datasets", "/mnt", "/scratch")
"""Where training machines usually mount data."""
HOME_FOLDER = ".fermi-home"
READABLE_VARIABLES = (
    "FERMI_TRAIN_DATA", "FERMI_VALID_DATA", "FERMI_FILES_DIR", "FERMI_RESUME_FROM", "FERMI_AFTER_CHECKPOINT",
    "FERMI_AFTER_OUTPUTS",
)  # fmt: skip
WRITABLE_VARIABLES = ("FERMI_CHECKPOINT_DIR", "FERMI_OUTPUT_DIR")
TOOLKIT_FOLDER = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class SandboxError(Exception):
    """The run cannot be confined as requested. `reason`: what is missing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def build_sandbox_order(read: Sequence[str], write: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the spec of the sandbox (see `sandbox.py`). `env`: of the user who starts the run. Raises SandboxError for
    a path that does not exist, and for a working directory that has the user's home in it."""
    here, home = os.getcwd(), os.path.realpath(os.path.expanduser("~"))
    if home == here or home.startswith(here.rstrip("/") + "/"):
        raise SandboxError(f"the working directory {here} holds your home: start in a folder of the job's own")
    for path in (*read, *write):
        if not os.path.exists(path):
            raise SandboxError(f"there is no {path}")
    own = [os.path.join(here, HOME_FOLDER), *(env[name] for name in WRITABLE_VARIABLES if env.get(name))]
    readable = [*DATA_FOLDERS, TOOLKIT_FOLDER, *list_program_folders({"PATH": env.get("PYTHONPATH", "")}), here]
    readable += [*(path for name in READABLE_VARIABLES if os.path.exists(path := env.get(name, ""))), *read]
    return {
        "own": own,
        "home": own[0],
        "landlock": True,
        "view": True,
        "paths": {
            **({home: ""} if os.access(home, os.R_OK) else {}),
            **dict.fromkeys(map(os.path.abspath, readable), "r"),
            **dict.fromkeys(map(os.path.abspath, [*own, *write]), "rwm"),
        },
    }


def check_sandbox(ordered: Mapping[str, Any]) -> None:
    """Set up the sandbox once before any rank starts. Raises SandboxError if this machine does not support it."""
    trial = Sandbox(ordered, "by-hand", os.environ)
    trial.close()
    error = trial.failure
    if not read_landlock_abi():
        raise SandboxError("this kernel has no Landlock, or it is turned off")
    if isinstance(error, ViewError):
        raise SandboxError(f"no mount namespace can be made here ({error.strerror})")
    if error:
        raise SandboxError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
