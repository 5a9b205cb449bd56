"""A private PostgreSQL and Redis for the tests: scratch directory, Unix socket, free loopback port.

`python tests/services.py COMMAND…` runs a command with DATABASE_URL and REDIS_URL set.
"""

import atexit
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg

READY_S = 60


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


def separate() -> dict[str, str]:
    """DATABASE_URL and REDIS_URL of an empty database on the private servers, for a platform of its own."""
    ensure()
    name = f"fermi_{secrets.token_hex(6)}"
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    database = os.environ["DATABASE_URL"].replace(":///fermi?", f":///{name}?")
    redis = os.environ["REDIS_URL"].rsplit("/", 1)[0]
    return {"DATABASE_URL": database, "REDIS_URL": f"{redis}/{secrets.randbelow(15) + 1}"}


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
    """Starts a server on a socket in `home`; as user `postgres` if we are root, whom PostgreSQL refuses."""
    home.mkdir(mode=0o700)
    user: str | None = None
    if os.getuid() == 0:
        user = "postgres"
        account = pwd.getpwnam(user)
        os.chown(home, account.pw_uid, account.pw_gid)
    role = user or pwd.getpwuid(os.getuid()).pw_name
    who = {"user": user, "group": user, "extra_groups": []} if user else {}
    create = [bin_dir / "initdb", "-D", home / "data", "-U", role, "-A", "trust", "-E", "UTF8"]
    create += ["--no-locale", "--no-sync"]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL, cwd=home, **who)
    settings = {
        "listen_addresses": "", "unix_socket_directories": str(home), "fsync": "off",
        "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "200",
    }  # fmt: skip
    options = [arg for key, value in settings.items() for arg in ("-c", f"{key}={value}")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [bin_dir / "postgres", "-D", home / "data", *options], stdout=log, stderr=log, cwd=home, **who
        )  # type: ignore[call-overload]
    atexit.register(_stop, process)
    ask = [bin_dir / "psql", "-h", home, "-U", role, "-d", "postgres", "-Atc"]
    _wait(process, lambda: subprocess.run([*ask, "SELECT 1"], capture_output=True).returncode == 0)
    subprocess.run([*ask, "CREATE DATABASE fermi"], check=True, capture_output=True)
    return f"postgresql:///fermi?host={home}&user={role}"


def _start_redis(program: str, home: Path) -> str:
    home.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            program,
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            home,
        ],
        stdout=subprocess.DEVNULL,
    )
    atexit.register(_stop, process)

    def answers() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as client:
            client.sendall(b"PING\r\n")
            return client.recv(16).startswith(b"+PONG")

    _wait(process, answers)
    return f"redis://127.0.0.1:{port}/0"


def _wait(process: "subprocess.Popen[bytes]", ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode} while starting")
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"{process.args} did not answer within {READY_S} s")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    ensure()
    sys.exit(subprocess.run(sys.argv[1:]).returncode)
