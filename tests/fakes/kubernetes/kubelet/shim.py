"""Between the fake kubelet and a container's process: the least of what a container runtime does. Standard library.

    python shim.py COMMAND [ARGUMENT …]

SIGTERM goes to the process alone; when it ends, all it left behind is killed, as in a pid namespace. SIGUSR1 (also sent
by the kernel when the fake itself dies) kills everything. Ends with the process' exit code, 128 + n for signal n.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
libc = ctypes.CDLL(None)


def children() -> list[int]:
    own = str(os.getpid()).encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[1] == own:
                    found.append(int(name))
    return found


def sweep() -> None:
    """Kills the children until there are none: orphans of theirs become ours."""
    while left := children():
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def main(command: list[str]) -> int:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    signals = {signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"exec {command[0]}: {error.strerror}\n".encode())
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    while True:
        number = signal.sigwait(signals)
        if number == signal.SIGTERM:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        elif number == signal.SIGUSR1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    sweep()
                    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
