"""The node runner as the main process of a pod, and how nodes meet, with no cluster at all."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from fermi.runner import barrier, interfaces
from tests.platform_process import free_port
from tests.polling import until

PLATFORM = Path(barrier.__file__).parents[2]


def pod(folder: Path, script: str, ranks: int = 1, under: Sequence[str] = (), **order) -> "subprocess.Popen[bytes]":
    """A pod of one node whose ranks run `python -c script`."""
    job = {
        "name": "task-x-1", "command": [[{"late": "python"}], "-c", script],
        "env": {"MASTER_ADDR": [{"late": "head host"}]}, "nodes": 1, "head": "nowhere", "port": 1,
        "stop_signal": "SIGTERM", "grace_seconds": 20, **order,
    }  # fmt: skip
    (folder / "job").mkdir()
    (folder / "job" / "job.json").write_text(json.dumps(job))
    names = [{"rank": rank, "local_rank": rank, "env": {"RANK": str(rank)}} for rank in range(ranks)]
    env = {
        "PATH": os.environ["PATH"], "PYTHONPATH": str(PLATFORM), "FERMI_RANKS": json.dumps(names), "NODE_RANK": "0",
        "FERMI_TERMINATION_LOG": str(folder / "end"),
    }  # fmt: skip
    command = [*under, sys.executable, "-u", "-m", "fermi.runner.pod", str(folder / "job"), str(folder / "run")]
    return subprocess.Popen(command, env=env, cwd=folder, stdout=subprocess.PIPE)


def lines(output: bytes) -> list[bytes]:
    return [line for line in output.splitlines() if not line.startswith(b"@")]


def test_lines_have_rank_and_position(tmp_path):
    process = pod(tmp_path, "import os; print('one'); print('rank', os.environ['RANK'])", ranks=2)
    output, _ = process.communicate(timeout=60)
    assert sorted(lines(output)) == [b"0:0:one", b"0:4:rank 0", b"1:0:one", b"1:4:rank 1"]
    assert process.returncode == 0
    last = json.loads([line for line in output.splitlines() if line.startswith(b"@")][-1][1:])
    assert [(rank["state"], rank["exit_code"]) for rank in last["ranks"]] == [("exited", 0)] * 2


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv, of util-linux")
def test_a_rank_cannot_imitate_its_runner(tmp_path):
    """With the capabilities of a container: CAP_SYS_PTRACE is none of those that containerd, CRI-O and Docker give by
    default (containerd's pkg/oci/spec.go, CRI-O's internal/config/capabilities, moby's oci/caps)."""
    script = """
import os
for name in ("fd/1", "mem"):
    try:
        open(f"/proc/{os.getppid()}/{name}", "r+b", buffering=0)
    except PermissionError:
        print(name, "is refused")
print(open("/proc/self/environ").read() != "" and "its own is not")
"""
    under = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"] if os.getuid() == 0 else []
    process = pod(tmp_path, script, under=under)
    output, _ = process.communicate(timeout=60)
    said = [line.rpartition(b":")[2] for line in lines(output)]
    assert said == [b"fd/1 is refused", b"mem is refused", b"its own is not"]


def test_arbitrary_bytes_pass_unchanged(tmp_path):
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 100 + b'x' * 40000 + b'\\nno end')"
    output, _ = pod(tmp_path, script).communicate(timeout=60)
    whole = b""
    for line in output.split(b"\n"):
        if line.startswith(b"0"):
            kind, rest = line[1:2], line[2:]
            begin, _, text = rest.partition(b":")
            assert int(begin) == len(whole)
            whole += text + (b"\n" if kind == b":" else b"")
    assert whole == bytes(range(256)) * 100 + b"x" * 40000 + b"\nno end"


def test_exit_code_and_last_output_are_the_failed_ranks(tmp_path):
    script = "import os, sys, time; sys.exit('out of luck') if os.environ['RANK'] == '1' else time.sleep(600)"
    process = pod(tmp_path, script, ranks=2)
    process.communicate(timeout=60)
    said = json.loads((tmp_path / "end").read_text())
    assert (process.returncode, said["rank"], said["tail"]) == (1, 1, "out of luck")


def test_a_signal_is_an_exit_code_above_128(tmp_path):
    process = pod(tmp_path, "import os; os.kill(os.getpid(), 9)")
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL


def test_the_termination_message_is_bounded_for_any_number_of_ranks(tmp_path):
    process = pod(tmp_path, "import sys; print('x' * 5000); sys.exit(1)", ranks=16)
    process.communicate(timeout=60)
    assert len((tmp_path / "end").read_bytes()) <= 4096
    assert json.loads((tmp_path / "end").read_text())["ranks"]


def test_sigterm_is_passed_to_the_ranks(tmp_path):
    script = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready", flush=True)
while True:  # one long sleep would go on if the signal came right before it began
    time.sleep(0.05)
"""
    process = pod(tmp_path, script)
    while not process.stdout.readline().endswith(b"ready\n"):
        pass
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 7


@pytest.mark.parametrize("code", [0, 143])
def test_ranks_that_exit_with_0_because_of_sigterm_have_not_succeeded(tmp_path, code):
    script = f"""
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))
print("ready", flush=True)
while True:  # one long sleep would go on if the signal came right before it began
    time.sleep(0.05)
"""
    process = pod(tmp_path, script)
    while not process.stdout.readline().endswith(b"ready\n"):
        pass
    before = time.time()
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert before <= json.loads((tmp_path / "end").read_text())["terminated"] <= time.time()


def test_a_pod_terminated_at_the_barrier_starts_no_rank(tmp_path):
    process = pod(tmp_path, "print('began')", nodes=2, port=free_port())
    assert b"waiting on port" in process.stdout.readline()
    process.terminate()
    output, _ = process.communicate(timeout=60)
    said = json.loads((tmp_path / "end").read_text())
    assert process.returncode == 128 + signal.SIGTERM
    assert (said["ranks"], said["terminated"] <= time.time()) == ([[0, None, None]], True)
    assert b"0:0:began" not in output


# --- meeting ---


def never() -> bool:
    return False


def together(nodes: int, port: int, **patience) -> tuple[list[str], list[str]]:
    """Who got to go, and what was said."""
    said: list[str] = []
    gone: list[str] = []

    def member(rank: int) -> None:
        gone.append(barrier.wait_as_member("task-x-1", rank, "localhost", port, said.append, never))

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(1, nodes)]
    for thread in threads:
        thread.start()
    barrier.wait_as_head("task-x-1", nodes, port, said.append, never, **patience)
    for thread in threads:
        thread.join(60)
    return gone, said


def test_all_nodes_start_once_all_are_present():
    gone, _ = together(9, free_port())
    assert len(gone) == 8
    assert {address in ("127.0.0.1", "::1") for address in gone} == {True}


def test_an_unreachable_head_address_does_not_hide_the_next(monkeypatch):
    """As on a machine without IPv6, where a name has such an address too. Nobody listens at a broadcast address."""
    found = socket.getaddrinfo

    def nowhere_first(*asked, **more):
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("255.255.255.255", 9)), *found(*asked, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", nowhere_first)
    gone, _ = together(2, free_port())
    assert gone in (["127.0.0.1"], ["::1"])


def test_rank_0_can_listen_on_the_port_afterwards():
    port = free_port()
    together(3, port)
    socket.create_server(("127.0.0.1", port)).close()


def test_the_head_names_missing_nodes():
    with pytest.raises(barrier.RendezvousError) as gave_up:
        barrier.wait_as_head("task-x-1", 5, free_port(), lambda _: None, never, 0.3)
    assert (gave_up.value.cause, gave_up.value.detail) == ("NODES_MISSING", "1-4")


def test_a_waiting_node_names_the_head_and_times_out():
    said: list[str] = []
    with pytest.raises(barrier.RendezvousError) as gave_up:
        barrier.wait_as_member("task-x-1", 1, "nowhere.invalid", 29500, said.append, never, 0.5)
    assert gave_up.value.cause == "MASTER_UNREACHABLE"
    assert said[0].startswith("waiting for the master node at nowhere.invalid:29500")


def test_a_node_of_another_attempt_is_refused():
    port = free_port()

    def knock() -> None:
        with pytest.raises(barrier.RendezvousError):
            barrier.wait_as_member("task-x-2", 1, "localhost", port, print, never, 1.0)

    stranger = threading.Thread(target=knock)
    stranger.start()
    with pytest.raises(barrier.RendezvousError) as gave_up:
        barrier.wait_as_head("task-x-1", 2, port, lambda _: None, never, 1.0)
    stranger.join(60)
    assert gave_up.value.detail == "1"


def test_the_interface_towards_the_head_is_chosen():
    assert interfaces.find_interface_to("127.0.0.1") == "lo"
    assert interfaces.find_interface_to("nowhere.invalid") == ""


def test_a_terminating_pod_waits_for_nothing():
    stop = threading.Event()
    waiting = threading.Thread(target=barrier.wait_as_head, args=("t", 2, free_port(), lambda _: None, stop.is_set))
    waiting.start()
    stop.set()
    until(lambda: not waiting.is_alive())
