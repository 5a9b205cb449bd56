"""Reports which interpreter a rank runs with and what is installed for it. Standard library only, Python 3.9 or later.

    {"source": "facts", "facts": {"python": "3.11.4", "executable": "/opt/env/bin/python", "prefix": "/opt/env"}}
    {"source": "facts", "facts": {"packages": "numpy==1.26.4 torch==2.3.1", "part": 0, "parts": 3, "key": "1f-18c"}}
    {"source": "facts", "facts": {"cuda": "12.1"}}

The names of the folders `numpy-1.26.4.dist-info` say all (PEP 376, PEP 427), so a folder of packages is listed and no
file in it is read: that is what the interpreter itself does at its first import. Of a node the first rank reports, and
of its processes each that has another interpreter than the process that it was started by (`conda run`, a launcher).
"""

from __future__ import annotations

import os
import sys
import time

from .records import add_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType

    from .rank import ProgressWriter

REPORTED_VARIABLE = "FERMI_FACTS_REPORTED"
"""The interpreter that has reported; inherited by what the process starts."""
SOURCE = "facts"
MAX_PACKAGES, MAX_FOLDERS, MAX_ENTRIES = 3000, 50, 20_000
MAX_NAME_LENGTH, MAX_VERSION_LENGTH, MAX_PATH_LENGTH = 100, 60, 500
MAX_PART_LENGTH = 1000
"""Characters of the packages in one record: those that a text of a record may have."""
_ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-+!_")


def report() -> None:
    """Report the interpreter of this process and its packages, unless it is not the node's first rank, or the
    interpreter has reported. Never raises."""
    try:
        version = ".".join(map(str, sys.version_info[:3]))
        interpreter = f"{sys.prefix} {version}"
        if not _is_first_rank() or os.environ.get(REPORTED_VARIABLE) == interpreter:
            return
        os.environ[REPORTED_VARIABLE] = interpreter
        about = {"executable": sys.executable, "prefix": sys.prefix}
        shown = {name: value[:MAX_PATH_LENGTH] for name, value in about.items() if value}
        add_record({"source": SOURCE, "facts": {"python": version, **shown}})
        parts = split_packages(list_packages(sys.path))
        key = f"{os.getpid():x}-{int(time.time() * 1000):x}"
        for place, text in enumerate(parts):
            facts = {"packages": text, "part": place, "parts": len(parts), "key": key}
            add_record({"source": SOURCE, "facts": facts})
    except Exception:
        pass


def report_cuda(pulse: ProgressWriter, torch: ModuleType) -> None:
    """Report which CUDA or ROCm PyTorch was built for. Called once it has been imported."""
    built = torch.version
    found = {"cuda": built.cuda, "rocm": getattr(built, "hip", None)}
    told = {name: str(version)[:MAX_VERSION_LENGTH] for name, version in found.items() if version}
    if told and _is_first_rank():
        add_record({"source": SOURCE, "facts": told})


def _is_first_rank() -> bool:
    """Return True in processes of the first rank of a task's node. Without a task, no one reads what is reported."""
    return "FERMI_TASK_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") == "0"


def list_packages(folders: Iterable[str]) -> dict[str, str]:
    """Return version by normalized name (PEP 503) of what is installed in the folders; the first one counts, as for
    imports. At most MAX_PACKAGES."""
    found: dict[str, str] = {}
    for folder in list(folders)[:MAX_FOLDERS]:
        if not folder:  # the working directory: the task's code
            continue
        try:
            entries = os.listdir(folder)[:MAX_ENTRIES]
        except OSError:
            continue
        for entry in entries:
            if entry.endswith((".dist-info", ".egg-info")):
                name, _, rest = entry.rpartition(".")[0].partition("-")
                version = rest.partition("-py")[0].lower() if entry.endswith(".egg-info") else rest.lower()
                name = _normalize(name)
                fits = 0 < len(name) <= MAX_NAME_LENGTH and 0 < len(version) <= MAX_VERSION_LENGTH
                if fits and len(found) < MAX_PACKAGES and _ALLOWED.issuperset(name + version):
                    found.setdefault(name, version)
    return found


def _normalize(name: str) -> str:
    return "-".join(filter(None, name.lower().replace("_", "-").replace(".", "-").split("-")))


def split_packages(packages: dict[str, str]) -> list[str]:
    """Return the packages as texts `a==1 b==2` that each fit into a record, sorted by name; at least one text."""
    parts = [""]
    for name in sorted(packages):
        word = f"{name}=={packages[name]}"
        if len(parts[-1]) + len(word) + 1 > MAX_PART_LENGTH:
            parts.append("")
        parts[-1] = f"{parts[-1]} {word}".strip()
    return parts
