"""Scratch data directories, and commands that run inside Django on one."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests import services

ROOT = Path(__file__).resolve().parents[1]
OURS = ("DJANGO_", "FERMI_", "DATABASE_URL", "REDIS_URL")


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fermi-bench-"))
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgresql() -> Iterator[dict[str, str]]:
    """Settings of a PostgreSQL and a Redis for one section. The ones that tests share would become the database of
    everything that is started afterwards; `BENCH_POSTGRES` is the process that started them."""
    with closing(services.Own()) as own:
        yield {**own.env, "BENCH_POSTGRES": str(os.getpid())}


def environment(data: Path, **more: str) -> dict[str, str]:
    """Of a platform process on `data`, whatever this shell has set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    return {**own, "FERMI_DATA": str(data), "DJANGO_SETTINGS_MODULE": "bench.settings", "PYTHONPATH": path, **more}


def inside(data: Path, *words: str) -> str:
    """`python -m bench.inside …` on a migrated database of `data`; what it printed."""
    command = [sys.executable, "-m", "bench.inside", *words]
    return subprocess.run(
        command, env=environment(data), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
