"""What a member's script tries: `intruder.py <what.json>` prints what it got. Standard library only.

`what.json` has lists: "read", "write", "replace", "link", "make", "chmod", "pids", "sockets" to get at, "use" and
"free" to use. Whether something was made or changed that others see, `harmful` looks at from outside."""

import contextlib
import ctypes
import errno
import json
import multiprocessing
import os
import resource
import socket
import struct
import subprocess
import sys
import tempfile
from multiprocessing import shared_memory
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206  # attaches without stopping; ends with the tracer
libc.syscall.restype = ctypes.c_long
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
X86 = os.uname().machine == "x86_64"
IOPRIO_SET, VM_READV, MOVE_PAGES = (251, 310, 279) if X86 else (30, 270, 239)
kept: list = []
got: list[str] = []
broken: list[str] = []


@contextlib.contextmanager
def hoping(what: str):
    with contextlib.suppress(OSError):
        yield
        got.append(what)


@contextlib.contextmanager
def relying_on(what: str):
    try:
        yield
    except Exception as error:
        broken.append(f"{what}: {error!r}")


def intrude(order: dict) -> None:
    for path in order["read"]:
        with hoping(f"read {path}"), open(path, "rb") as file:
            file.read(1)
    for path in order["write"]:
        with hoping(f"write {path}"):
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))  # made anew, it would be a file of its own view
    for path in order["replace"]:
        with hoping(f"replace {path}"):
            os.rename(path, f"{path}.taken")
            os.rename(f"{path}.taken", path)
    for path in order["link"]:
        with hoping(f"link {path}"):
            os.symlink("/", path)
    for path in order.get("make", ()):
        with hoping(f"make {path}"):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o755))
    for path in order.get("chmod", ()):
        with hoping(f"chmod {path}"):
            os.chmod(path, 0o123)
    for pid in order["pids"]:
        with hoping("offer another process to the kernel when memory runs out"):
            Path(f"/proc/{pid}/oom_score_adj").write_text("900", encoding="ascii")
        for name in ("environ", "mem", "maps", "fd/0", "root/etc/hostname", "cwd/run"):
            with hoping(f"read {name} of another process"):
                if name == "fd/0":
                    os.readlink(f"/proc/{pid}/{name}")
                elif name == "cwd/run":
                    os.listdir(f"/proc/{pid}/{name}")
                else:
                    with open(f"/proc/{pid}/{name}", "rb") as file:
                        name == "mem" or file.read(1)
        if libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
            got.append("trace another process")
        with hoping("signal another process"):
            os.kill(pid, 0)
        cripple(pid)
        for name, number, *arguments in by_memory(pid):
            if libc.syscall(*map(ctypes.c_long, (number, *arguments))) >= 0 or ctypes.get_errno() not in REFUSALS:
                got.append(f"{name} of another process")
    for path in order["sockets"]:
        with hoping(f"ask {path}"), socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            client.connect(path)
            if path.endswith("gate.sock"):
                continue
            client.sendall(b"KEYS *\r\n")
            if client.recv(64).startswith(b"-"):
                raise OSError("refused")


def harmful(found: list[str]) -> list[str]:
    """What was really got: an entry in a view of the task's own is nobody else's."""

    def is_real(one: str) -> bool:
        kind, _, path = one.partition(" ")
        if kind in ("link", "make"):
            return os.path.lexists(path)
        return kind != "chmod" or os.stat(path).st_mode & 0o777 == 0o123

    return [one for one in found if is_real(one)]


def cripple(pid: int) -> None:
    """What makes a process useless without a signal."""
    with hoping("change another process: limits"):
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    with hoping("change another process: priority"):
        os.setpriority(os.PRIO_PROCESS, pid, 1)
    with contextlib.suppress(OSError):  # it may succeed and change nothing
        os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
        if os.sched_getscheduler(pid) == os.SCHED_BATCH:
            got.append("change another process: policy")
    with hoping("change another process: priority of its input and output"):
        if libc.syscall(*map(ctypes.c_long, (IOPRIO_SET, 1, pid, 3 << 13))):
            raise OSError(ctypes.get_errno(), "")
    one = {min(os.sched_getaffinity(0))}
    if os.sched_getaffinity(pid) != one:
        os.sched_setaffinity(pid, one)
        if os.sched_getaffinity(pid) == one:
            got.append("change another process: processors")


def by_memory(pid: int) -> list[tuple]:
    """Calls that ask first whether the caller may trace the process."""
    parts = ctypes.create_string_buffer(struct.pack("=QQ", 0, 4096), 16)
    at, number = ctypes.addressof(parts), os.pidfd_open(pid)
    calls = [
        ("process_vm_readv", VM_READV, pid, at, 1, at, 1, 0), ("process_vm_writev", VM_READV + 1, pid, at, 1, at, 1, 0),
        ("kcmp", VM_READV + 2, os.getpid(), pid, 0, 0, 0), ("move_pages", MOVE_PAGES, pid, 0, 0, 0, 0, 0),
        ("pidfd_getfd", 438, number, 0, 0), ("process_madvise", 440, number, at, 1, 20, 0),
    ]  # fmt: skip
    kept.append(parts)
    return calls


def child() -> None:
    Path("from a child").write_text("1", encoding="utf-8")


def work(order: dict) -> None:
    """As ordinary scripts do."""
    with relying_on("its own descriptors"):
        opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        names = sorted(os.readlink(path) for path in opened if os.path.lexists(path))
        given = ("/dev/null", "/memfd:fermi-page (deleted)", "/memfd:fermi-stacks (deleted)",
                 "/memfd:fermi-records (deleted)")  # its pulse's  # fmt: skip
        strange = [name for name in names if not name.endswith(".log") and name not in given]
        strange += given[2:] * (names.count(given[2]) > 1)  # another rank's; of its page, a mapping holds a second one
        assert not strange, strange
    for folder in order["free"]:
        with relying_on(f"write in {folder}"):
            new, file = Path(folder, f"folder {os.getpid()}"), Path(folder, f"file {os.getpid()}")
            new.mkdir()
            (new / "file").write_text("1")
            os.replace(new / "file", file)
            assert file.read_text(encoding="utf-8") == "1"
    for path in order["use"]:
        with relying_on(f"read {path}"):
            Path(path).read_bytes()
    with relying_on("temporary files"), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x").write_text("1")
    with relying_on("shared memory"):
        shared = shared_memory.SharedMemory(create=True, size=10)
        shared.close()
        shared.unlink()
    with relying_on("caches in HOME"):
        cache = Path.home() / ".cache" / "fermi-test" / str(os.getpid())
        cache.mkdir(parents=True)
        cache.rmdir()
    with relying_on("a child"):
        process = multiprocessing.get_context("spawn").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0
        assert Path("from a child").exists()
    with relying_on("a program"):
        done = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
    with relying_on("/proc, /sys, /dev"):
        Path("/proc/self/environ").read_bytes()
        Path("/proc/meminfo").read_text(encoding="utf-8")
        os.listdir("/sys/class")
        os.listdir("/")
        Path("/dev/null").write_text("x", encoding="utf-8")
        with open("/dev/urandom", "rb") as source:
            source.read(1)
        with open("/dev/stdout", "a", encoding="utf-8") as output:
            output.write("through /dev/stdout\n")


if __name__ == "__main__":
    told = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    work(told)
    intrude(told)
    print(json.dumps({"got": got, "broken": broken, "uid": os.getuid(), "env": dict(os.environ)}), flush=True)
