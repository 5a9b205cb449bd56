"""Check whether this machine can train: folders to write to, and an interpreter with the training stack."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fermi.engines import isolation_check
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.local.engine import LocalBackend
from fermi.engines.local.launcher import get_default_python
from fermi.jobs import bounds

MAX_LISTED_PATHS = 8
_PATH = {"type": "string", "minLength": 1}
CONNECTION = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "offline": {"type": "boolean"},
        "python": _PATH,
        "workspace": _PATH,
        "script_roots": {"type": "array", "items": _PATH},
        "warm": {"type": "boolean"},
        "bounds": bounds.BOUNDS_SCHEMA,
    },
}
VERSION_PROGRAM = (
    "import sys, importlib.metadata as m\n"
    "try: torch = m.version('torch')\n"
    "except m.PackageNotFoundError: torch = ''\n"
    "print(sys.version.split()[0], torch)"
)


def findings(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return the results of all checks."""
    data = Path(connection["data_dir"])
    workspace = Path(connection.get("workspace") or data / "workspace")
    python = _check_python(connection.get("python") or get_default_python())
    return [_check_folder(data), _check_folder(workspace), python, *notices(connection), *check_isolation(connection)]


def notices(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return what keeps ranks from the platform's own files, and why it is not more."""
    found = LocalBackend({**connection, "warm": False}).isolation
    level = CheckLevel.PASS if found.protects else CheckLevel.WARN
    return [CheckResult(level, code, params) for code, params in found.list_messages()]


def check_isolation(connection: Mapping[str, Any]) -> list[CheckResult]:
    """Return whether the isolation holds, as tested from inside; nothing where there is none."""
    backend = LocalBackend({**connection, "warm": False})
    if not backend.isolation.protects:
        return []
    try:
        found = isolation_check.find_open_paths(backend.isolation_mode, backend.place)
    except isolation_check.IsolationCheckError as error:
        return [CheckResult(CheckLevel.WARN, "ISOLATION_UNTRIED", {"why": str(error)})]
    if found:
        return [CheckResult(CheckLevel.FAIL, "ISOLATION_OPEN", {"paths": ", ".join(found[:MAX_LISTED_PATHS])})]
    return [CheckResult(CheckLevel.PASS, "ISOLATION_HOLDS", {})]


def _check_folder(path: Path) -> CheckResult:
    """Return whether a folder is writable, or can be made: the first attempt makes what is missing."""
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if os.access(there, os.W_OK | os.X_OK):
        return CheckResult(CheckLevel.PASS, "FOLDER_USABLE", {"path": str(path)})
    return CheckResult(CheckLevel.FAIL, "FOLDER_UNUSABLE", {"path": str(path)}, f"chmod u+rwx {there}")


def _check_python(python: str) -> CheckResult:
    try:
        done = subprocess.run(
            [python, "-c", VERSION_PROGRAM],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return CheckResult(CheckLevel.FAIL, "PYTHON_UNUSABLE", {"python": python, "why": str(error)})
    version, _, torch = done.stdout.strip().partition(" ")
    params = {"python": python, "version": version, "torch": torch}
    if not torch:
        return CheckResult(CheckLevel.WARN, "PYTHON_WITHOUT_TORCH", params, f"{python} -m pip install torch")
    return CheckResult(CheckLevel.PASS, "PYTHON_USABLE", params)


def standby(image: str) -> str:
    """Return where the training stack stands by: one process serves all, since ranks continue as an environment's
    interpreter (`fermi.runner.venv`)."""
    return "engine"
