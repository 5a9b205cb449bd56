"""A private PostgreSQL and Redis for the tests: scratch directory, Unix socket, free loopback port.

`python tests/services.py COMMAND…` runs a command with DATABASE_URL and REDIS_URL set.
"""

import atexit
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

READY_SECONDS = 60


class MissingServerError(RuntimeError):
    """A program the services need is not installed; the message says which package has it."""


def ensure() -> None:
    """Sets DATABASE_URL and REDIS_URL, starting both servers until this process exits unless they are set."""
    if os.environ.get("DATABASE_URL") and os.environ.get("REDIS_URL"):
        return
    postgres, redis = _postgres_bin(), _redis_bin()
    scratch = Path(tempfile.mkdtemp(prefix="fermi-services-", dir="/tmp"))  # a socket's path is bounded
    scratch.chmod(0o711)
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    os.environ["DATABASE_URL"] = _start_postgres(postgres, scratch / "pg")
    os.environ["REDIS_URL"] = _start_redis(redis, scratch / "redis")


def separate(like: str = "template1", name: str = "") -> dict[str, str]:
    """DATABASE_URL and REDIS_URL of a database on the private servers, for a platform of its own: an empty one, or a
    copy of one. A name that was used before is used again: servers that were named to the tests outlive them."""
    ensure()
    name = name or f"fermi_{secrets.token_hex(6)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {like}")
    database = os.environ["DATABASE_URL"].replace(":///fermi?", f":///{name}?")
    redis = os.environ["REDIS_URL"].rsplit("/", 1)[0]
    return {"DATABASE_URL": database, "REDIS_URL": f"{redis}/{secrets.randbelow(15) + 1}"}


def exists(name: str) -> bool:
    """Return whether the private PostgreSQL has a database of that name."""
    ensure()
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        return bool(connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount)


def rename(name: str, other: str) -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} RENAME TO {other}")


def version() -> str:
    """Return the private PostgreSQL's version, as in a file's name: what another one dumped may not be restored."""
    ensure()
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        return f"postgres-{connection.info.server_version}"


def dump(url: str, file: Path) -> None:
    """Write the database to `file`, which is there when all of it is."""
    making = file.with_suffix(".new")
    subprocess.run([_postgres_bin() / "pg_dump", "--no-owner", "--file", making, url], check=True)
    making.rename(file)


def restore(url: str, file: Path) -> None:
    """Fill an empty database with what `dump` wrote."""
    command = [_postgres_bin() / "psql", "--quiet", "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--single-transaction"]
    subprocess.run([*command, "--file", file, url], check=True, stdout=subprocess.DEVNULL)


class Own:
    """Both servers for one test alone, which restarts them and takes writes from them."""

    def __init__(self) -> None:
        self._scratch = scratch = Path(tempfile.mkdtemp(prefix="fermi-services-", dir="/tmp"))
        scratch.chmod(0o711)
        self._postgres, self._redis = Postgres(_postgres_bin(), scratch / "pg"), Redis(_redis_bin(), scratch / "redis")
        self.env = {"DATABASE_URL": self._postgres.url, "REDIS_URL": self._redis.url}

    def close(self) -> None:
        self._postgres.stop()
        self._redis.stop()
        shutil.rmtree(self._scratch, ignore_errors=True)

    @contextmanager
    def no_database(self) -> Iterator[None]:
        self._postgres.stop()
        yield
        self._postgres.start()

    @contextmanager
    def read_only_database(self) -> Iterator[None]:
        self._postgres.read_only("on")
        yield
        self._postgres.read_only("off")

    @contextmanager
    def no_broker(self) -> Iterator[None]:
        self._redis.stop()
        yield
        self._redis.start()

    @contextmanager
    def read_only_broker(self) -> Iterator[None]:
        """A replica of a primary that is away, as after a failover."""
        self._redis.send_command("REPLICAOF", "127.0.0.1", "1")
        yield
        self._redis.send_command("REPLICAOF", "NO", "ONE")


def _postgres_bin() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if found:
        return found[-1].parent
    if initdb := shutil.which("initdb"):
        return Path(initdb).resolve().parent
    raise MissingServerError("PostgreSQL's server is not installed (Debian: apt-get install postgresql)")


def _redis_bin() -> str:
    if found := shutil.which("redis-server") or shutil.which("valkey-server"):
        return found
    raise MissingServerError("Redis is not installed (Debian: apt-get install redis-server)")


def _start_postgres(bin_dir: Path, home: Path) -> str:
    server = Postgres(bin_dir, home)
    atexit.register(server.stop)
    return server.url


class Postgres:
    """A server on a socket in `home`; as user `postgres` if we are root, whom PostgreSQL refuses."""

    def __init__(self, bin_dir: Path, home: Path) -> None:
        self._bin, self._home = bin_dir, home
        home.mkdir(mode=0o700)
        user: str | None = None
        if os.getuid() == 0:
            user = "postgres"
            account = pwd.getpwnam(user)
            os.chown(home, account.pw_uid, account.pw_gid)
        self._role = user or pwd.getpwuid(os.getuid()).pw_name
        self._who: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
        create = [bin_dir / "initdb", "-D", home / "data", "-U", self._role, "-A", "trust", "-E", "UTF8"]
        create += ["--no-locale", "--no-sync"]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL, cwd=home, **self._who)
        self.start()
        self._ask("CREATE DATABASE fermi")
        self.url = f"postgresql:///fermi?host={home}&user={self._role}"

    def start(self) -> None:
        settings = {
            "listen_addresses": "", "unix_socket_directories": str(self._home), "fsync": "off",
            "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200",
        }  # fmt: skip
        options = [arg for key, value in settings.items() for arg in ("-c", f"{key}={value}")]
        command = [self._bin / "postgres", "-D", self._home / "data", *options]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._home, **self._who)
        _wait(self._process, lambda: self._ask("SELECT 1", check=False).returncode == 0)

    def stop(self) -> None:
        """As a node that goes down would: nobody is waited for."""
        _stop(self._process, signal.SIGINT)

    def read_only(self, on: str) -> None:
        self._ask(f"ALTER SYSTEM SET default_transaction_read_only = {on}", "SELECT pg_reload_conf()")

    def _ask(self, *words: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
        ask = [self._bin / "psql", "-h", self._home, "-U", self._role, "-d", "postgres", "-At"]
        return subprocess.run(
            [*ask, *(arg for word in words for arg in ("-c", word))], check=check, capture_output=True
        )


def _start_redis(program: str, home: Path) -> str:
    server = Redis(program, home)
    atexit.register(server.stop)
    return server.url


class Redis:
    def __init__(self, program: str, home: Path) -> None:
        home.mkdir(mode=0o700)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self._port = probe.getsockname()[1]
        self._command = [program, "--port", str(self._port), "--bind", "127.0.0.1", "--save", ""]
        self._command += ["--appendonly", "no", "--dir", str(home), "--databases", "64"]
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        _wait(self._process, lambda: self.send_command("PING") == b"+PONG")

    def stop(self) -> None:
        _stop(self._process)

    def send_command(self, *words: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=1) as client:
            client.sendall(" ".join(words).encode() + b"\r\n")
            return client.recv(64).strip()


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode} while starting")
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"{process.args} did not answer within {READY_SECONDS} s")


def _stop(process: "subprocess.Popen[bytes]", how: int = signal.SIGTERM) -> None:
    process.send_signal(how)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    ensure()
    sys.exit(subprocess.run(sys.argv[1:]).returncode)
