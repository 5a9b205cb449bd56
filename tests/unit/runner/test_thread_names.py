"""A confined process on a machine with NVIDIA's driver: it may name its threads, as CUDA does, and change no other."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from fermi.runner import sandbox
from tests.platform_process import ROOT

INSIDE = """
import json, os, subprocess, sys, threading
NAME = '''
import threading
go = threading.Event()
thread = threading.Thread(target=go.wait, daemon=True)
thread.start()
try:
    with open(f"/proc/self/task/{thread.native_id}/comm", "w") as file:
        file.write("cuda-thread")
    with open(f"/proc/self/task/{thread.native_id}/comm") as file:
        said = file.read().strip()
except OSError as error:
    said = error.strerror
go.set()
print(said)
'''
def attempt(path, flags=os.O_WRONLY):
    try:
        os.close(os.open(path, flags))
    except OSError:
        return False
    return True
names = [subprocess.run([sys.executable, "-c", NAME], capture_output=True, text=True).stdout.strip()]
exec(NAME.replace("print(said)", "names.append(said)"))
other = sys.argv[1]
print(json.dumps({
    "names": names,
    "written": [path for path in (
        f"/proc/{other}/oom_score_adj", f"/proc/{other}/autogroup", f"/proc/{other}/comm", "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory",
    ) if attempt(path)],
    "read": all(attempt(path, os.O_RDONLY) for path in (
        "/proc/cpuinfo", "/proc/meminfo", "/proc/self/status", "/proc/sys/kernel/pid_max", "/proc/mounts")),
}))
"""

OUTSIDE = """
import json, os, sys
from fermi.runner import processes, sandbox
order, control, other, inside = json.loads(sys.argv[1])
if control:
    sandbox.NVIDIA_CONTROL = control
processes.refuse_tracers()  # as the platform's own processes do
made = sandbox.Sandbox(order, "test", os.environ)
pid = os.fork()
if pid == 0:
    try:
        made.enter(1)
        os.chdir("/")
        os.execve(sys.executable, [sys.executable, "-c", inside, str(other)], made.environment(os.environ))
    except OSError as error:
        print(json.dumps({"error": str(error)}), flush=True)
    os._exit(1)
os.waitpid(pid, 0)
made.close()
"""


def confined(control: str, *, view: bool, landlock: bool) -> dict[str, Any]:
    """What a process in such a sandbox can do; `control`: what stands for the driver's device."""
    order = {"own": [], "landlock": landlock, "view": view, "paths": {}}
    env = {**os.environ, "PYTHONPATH": str(ROOT / "platform"), "TMPDIR": "/tmp", "FERMI_TRACEABLE": "0"}
    words = json.dumps([order, control, os.getpid(), INSIDE])
    done = subprocess.run(
        [sys.executable, "-c", OUTSIDE, words], capture_output=True, text=True, env=env, check=False, timeout=60
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if "error" in found:
        pytest.skip(f"it cannot be confined so here: {found['error']}")
    return found


WAYS = pytest.mark.parametrize(("view", "landlock"), [(True, True), (False, True), (True, False)])


def need(*, landlock: bool) -> None:
    if landlock and not sandbox.read_landlock_abi():
        pytest.skip("this kernel has no Landlock")


@WAYS
def test_threads_can_be_named_where_the_driver_is(*, view: bool, landlock: bool) -> None:
    need(landlock=landlock)
    found = confined("/dev/null", view=view, landlock=landlock)
    by_child, by_itself = found["names"]
    assert by_itself == "cuda-thread"
    if view or os.geteuid():  # as root, and without a view, its own threads alone (unless /proc/sys is read-only)
        assert by_child == "cuda-thread"
    assert found["read"]


@WAYS
def test_other_processes_and_the_kernel_cannot_be_written(*, view: bool, landlock: bool) -> None:
    """But for processes of the same user where neither root nor another user keeps them apart (decision 87): then the
    platform's own are root's, because they cannot be traced."""
    need(landlock=landlock)
    written = confined("/dev/null", view=view, landlock=landlock)["written"]
    if os.geteuid():
        written = [path for path in written if not path.startswith(f"/proc/{os.getpid()}/")]
    assert written == []


@WAYS
def test_without_the_driver_proc_cannot_be_written(*, view: bool, landlock: bool) -> None:
    need(landlock=landlock)
    found = confined("/dev/absent", view=view, landlock=landlock)
    assert "cuda-thread" not in found["names"]
    assert found["written"] == []
    assert found["read"]
