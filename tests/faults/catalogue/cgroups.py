"""Control groups of this machine, of either version: limits of memory and processor time for single ranks."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAMES = {"memory": ("memory", "memory.limit_in_bytes", "memory.max"), "cpu": ("cpu", "cpu.cfs_quota_us", "cpu.max")}
PERIOD = 100_000


def find_obstacle() -> str:
    """Why there can be none here; empty where there can."""
    if os.getuid() != 0:
        return "control groups need root"
    return "" if _has_version_1() or (ROOT / "cgroup.controllers").exists() else "this machine has no control groups"


def _has_version_1() -> bool:
    return (ROOT / "memory" / "tasks").exists()


class Group:
    """`limits`: `memory` in bytes; `cpu` in processors."""

    def __init__(self, name: str, limits: Mapping[str, str]) -> None:
        self.limits = limits
        kinds = [NAMES[kind][0] for kind in limits] if _has_version_1() else [""]
        self.folders = [ROOT / kind / name for kind in kinds]

    def __enter__(self) -> "Group":
        for folder in self.folders:
            folder.mkdir()
            for kind, value in self.limits.items():
                name = NAMES[kind][1 if _has_version_1() else 2]
                if (folder / name).exists():
                    (folder / name).write_text(self._value(kind, value))
        return self

    @staticmethod
    def _value(kind: str, value: str) -> str:
        if kind == "memory":
            return value
        quota = int(float(value) * PERIOD)
        return str(quota) if _has_version_1() else f"{quota} {PERIOD}"

    def add(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid))

    def __exit__(self, *_: object) -> None:
        """A group goes once its processes have gone."""
        for folder in self.folders:
            for _attempt in range(100):
                with suppress(OSError):
                    folder.rmdir()
                    break
                time.sleep(0.1)
