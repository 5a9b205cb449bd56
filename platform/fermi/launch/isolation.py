"""What keeps ranks on this machine from the platform's own: another user where we are root and that user can work
here, Landlock where the kernel has it, both together where both can be had.

The choice is made from facts (`choose`), once per process and place; what a rank may reach is then part of the node's
spec (`fermi.runner.confine`), which the runner carries out.
"""

import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import fermi
from fermi import messages
from fermi.runner import confine

MODES = ("auto", "user", "landlock", "off")
TASK_UID = 61000
"""Where the system has no user TASK_USER: a number that nothing else gives out (systemd's table of uid ranges leaves
60706 to 61183 unused)."""
TASK_USER = "fermi-tasks"
DEVICE_GROUPS = ("video", "render", "rdma")
TOOLKIT = Path(fermi.__file__).resolve().parents[1]

_PROBE = """
import os, sys, tempfile
import fermi.runner.confine
*readable, writable = sys.argv[1:]
for path in readable:
    if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
        sys.exit("TASK_USER_CANNOT_READ " + path)
try:
    tempfile.TemporaryFile(dir=writable).close()
except OSError:
    sys.exit("TASK_USER_CANNOT_WRITE " + writable)
"""

Said = tuple[str, Mapping[str, str]]
"""A code of `fermi.messages` and its parameters."""


@dataclass(frozen=True, slots=True)
class User:
    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str
    home: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where ranks run. `private`: what they must not reach, of which `home` (the data directory, the agent's state) is
    the first. `readable` and `writable`: what another user would have to reach."""

    home: Path
    workspace: Path
    python: str
    private: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """`reasons`: why it is not more."""

    landlock: bool
    user: User | None
    reasons: tuple[Said, ...] = ()
    wanted: bool = True

    @property
    def protects(self) -> bool:
        return self.landlock or self.user is not None

    @property
    def code(self) -> str:
        if not self.wanted:
            return "ISOLATION_OFF"
        if self.user:
            return "ISOLATION_BOTH" if self.landlock else "ISOLATION_USER"
        return "ISOLATION_LANDLOCK" if self.landlock else "ISOLATION_NONE"

    def said(self) -> list[Said]:
        """What people are told: what there is, then why it is not more."""
        return [(self.code, {"user": self.user.name if self.user else ""}), *self.reasons]

    def sentences(self, lang: str) -> str:
        return " ".join(messages.text(code, lang, **params)[0] for code, params in self.said())

    def order(
        self, place: Place, *, own: Sequence[Path], readable: Sequence[Path], logs: Path
    ) -> dict[str, Any] | None:
        """What the runner is told. `own` and `logs` belong to this attempt alone; beside them, the workspace and
        `readable`, nothing below `place.home` can be reached. None = ranks are not confined."""
        if not self.landlock and not self.user:
            return None
        own = [*own, *([Path(self.user.home)] if self.user else [])]
        order: dict[str, Any] = {"own": [str(path) for path in own]}
        if self.landlock:
            hidden = dict.fromkeys(map(str, (place.home, *place.private)), "")
            code = dict.fromkeys(_code(), "r")
            read = dict.fromkeys(map(str, readable), "r")
            written = dict.fromkeys(map(str, (place.workspace, *own)), "rwm")
            order["paths"] = {"/": "rwm", **hidden, **code, **read, str(logs): "rw", **written}
        if self.user:
            order["user"] = {**asdict(self.user), "groups": [*self.user.groups]}
        return order


def _code() -> list[str]:
    """The platform's own, which a rank that could change it would make do anything: its source, and its virtual
    environment."""
    return [
        str(TOOLKIT.parent if (TOOLKIT.parent / "manage.py").exists() else TOOLKIT),
        *([sys.prefix] if sys.prefix != sys.base_prefix else []),
    ]


def chosen(mode: str, place: Place) -> Isolation:
    """Of this machine, for `mode` (FERMI_ISOLATION). Makes what the ranks' user needs."""
    return _chosen(mode, place, os.environ.get("FERMI_TASK_USER", ""))


@lru_cache
def _chosen(mode: str, place: Place, name: str) -> Isolation:
    if mode == "off":
        return Isolation(False, None, wanted=False)
    reasons = []
    landlock, user = False, None
    if mode in ("auto", "landlock"):
        try:
            landlock = _landlock(place)
        except Unusable as error:
            reasons.append(error.said)
    if mode in ("auto", "user") and (mode == "user" or os.geteuid() == 0 or not landlock):
        try:
            user = _user(place, name)
        except Unusable as error:
            reasons.append(error.said)
    return Isolation(landlock, user, tuple(reasons))


class Unusable(Exception):
    """A protection cannot be had here; `said` is why."""

    def __init__(self, code: str, **params: str) -> None:
        super().__init__(code)
        self.said: Said = (code, params)


def _landlock(place: Place) -> bool:
    if not confine.landlock_abi():
        raise Unusable("LANDLOCK_MISSING")
    if place.home.resolve().is_relative_to("/dev"):  # where shared memory is: entries must come and go
        raise Unusable("LANDLOCK_AMONG_DEVICES", path=str(place.home))
    return True


def _user(place: Place, name: str) -> User:
    if os.geteuid() != 0:
        raise Unusable("TASK_USER_TAKES_ROOT")
    user = _identity(name, place.home / "home")
    _run(place, user, "import fermi.runner.confine")  # before anything is changed for its sake
    place.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = place.home.stat()
    _make_usable(place, user, before)
    try:
        there = [path for path in (place.home / "datasets", *place.readable) if path.exists()]
        _run(place, user, _PROBE, *map(str, (place.python, TOOLKIT, *there, place.workspace)))
    except Unusable:
        os.chown(place.home, -1, before.st_gid)
        place.home.chmod(before.st_mode & 0o7777)
        raise
    return user


def _run(place: Place, user: User, program: str, *arguments: str) -> None:
    """As that user. Raises Unusable."""
    try:
        done = subprocess.run(
            [place.python, "-c", program, *arguments], check=False,
            user=user.uid, group=user.gid, extra_groups=list(user.groups), cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(TOOLKIT), "HOME": user.home},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise Unusable("TASK_USER_CANNOT_RUN", user=user.name, python=place.python, why=why) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        code, _, path = last.partition(" ")
        if code in ("TASK_USER_CANNOT_READ", "TASK_USER_CANNOT_WRITE"):
            raise Unusable(code, user=user.name, path=path)
        raise Unusable("TASK_USER_CANNOT_RUN", user=user.name, python=place.python, why=last)


def _identity(name: str, home: Path) -> User:
    groups = set()
    for group in DEVICE_GROUPS:
        with suppress(KeyError):
            groups.add(grp.getgrnam(group).gr_gid)
    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name or TASK_USER)
        uid, gid, login = found.pw_uid, found.pw_gid, found.pw_name
    except KeyError:
        if name and not name.isdecimal():
            raise Unusable("TASK_USER_UNKNOWN", user=name) from None
        uid = gid = int(name or TASK_UID)
        login = TASK_USER
    if uid == os.geteuid():
        raise Unusable("TASK_USER_IS_OURS", user=login)
    return User(uid, gid, tuple(sorted(groups)), login, str(home))


def _make_usable(place: Place, user: User, info: os.stat_result) -> None:
    """The user may pass through `home`, and has folders of its own in it. What is not ours to change stays."""
    home = place.home
    if info.st_uid == os.geteuid() and not info.st_mode & 0o001:
        os.chown(home, -1, user.gid)
        home.chmod(info.st_mode & 0o700 | 0o010)
    for secret in home.glob("*.sqlite3*"):
        secret.chmod(0o600)
    for folder, mode in (
        ("datasets", 0o755),
        ("runs", 0o711),
        ("checkpoints", 0o711),
        ("outputs", 0o711),
        ("files", 0o711),
        ("logs", 0o700),
    ):
        path = home / folder
        path.mkdir(exist_ok=True)
        if path.stat().st_uid == os.geteuid():
            path.chmod(mode)
    for path in (Path(user.home), place.workspace):
        path.mkdir(parents=True, exist_ok=True)
        if path.stat().st_uid == os.geteuid() and not any(path.iterdir()):
            os.chown(path, user.uid, user.gid)
