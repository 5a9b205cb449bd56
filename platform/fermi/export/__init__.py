"""Exports a job as a folder of scripts and files that people start without the platform, from the same plan as
everything else.

    JobSpec ──framework.plan──▶ Plan ──target.files──▶ {path: text} ──▶ a folder, or a .tar.gz

A target is one module with `problems(job)` and `files(job, plan, connection)`, and one line in TARGETS. Pure, as an
engine's `render` is. `scripts.py` has what start scripts share, `shell_quotes.py` quotes text for bash, and `readme.py`
writes the README of that very job.
"""

import gzip
import io
import tarfile
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from fermi.jobs.errors import UnknownNameError
from fermi.jobs.spec import JobSpec, Problem
from fermi.planning import plugins
from fermi.schema import suggestions

TARGETS = {
    "shell": "fermi.export.shell",
    "slurm": "fermi.export.slurm",
    "kubernetes": "fermi.export.kubernetes",
    "torchrun": "fermi.export.torchrun",
    "compose": "fermi.export.compose",
}


def find_problems(job: JobSpec, target: str) -> list[Problem]:
    """Return why this target cannot start the job; empty = `render_files` will succeed. Raises UnknownNameError
    (TARGET_UNKNOWN)."""
    return list(_load_target(target).problems(job))


def render_files(job: JobSpec, target: str, lang: str, connection: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return path -> text; scripts end in `.sh`. `connection`: of the cluster, where the target is its engine."""
    from fermi.export import readme

    plan = plugins.get_framework(job.framework).plan(job)
    found: dict[str, str] = _load_target(target).files(job, plan, connection or {})
    return {"README.md": readme.render_readme(job, plan, target, lang), **found}


def build_archive(folder: str, files: Mapping[str, str]) -> bytes:
    """Return a .tar.gz of `folder`; the same files always give the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for path, text in sorted(files.items()):
            content = text.encode("utf-8", "surrogateescape")
            entry = tarfile.TarInfo(f"{folder}/{path}")
            entry.size, entry.mode = len(content), 0o755 if path.endswith(".sh") else 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _load_target(name: str) -> ModuleType:
    if name not in TARGETS:
        allowed = ", ".join(TARGETS)
        raise UnknownNameError(
            "TARGET_UNKNOWN", found=name, allowed=allowed, nearest=suggestions.suggest_name(name, TARGETS)
        )
    return import_module(TARGETS[name])
