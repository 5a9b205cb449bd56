"""Temporary data directories, and commands that run inside Django on one."""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import psycopg
import redis

from scripts.test import NEEDS, install_missing
from tests import platform_process, services

ROOT = Path(__file__).resolve().parents[1]
OWN_VARIABLES = ("DJANGO_", "FERMI_", "DATABASE_URL", "REDIS_URL")


@contextmanager
def make_temp_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fermi-bench-"))
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare_database(data: Path) -> None:
    """Copy a migrated database there; migrating takes longer than many a section, so it is done once."""
    os.environ.setdefault("FERMI_TEST_DATA", _make_lasting_folder())
    platform_process.prepare(data)


def prepare_databases() -> None:
    """Migrate both databases at once, each on a core of its own."""
    with make_temp_folder() as data, ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(prepare_database, data), pool.submit(_start_servers)
        first.result()
        with suppress(services.MissingServerError):  # the sections that need a server say so
            second.result()


@contextmanager
def run_postgresql() -> Iterator[dict[str, str]]:
    """Yield settings of a migrated PostgreSQL database and an empty Redis for one section; the servers are the same for
    all. The ones that tests share would become the database of everything that is started afterwards; `BENCH_POSTGRES`
    is the process that started them. Raise MissingServerError where a server is not installed and cannot be."""
    env = _start_servers()
    mother = env["DATABASE_URL"].replace("///fermi?", "///postgres?")
    redis.from_url(env["REDIS_URL"]).flushall()
    with psycopg.connect(mother, autocommit=True) as connection:
        connection.execute("CREATE DATABASE section TEMPLATE fermi")
        try:
            url = env["DATABASE_URL"].replace("///fermi?", "///section?")
            yield {**env, "DATABASE_URL": url, "BENCH_POSTGRES": str(os.getpid())}
        finally:
            connection.execute("DROP DATABASE section WITH (FORCE)")


@cache
def install_servers() -> None:
    """Install PostgreSQL and Redis where they are missing (Debian, root); print where that is not possible."""
    install_missing({package: NEEDS[package] for package in ("postgresql", "redis-server")})


@cache
def _start_servers() -> dict[str, str]:
    install_servers()
    own = services.Own()
    atexit.register(own.close)
    env = build_environment(Path(_make_lasting_folder()), **own.env)
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--no-input", "--verbosity", "0"], env=env, cwd=ROOT, check=True
    )
    return own.env


@cache
def _make_lasting_folder() -> str:
    """Return a folder that lasts for the whole run."""
    folder = tempfile.mkdtemp(prefix="fermi-bench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def build_environment(data: Path, **more: str) -> dict[str, str]:
    """Return the environment of a platform process on `data`, whatever this shell has set."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    path = os.pathsep.join([str(ROOT), str(ROOT / "platform")])
    fixed = {"FERMI_DATA": str(data), "DJANGO_SETTINGS_MODULE": "bench.settings", "PYTHONPATH": path}
    return {**own, **fixed, "FERMI_RATE_LIMIT": "0", **more}


def run_in_django(data: Path, *words: str) -> str:
    """Run `python -m bench.in_django …` on a new database of `data` and return its output."""
    prepare_database(data)
    command = [sys.executable, "-m", "bench.in_django", *words]
    return subprocess.run(
        command, env=build_environment(data), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
