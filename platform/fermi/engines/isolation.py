"""Isolation of tasks on this machine from the platform's own files: another user where we are root and that user can
work here, Landlock where the kernel has it, and a view of the file system that holds only what a task was given where
mount namespaces can be made; all together where all are available.

The choice is made from facts (`choose_isolation`), once per process and set of paths; what a rank may reach is then
part of the node's spec (`fermi.runner.sandbox`), which the runner carries out.
"""

import grp
import os
import pwd
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any

import fermi
from fermi import messages
from fermi.runner import sandbox, seccomp
from fermi.runner.foreground_sandbox import DATA_FOLDERS

MODES = ("auto", "user", "landlock", "off")
TASK_UID = 61000
"""Where the system has no user TASK_USER: a number that nothing else gives out (systemd's table of uid ranges leaves
60706 to 61183 unused)."""
TASK_USER = "fermi-tasks"
DEFAULT_READ_FOLDERS = DATA_FOLDERS
"""Default of FERMI_TASK_READS, and of `reads` of a worker's host."""
DEVICE_GROUPS = ("video", "render", "rdma")
TOOLKIT = Path(fermi.__file__).resolve().parents[1]

_PROBE = """
import os, sys, tempfile
import fermi.runner.sandbox
*readable, writable = sys.argv[1:]
for path in readable:
    if not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
        sys.exit("TASK_USER_CANNOT_READ " + path)
try:
    tempfile.TemporaryFile(dir=writable).close()
except OSError:
    sys.exit("TASK_USER_CANNOT_WRITE " + writable)
"""

_VIEW_PROBE = """
import shutil, sys, tempfile
from fermi.runner import mounts, sandbox
folder = tempfile.mkdtemp(prefix="fermi-probe-")
try:
    mounts.make_view(sandbox.resolve_paths(sandbox.build_system_paths()), (), folder).close()
except OSError as error:
    sys.exit(error.strerror or str(error))
finally:
    shutil.rmtree(folder, ignore_errors=True)
"""

CodedMessage = tuple[str, Mapping[str, str]]
"""A code of `fermi.messages` and its parameters."""


@dataclass(frozen=True, slots=True)
class TaskUser:
    """User that ranks run as, with the groups of devices."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    name: str


@dataclass(frozen=True, slots=True)
class SandboxPaths:
    """Paths of a machine's ranks. `private`: what they must not reach, of which `home` (the data directory, the agent's
    state) is the first. `readable`: data that every task may read, and another user has to. `reads`, `writes`: further
    folders that the operator gives to all tasks, as far as they exist."""

    home: Path
    workspace: Path
    python: str
    private: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation that is available. `view`: tasks see a file system of their own (`fermi.runner.mounts`). `reasons`: why
    there is no more. `enabled`: False where the operator turned it off."""

    landlock: bool
    user: TaskUser | None
    reasons: tuple[CodedMessage, ...] = ()
    enabled: bool = True
    view: bool = False

    @property
    def protects(self) -> bool:
        """Whether tasks are kept from the platform's files."""
        return self.landlock or self.user is not None

    @property
    def code(self) -> str:
        """Code of `fermi.messages` for the kind of isolation."""
        if not self.enabled:
            return "ISOLATION_OFF"
        if self.user:
            return "ISOLATION_BOTH" if self.landlock else "ISOLATION_USER"
        return "ISOLATION_LANDLOCK" if self.landlock else "ISOLATION_NONE"

    def list_messages(self) -> list[CodedMessage]:
        """Return the messages for users: the kind of isolation, then why there is no more."""
        return [(self.code, {"user": self.user.name if self.user else ""}), *self.reasons]

    def sentences(self, lang: str) -> str:
        """Return these messages as one text in a language."""
        return " ".join(messages.render_text(code, lang, **params)[0] for code, params in self.list_messages())

    def order(
        self, paths: SandboxPaths, *, own: Sequence[Path], readable: Sequence[Path], logs: Path, home: Path
    ) -> dict[str, Any] | None:
        """Return the sandbox of ranks (`fermi.runner.sandbox`); None: they are not confined. `own`, `logs` and `home`
        belong to this attempt, or to its project: beside them, the workspace and what is readable, ranks reach only
        what training needs of any machine."""
        if not self.landlock and not self.user:
            return None
        order: dict[str, Any] = {"own": [str(path) for path in own], "home": str(home)}
        if self.view:
            order["view"] = True
        if self.landlock or self.view:
            hidden = dict.fromkeys(map(str, (paths.home, *paths.private)), "")
            read = dict.fromkeys(map(str, (*paths.reads, *paths.readable, TOOLKIT, *readable)), "r")
            written = dict.fromkeys(map(str, (*paths.writes, paths.workspace, *own, home)), "rwm")
            order["paths"] = {**hidden, **read, str(logs): "rw", **written}
            order["landlock"] = self.landlock
        if self.user:
            order["user"] = {**asdict(self.user), "groups": [*self.user.groups]}
        return order

    def can_task_read(self, paths: SandboxPaths, path: Path) -> bool:
        """Return whether a task may read `path`, whose links are followed, because of what its operator gives to all
        tasks: neither the platform's own nor any other folder of this machine."""
        if not self.landlock:
            return True
        given = (paths.workspace, paths.home / "datasets", *paths.readable, *paths.reads, *paths.writes)
        return is_readable(path, map(_resolve_path, given), map(_resolve_path, (paths.home, *paths.private)))


def is_readable(path: PurePath, allowed: Iterable[PurePath], hidden: Iterable[PurePath]) -> bool:
    """Return whether `path` may be read: of the folders that it lies in, the deepest decides, as in
    `fermi.runner.sandbox`."""
    found = [_depth(one) for one in allowed if path.is_relative_to(one)]
    return bool(found) and max(found) >= max((_depth(one) for one in hidden if path.is_relative_to(one)), default=0)


def _resolve_path(path: Path) -> Path:
    return Path(os.path.realpath(path))


def _depth(path: PurePath) -> int:
    return len(path.parts)


def choose_isolation(mode: str, paths: SandboxPaths) -> Isolation:
    """Return the isolation of this machine for `mode` (FERMI_ISOLATION). Makes what the ranks' user needs."""
    return _choose_isolation(mode, paths, os.environ.get("FERMI_TASK_USER", ""))


@lru_cache
def _choose_isolation(mode: str, paths: SandboxPaths, name: str) -> Isolation:
    if mode == "off":
        return Isolation(False, None, enabled=False)
    reasons: list[CodedMessage] = []
    landlock, user, view = False, None, False
    if mode in ("auto", "landlock"):
        try:
            landlock = _check_landlock(paths)
            if not seccomp.is_available():
                reasons.append(("SECCOMP_MISSING", {}))
        except SandboxUnavailableError as error:
            reasons.append(error.said)
    if mode in ("auto", "user") and (mode == "user" or os.geteuid() == 0 or not landlock):
        try:
            user = _prepare_user(paths, name)
        except SandboxUnavailableError as error:
            reasons.append(error.said)
    if landlock or user:
        try:
            view = _check_view()
        except SandboxUnavailableError as error:
            reasons.append(error.said)
    return Isolation(landlock, user, tuple(reasons), view=view)


class SandboxUnavailableError(Exception):
    """A kind of protection is not available here; `said` is the reason."""

    def __init__(self, code: str, **params: str) -> None:
        super().__init__(code)
        self.said: CodedMessage = (code, params)


def _check_landlock(paths: SandboxPaths) -> bool:
    if not sandbox.read_landlock_abi():
        raise SandboxUnavailableError("LANDLOCK_MISSING")
    if paths.home.resolve().is_relative_to("/dev"):  # shared memory is there: entries must be made and removed
        raise SandboxUnavailableError("LANDLOCK_AMONG_DEVICES", path=str(paths.home))
    return True


@lru_cache
def _check_view() -> bool:
    """Return True where a mount namespace can be made. Raise SandboxUnavailableError. Tried in a process of its own:
    where many threads run, no process can be forked safely."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _VIEW_PROBE], check=False, cwd="/", capture_output=True, text=True, timeout=60,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(TOOLKIT), "HOME": "/"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxUnavailableError("VIEW_MISSING", why=str(error)) from error
    if done.returncode:
        raise SandboxUnavailableError(
            "VIEW_MISSING", why=(done.stderr.strip().splitlines() or [str(done.returncode)])[-1]
        )
    return True


def _prepare_user(paths: SandboxPaths, name: str) -> TaskUser:
    if os.geteuid() != 0:
        raise SandboxUnavailableError("TASK_USER_TAKES_ROOT")
    user = _find_user(name)
    _run_as_user(paths, user, "import fermi.runner.sandbox")  # before anything is changed for this user
    paths.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    before = paths.home.stat()
    _prepare_home(paths, user, before)
    try:
        there = [path for path in (paths.home / "datasets", *paths.readable) if path.exists()]
        _run_as_user(paths, user, _PROBE, *map(str, (paths.python, TOOLKIT, *there, paths.workspace)))
    except SandboxUnavailableError:
        os.chown(paths.home, -1, before.st_gid)
        paths.home.chmod(before.st_mode & 0o7777)
        raise
    return user


def _run_as_user(paths: SandboxPaths, user: TaskUser, program: str, *arguments: str) -> None:
    """Run a program as that user. Raise SandboxUnavailableError."""
    try:
        done = subprocess.run(
            [paths.python, "-c", program, *arguments], check=False,
            user=user.uid, group=user.gid, extra_groups=list(user.groups), cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(TOOLKIT), "HOME": "/"},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise SandboxUnavailableError("TASK_USER_CANNOT_RUN", user=user.name, python=paths.python, why=why) from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        code, _, path = last.partition(" ")
        if code in ("TASK_USER_CANNOT_READ", "TASK_USER_CANNOT_WRITE"):
            raise SandboxUnavailableError(code, user=user.name, path=path)
        raise SandboxUnavailableError("TASK_USER_CANNOT_RUN", user=user.name, python=paths.python, why=last)


def _find_user(name: str) -> TaskUser:
    groups = set()
    for group in DEVICE_GROUPS:
        with suppress(KeyError):
            groups.add(grp.getgrnam(group).gr_gid)
    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name or TASK_USER)
        uid, gid, login = found.pw_uid, found.pw_gid, found.pw_name
    except KeyError:
        if name and not name.isdecimal():
            raise SandboxUnavailableError("TASK_USER_UNKNOWN", user=name) from None
        uid = gid = int(name or TASK_UID)
        login = TASK_USER
    if uid == os.geteuid():
        raise SandboxUnavailableError("TASK_USER_IS_OURS", user=login)
    return TaskUser(uid, gid, tuple(sorted(groups)), login)


def _prepare_home(paths: SandboxPaths, user: TaskUser, info: os.stat_result) -> None:
    """Let the user pass through `home`, and make the folders in it that tasks use. What we do not own stays
    unchanged."""
    home = paths.home
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
        ("trees", 0o711),
        ("files", 0o711),
        ("homes", 0o711),
        ("logs", 0o700),
    ):
        path = home / folder
        path.mkdir(exist_ok=True)
        if path.stat().st_uid == os.geteuid():
            path.chmod(mode)
    paths.workspace.mkdir(parents=True, exist_ok=True)
    if paths.workspace.stat().st_uid == os.geteuid() and not any(paths.workspace.iterdir()):
        os.chown(paths.workspace, user.uid, user.gid)
