"""The process that stands by in an environment with the training stack imported: what it forks, and what not."""

import json
import os
import signal
import socket
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.inside.render import YIELD_OPTIONS
from fermi.engines.inside.session import InsideSession
from fermi.runner import channel, files, processes
from tests import inside_engines
from tests.inside_engines import Inside
from tests.platform_process import free_port
from tests.polling import until

MODULES = ("torch",)
SAYS = """
import json, os, signal, sys, threading
numbers = sorted(map(int, os.listdir("/proc/self/fd")))[:-1]
told = {"torch": "torch" in sys.modules, "env": dict(os.environ), "cwd": os.getcwd(), "nice": os.nice(0),
        "oom": open("/proc/self/oom_score_adj").read().strip(), "umask": os.umask(0), "argv": sys.argv,
        "group": os.getpgid(0) == os.getpid() == os.getsid(0), "path": sys.path[1:],
        "threads": threading.active_count(),
        "ignored": [n for n in range(1, 32) if signal.getsignal(n) is signal.SIG_IGN],
        "name": open("/proc/self/comm").read(),
        "files": [os.path.basename(os.readlink(f"/proc/self/fd/{n}")) for n in numbers]}
import toy
print(json.dumps({**told, "toy": toy.VERSION}), flush=True)
"""
STARTS_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
class cuda:
    is_initialized = staticmethod(lambda: False)
"""


class Lab:
    """An environment whose virtual environment has this machine's packages and a package of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, Inside(folder / "environment")
        self.python = inside_engines.make_venv(folder / "venv")
        inside_engines.install_files(self.python, {"these.pth": f"{sysconfig.get_path('purelib')}\n"})
        inside_engines.install_files(self.python, inside_engines.metadata("toy", "1.0", "toy"))
        self.script = folder / "says.py"
        self.script.write_text(SAYS)
        self.streams: list[InsideSession] = []

    def enter(self) -> InsideSession:
        self.streams.append(self.place.enter(self.python))
        return self.streams[-1]

    def keep(self, seconds: float = 600.0, **request: Any) -> dict[str, Any]:
        """Asks until it has imported everything."""

        def settled() -> Any:
            found = self.ask(seconds, **request)
            return found if found["state"] != "importing" else None

        found: dict[str, Any] = until(settled, seconds=300, what="it has imported everything")
        return found

    def ask(self, seconds: float, **request: Any) -> dict[str, Any]:
        with self.enter() as session:
            asked: dict[str, Any] = {
                "python": self.python,
                "modules": MODULES,
                "seconds": seconds,
                "yields": YIELD_OPTIONS,
                **request,
            }
            return session.request("stand-by", **asked)

    def order(self, name: str, python: str = "", **spec: Any) -> dict[str, Any]:
        whole = {
            "name": name, "node_rank": 0, "node": "dev", "command": [[{"late": "python"}], "-u", str(self.script)],
            "env": {"OMP_NUM_THREADS": "1"}, "ranks": [{"rank": 0, "local_rank": 0, "env": {"RANK": "0"}}],
            "stop_signal": "SIGTERM", "grace_seconds": 5, "yields": YIELD_OPTIONS, "fork": True, "pulse": False, **spec,
        }  # fmt: skip
        meeting = {"nodes": 1, "port": free_port()}
        return {
            "name": name,
            "root": "",
            "data": "",
            "python": python or self.python,
            "meeting": meeting,
            "files": {},
            "spec": whole,
        }

    def begin(self, name: str, secrets: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
        with self.enter() as session:
            order = self.order(name, **spec)
            return session.request("begin", order=order, head="127.0.0.1", secrets=dict(secrets or {}))

    def said(self, name: str) -> dict[str, Any]:
        """What the rank has printed, which it has once."""
        (line,) = self.read_log(name).splitlines()
        found: dict[str, Any] = json.loads(line)
        return found

    def read_log(self, name: str) -> str:
        status = self.place.home / ".fermi/runs" / name / "node-0.status.json"
        until(lambda: (files.read_json(str(status)) or {}).get("state") == "exited", what=f"{name} has ended")
        return (status.parent / "0.log").read_text()

    def folders(self) -> list[Path]:
        return sorted((self.place.home / ".fermi/standby").glob("*"))

    def standing(self) -> dict[str, Any] | None:
        """What the one that lives says of itself."""
        found = [
            said
            for folder in self.folders()
            if (said := channel.read_state(str(folder))) and said["state"] != "unusable"
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def pid(self) -> int:
        said = self.standing()
        assert said
        return int(said["pid"])

    def close(self) -> None:
        for stream in self.streams:
            stream.close()
        self.place.end_container()
        if said := self.standing():
            os.kill(said["pid"], signal.SIGKILL)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    made = Lab(tmp_path_factory.mktemp("standby"))
    yield made
    made.close()


@pytest.fixture
def lab(shared: Lab) -> Lab:
    """With one that stands by."""
    until(lambda: shared.keep()["state"] == "standing", what="one stands by")
    return shared


def test_a_standby_process_is_kept_and_reports_its_memory(lab: Lab) -> None:
    first, again = lab.pid(), lab.keep()
    assert (again["state"], again["python"]) == ("standing", lab.python)
    assert again["memory"] > 50 << 20
    assert lab.pid() == first
    assert processes.read_process_name(first) == channel.PROCESS_NAME
    assert Path(f"/proc/{first}/oom_score_adj").read_text("utf-8").strip() == "1000"
    (folder,) = [one for one in lab.folders() if channel.read_state(str(one))]
    assert (folder / channel.SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_forked_rank_has_torch_and_otherwise_equals_an_executed_one(lab: Lab) -> None:
    assert lab.begin("task-forked-1", {"KEY": "hush"}) == {"id": 1, "ok": True, "began": True}
    lab.begin("task-executed-1", {"KEY": "hush"}, fork=False)
    lab.place.variables["OTHER"] = "1"  # not those with which it began
    try:
        lab.begin("task-alone-1", {"KEY": "hush"})
    finally:
        del lab.place.variables["OTHER"]
    forked, executed, alone = (lab.said(f"task-{name}-1") for name in ("forked", "executed", "alone"))
    assert (forked.pop("torch"), executed.pop("torch"), alone.pop("torch")) == (True, False, False)
    assert (forked["env"]["KEY"], forked["nice"], forked["oom"]) == ("hush", 5, "800")
    assert alone["env"].pop("OTHER") == "1"
    for one in (forked, executed, alone):
        one["env"].pop("NCCL_RAS_ADDR")  # of each attempt another
    assert forked == executed == alone


def test_a_module_is_forked_like_a_script(lab: Lab) -> None:
    lab.begin("task-module-1", cwd=str(lab.folder), command=[{"late": "python"}, "-u", "-m", "says", "--lr=0.1"])
    found = lab.said("task-module-1")
    assert (found["torch"], found["argv"][1:]) == (True, ["--lr=0.1"])


def test_attempts_that_cannot_use_the_standby_say_why(lab: Lab) -> None:
    lab.begin("task-variable-1", fork=False, imports="TORCH_LOGS: read when PyTorch is imported")
    lab.begin("task-python-1", python=sys.executable)
    said = [lab.read_log(f"task-{name}-1").splitlines()[0] for name in ("variable", "python")]
    assert said == [
        "fermi: ranks import PyTorch themselves: TORCH_LOGS: read when PyTorch is imported",
        f"fermi: ranks import PyTorch themselves: the process that stands by has another Python than {sys.executable}",
    ]
    lab.keep(0)
    until(lambda: lab.standing() is None, what="it was ended")
    lab.begin("task-cold-1", fork=False, imports="TORCH_LOGS: read when PyTorch is imported")
    assert lab.said("task-cold-1")["torch"] is False, "and nothing else in its log"


def test_secrets_of_an_attempt_are_gone_once_it_has_started(lab: Lab) -> None:
    secret = "hush-" + os.urandom(8).hex()
    lab.begin("task-secret-1", {"KEY": secret})
    assert lab.said("task-secret-1")["env"]["KEY"] == secret
    lab.begin("task-later-1")
    assert "KEY" not in lab.said("task-later-1")["env"]
    assert secret.encode() not in _memory(lab.pid())
    assert secret not in "".join(
        path.read_text(errors="replace") for path in _files(lab.place.home) if path.name != "0.log"
    )


def test_concurrent_attempts_start_once_each(lab: Lab) -> None:
    names = [f"task-many{number % 3}-1" for number in range(9)]
    with ThreadPoolExecutor(9) as pool:
        began = [answer["began"] for answer in pool.map(lab.begin, names)]
    assert began.count(True) >= 3
    assert all(lab.said(name)["torch"] for name in set(names))


def test_a_standby_killed_between_order_and_fork_loses_no_attempt(lab: Lab) -> None:
    pid = lab.pid()
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        began = pool.submit(lab.begin, "task-killed-1")
        until(lambda: _connecting(pid), what="the order waits")
        os.kill(pid, signal.SIGKILL)
        assert began.result(60)["began"]
    assert lab.said("task-killed-1")["torch"] is False


def test_a_hanging_standby_loses_no_attempt(lab: Lab) -> None:
    pid = lab.pid()
    os.kill(pid, signal.SIGSTOP)
    assert lab.begin("task-hangs-1")["began"]
    os.kill(pid, signal.SIGCONT)
    assert lab.said("task-hangs-1")["torch"] is False


def test_after_an_installation_the_standby_restarts(lab: Lab) -> None:
    pid = lab.pid()
    inside_engines.install_files(lab.python, inside_engines.metadata("other", "2.0", "other"))
    lab.begin("task-stale-1")
    assert lab.said("task-stale-1")["torch"] is False
    assert lab.keep()["state"] == "standing"
    assert lab.pid() == pid, "it executes itself"
    inside_engines.install_files(lab.python, {"toy/__init__.py": "VERSION = '1.1'\n"})
    inside_engines.install_files(lab.python, inside_engines.metadata("toy", "1.1", "toy"))
    assert lab.keep()["state"] == "standing", "a preview is enough"
    lab.begin("task-fresh-1")
    found = lab.said("task-fresh-1")
    assert (found["torch"], found["toy"]) == (True, "1.1")


def test_other_variables_need_another_standby(lab: Lab) -> None:
    pid = lab.pid()
    lab.place.variables["NCCL_DEBUG"] = "INFO"
    try:
        lab.begin("task-variables-1")
        found = lab.said("task-variables-1")
        assert (found["torch"], found["env"]["NCCL_DEBUG"]) == (False, "INFO")
        until(lambda: processes.read_start_time(pid) is None, what="it has ended")
    finally:
        del lab.place.variables["NCCL_DEBUG"]


def test_an_unused_standby_ends(lab: Lab) -> None:
    lab.keep(0)
    until(lambda: lab.standing() is None, what="it was ended")
    assert lab.keep(seconds=0.5)["state"] == "standing"
    until(lambda: lab.standing() is None, what="nobody has asked for it")
    lab.begin("task-alone-2")
    assert lab.said("task-alone-2")["torch"] is False


def test_the_last_used_of_two_interpreters_has_the_standby(lab: Lab) -> None:
    first = lab.pid()
    assert lab.keep(python=sys.executable)["state"] == "standing"
    until(lambda: processes.read_start_time(first) is None, what="the first has ended")
    assert lab.pid() != first


def test_a_foreign_process_on_its_socket_gets_no_order(lab: Lab) -> None:
    pid = lab.pid()
    os.kill(pid, signal.SIGSTOP)
    (folder,) = [one for one in lab.folders() if (channel.read_state(str(one)) or {}).get("pid") == pid]
    (folder / channel.SOCKET_NAME).unlink()
    heard: list[bytes] = []
    with channel.open_socket(str(folder)) as door:
        listening = threading.Thread(target=lambda: heard.append(_hear(door)))
        listening.start()
        assert lab.begin("task-thief-1", {"KEY": "hush"})["began"]
        listening.join()
    os.kill(pid, signal.SIGKILL)
    assert heard == [b""]
    assert lab.said("task-thief-1")["env"]["KEY"] == "hush"


def test_an_interpreter_without_torch_gives_the_reason(tmp_path: Path) -> None:
    bare = inside_engines.make_venv(tmp_path / "bare")
    place = Inside(tmp_path / "environment")
    try:
        with place.enter(bare) as session:
            asked: dict[str, Any] = {"python": bare, "modules": MODULES, "seconds": 600, "yields": YIELD_OPTIONS}
            found = session.request("stand-by", **asked)
            assert (found["state"], found["code"]) == ("unusable", "STANDBY_WITHOUT_TORCH")
            inside_engines.install_files(bare, {"torch.py": STARTS_A_THREAD})
            found = session.request("stand-by", **asked)
            assert (found["code"], found["params"]["threads"]) == ("STANDBY_HAS_THREADS", 2)
    finally:
        place.end_container()


def _hear(door: socket.socket) -> bytes:
    stream, _ = door.accept()
    with stream:
        return stream.recv(1000)


def _connecting(pid: int) -> bool:
    """Whether somebody waits to be let in: a stream at its address that it has not got yet."""
    own = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
    for line in Path("/proc/net/unix").read_text("utf-8").splitlines()[1:]:
        fields = line.split()
        if (
            len(fields) > 7
            and fields[7].endswith(f"/{channel.SOCKET_NAME}")
            and fields[5] == "02"
            and f"socket:[{fields[6]}]" not in own
        ):
            return True
    return False


def _memory(pid: int) -> bytes:
    """All that it may write to, and no file has."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            where, rights, _, _, inode, *_ = line.split()
            if rights.startswith("rw") and inode == "0":
                begin, end = (int(address, 16) for address in where.split("-"))
                memory.seek(begin)
                try:
                    found.append(memory.read(end - begin))
                except OSError:
                    continue
    return b"".join(found)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and "bundles" not in path.parts]
