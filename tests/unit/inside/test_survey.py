"""What a program inside of an environment finds there: interpreters, packages, kernels, the container."""

import ast
import fcntl
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from fermi.engines import bundle
from fermi.engines.inside.session import InsideError, InsideSession
from fermi.inside import __main__ as inside_main
from fermi.inside import (
    container,
    installation,
    installed,
    interpreters,
    kernels,
    memory_holders,
    packages,
    protocol,
    user_processes,
)
from fermi.runner import processes
from tests import inside_engines
from tests.inside_engines import Inside
from tests.platform_process import free_port
from tests.polling import until

KERNEL = "import sys, time; print('up', flush=True); sys.stdin.read()"


@pytest.fixture
def inside(tmp_path: Path) -> Iterator[Inside]:
    place = Inside(tmp_path / "environment")
    yield place
    place.end_container()


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter without Jupyter."""
    return inside_engines.make_venv(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, bare: str, tmp_path: Path) -> None:
    """What this machine has for everybody is not looked at, nor what the tests' own interpreter has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(user_processes, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(interpreters, "OWN_INTERPRETER", bare)


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[Any]]]:
    """What a test starts, ended with it."""
    found: list[subprocess.Popen[Any]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def kernelspec(jupyter: Path, name: str, *argv: str) -> None:
    folder = jupyter / "kernels" / name
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(
        json.dumps({"argv": [*argv, "-m", "ipykernel_launcher", "-f", "{connection_file}"]})
    )


def start_kernel(started: list[subprocess.Popen[Any]], python: str, env: dict[str, str], name: str = "one") -> int:
    """A process that looks as a kernel of ipykernel does: its interpreter has none of the real one's packages."""
    words = ["ipykernel_launcher", "-f", f"/tmp/kernel-{name}.json"]
    process = subprocess.Popen(
        [python, "-c", KERNEL, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )  # fmt: skip
    started.append(process)
    assert process.stdout
    assert process.stdout.readline() == b"up\n"
    return process.pid


def only(*pids: int) -> Sequence[user_processes.UserProcess]:
    return [one for one in user_processes.list_own_processes() if one.pid in pids]


def by_path(found: dict[str, Any]) -> dict[str, Any]:
    return {one["python"]: one for one in found["interpreters"]}


def test_the_default_interpreter_is_that_of_path(inside: Inside) -> None:
    folder = inside.home / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(os.path.realpath(sys.executable))
    found = interpreters.find_interpreters({**inside.variables, "PATH": str(folder)}, [])
    assert found["default"] == str(folder / "python3")
    assert by_path(found)[found["default"]]["sources"] == ["path"]
    assert by_path(found)[found["default"]]["version"] == sys.version.split()[0]


def test_an_activated_virtual_environment_precedes_path(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "venv")
    found = interpreters.find_interpreters({**inside.variables, "VIRTUAL_ENV": str(inside.home / "venv")}, [])
    assert found["default"] in (python, f"{python}3")


def test_a_uv_virtual_environment_is_found_in_the_home_directory(inside: Inside) -> None:
    inside_engines.make_venv(inside.home / ".venv")
    found = interpreters.find_interpreters(inside.variables, [])
    assert found["default"].startswith(str(inside.home / ".venv/bin/"))


def test_a_kernelspec_named_python3_precedes_a_virtual_environment(inside: Inside) -> None:
    mine, other = inside_engines.make_venv(inside.home / "mine"), inside_engines.make_venv(inside.home / "other")
    kernelspec(inside.home / ".local/share/jupyter", "python3", mine)
    kernelspec(inside.home / ".local/share/jupyter", "analysis", other)
    found = interpreters.find_interpreters({**inside.variables, "VIRTUAL_ENV": str(inside.home / "other")}, [])
    assert found["default"] == mine
    assert by_path(found)[mine]["kernels"] == ["python3"]
    assert "analysis" in by_path(found)[other]["kernels"]
    assert interpreters.resolve_interpreter("analysis", found) == other
    assert interpreters.resolve_interpreter("/opt/python", found) == "/opt/python"
    assert interpreters.resolve_interpreter("nothing", found) == ""


def test_python_in_a_kernelspec_means_the_interpreter_of_its_prefix(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "conda")
    kernelspec(inside.home / "conda/share/jupyter", "python3", "python")
    found = interpreters.find_interpreters({**inside.variables, "CONDA_PREFIX": str(inside.home / "conda")}, [])
    assert by_path(found)[found["default"]]["kernels"] == ["python3"]
    assert os.path.dirname(found["default"]) == os.path.dirname(python)


def test_folders_of_jupyter_path_come_first(inside: Inside) -> None:
    mine, other = inside_engines.make_venv(inside.home / "mine"), inside_engines.make_venv(inside.home / "other")
    kernelspec(inside.home / "said", "python3", mine)
    kernelspec(inside.home / ".local/share/jupyter", "python3", other)
    found = interpreters.find_interpreters({**inside.variables, "JUPYTER_PATH": str(inside.home / "said")}, [])
    assert found["default"] == mine


def test_a_configured_interpreter_precedes_all(
    inside: Inside, started: list[subprocess.Popen[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of this machine's processes has it, beside other environments' kernels of the same user."""
    mine, other = inside_engines.make_venv(inside.home / "mine"), inside_engines.make_venv(inside.home / "other")
    env = {**inside.variables, "FERMI_PYTHON": mine}
    strangers = start_kernel(started, other, {**inside.variables, "HOME": "/home/of-another"})
    own = start_kernel(started, mine, env)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    seen = {one.pid for one in user_processes.list_own_processes()}
    assert own in seen
    assert strangers not in seen
    assert interpreters.find_interpreters(env)["default"] == mine


def test_the_newest_running_kernel_precedes_all(inside: Inside, started: list[subprocess.Popen[Any]]) -> None:
    spec, older, newer = (inside_engines.make_venv(inside.home / name) for name in ("spec", "older", "newer"))
    kernelspec(inside.home / ".local/share/jupyter", "python3", spec)
    pids = [start_kernel(started, python, inside.variables) for python in (older, newer)]
    assert interpreters.find_interpreters(inside.variables, only(*pids))["default"] == newer
    assert interpreters.find_interpreters(inside.variables, only(pids[0]))["default"] == older


def test_invalid_kernelspecs_are_ignored(inside: Inside) -> None:
    jupyter = inside.home / ".local/share/jupyter"
    kernelspec(jupyter, "python3", "/opt/start-kernel.sh")
    (jupyter / "kernels/broken").mkdir()
    (jupyter / "kernels/broken/kernel.json").write_text("{")
    (jupyter / "kernels/list").mkdir()
    (jupyter / "kernels/list/kernel.json").write_text("[]")
    assert all(not one["kernels"] for one in interpreters.find_interpreters(inside.variables, [])["interpreters"])


def test_a_broken_interpreter_is_never_the_default(inside: Inside) -> None:
    kernelspec(inside.home / ".local/share/jupyter", "python3", "/nowhere/bin/python3")
    found = interpreters.find_interpreters(inside.variables, [])
    assert by_path(found)["/nowhere/bin/python3"]["version"] == ""
    assert found["default"] != "/nowhere/bin/python3"


def test_two_names_in_one_folder_are_one_interpreter(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "venv")
    kernelspec(inside.home / ".local/share/jupyter", "python3", python)
    found = interpreters.find_interpreters({**inside.variables, "VIRTUAL_ENV": str(inside.home / "venv")}, [])
    assert by_path(found)[python]["sources"] == ["kernelspec", "virtualenv"]


def test_kernelspecs_are_limited(inside: Inside) -> None:
    for number in range(interpreters.MAX_KERNELS + 20):
        kernelspec(inside.home / ".local/share/jupyter", f"kernel{number}", f"/nowhere/{number}/bin/python")
    found = interpreters.find_interpreters(inside.variables, [])
    assert len(found["interpreters"]) <= interpreters.MAX_INTERPRETERS


def test_packages_are_listed_by_their_interpreter(tmp_path: Path) -> None:
    python = inside_engines.make_venv(tmp_path / "venv")
    inside_engines.install_files(python, inside_engines.metadata("Torch-Like.Toy", "2.5", "toy"))
    editable = json.dumps({"url": "file:///src", "dir_info": {"editable": True}})
    inside_engines.install_files(python, inside_engines.metadata("mine", "0.1", **{"direct_url.json": editable}))
    found = packages.describe_packages(python, ["toy", "json", "absent", "not a name"])
    assert found["distributions"]["Torch-Like.Toy"] == {"version": "2.5"}
    assert found["distributions"]["mine"] == {"version": "0.1", "origin": "editable"}
    assert found["imports"] == {
        "toy": {"found": True, "distribution": "Torch-Like.Toy"},
        "json": {"found": True, "distribution": ""},
        "absent": {"found": False, "distribution": ""},
    }
    assert found["torch"] == {}


def test_a_module_in_the_working_directory_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lying.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert not packages.describe_packages(sys.executable, ["lying"])["imports"]["lying"]["found"]


def test_torch_is_read_without_importing_it(tmp_path: Path) -> None:
    python = inside_engines.make_venv(tmp_path / "venv")
    inside_engines.install_files(python, inside_engines.metadata("torch", "2.5.1+cu124", "torch"))
    version = "__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\nhip: Optional[str] = None\n"
    inside_engines.install_files(
        python, {"torch/__init__.py": "raise SystemExit('imported')", "torch/version.py": version}
    )
    inside_engines.install_files(python, inside_engines.metadata("nvidia-nccl-cu12", "2.21.5"))
    assert packages.describe_packages(python, ["torch"])["torch"] == {
        "version": "2.5.1+cu124",
        "cuda": "12.4",
        "nccl": "2.21.5",
    }


def test_nccl_is_identified_by_its_library_where_it_is_no_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libnccl.so.2.19.3").touch()
    (tmp_path / "lib/libnccl.so.2").symlink_to("libnccl.so.2.19.3")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert installed.find_nccl_version({}, str(tmp_path)) == "2.19.3"


def test_output_of_packages_at_start_up_hides_no_answer(tmp_path: Path) -> None:
    python = inside_engines.make_venv(tmp_path / "venv")
    inside_engines.install_files(python, {"loud.pth": "import sys; print('hello from a .pth')\n"})
    assert "loud" not in packages.describe_packages(python, [])["distributions"]


@pytest.mark.parametrize("program", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho '[]'\n", "no program"])
def test_an_invalid_interpreter_is_refused_with_its_path(tmp_path: Path, program: str) -> None:
    path = tmp_path / "python"
    path.write_text(program)
    path.chmod(0o755)
    with pytest.raises(protocol.InsideRefusedError) as refused:
        packages.describe_packages(str(path), [])
    assert refused.value.code == "INSIDE_PYTHON_UNUSABLE"
    assert refused.value.params["python"] == str(path)


def test_a_hanging_interpreter_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "TIMEOUT_SECONDS", 0.3)
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\nsleep 1000 & echo $! > {tmp_path}/pid\nwait\n")
    path.chmod(0o755)
    with pytest.raises(protocol.InsideRefusedError) as refused:
        packages.describe_packages(str(path), [])
    assert refused.value.code == "INSIDE_PYTHON_SLOW"
    pid = int((tmp_path / "pid").read_text())
    until(lambda: processes.read_start_time(pid) is None, what="the child has ended")


def test_a_process_with_an_open_gpu_is_a_memory_holder_of_its_kernel(
    tmp_path: Path, inside: Inside, started: list[subprocess.Popen[Any]]
) -> None:
    """The devices are links as /proc shows them: a machine of the tests has none."""
    pid = start_kernel(started, sys.executable, {**inside.variables, "JPY_SESSION_NAME": "train.ipynb"}, "k1")
    for number, target in enumerate(("/dev/nvidiactl", "/dev/nvidia3", "/dev/nvidia-uvm", "/dev/null")):
        folder = tmp_path / "proc" / str(pid) / "fd"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).symlink_to(target)
    found = memory_holders.find_holders(only(pid), str(tmp_path / "proc"))
    (holder,) = found["holders"]
    assert (holder["pid"], holder["gpus"], holder["kernel"]) == (pid, [3], pid)
    assert holder["rss_bytes"] > 0
    assert "gpu_bytes" not in holder
    (kernel,) = found["kernels"]
    assert (kernel["id"], kernel["notebook"], kernel["busy"]) == ("k1", "train.ipynb", None)


def test_a_kernel_without_a_gpu_is_a_memory_holder_and_a_rank_is_none(
    inside: Inside, started: list[subprocess.Popen[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_holders, "MIN_KERNEL_BYTES", 1 << 20)
    kernel = start_kernel(started, sys.executable, inside.variables, "k1")
    rank = start_kernel(started, sys.executable, {**inside.variables, "FERMI_TASK_ID": "task-x"}, "k2")
    found = memory_holders.find_holders(only(kernel, rank))
    assert [(one["pid"], one["kernel"], one["gpus"]) for one in found["holders"]] == [(kernel, kernel, [])]


def test_a_kernel_is_ended_only_if_it_is_still_the_same_process(
    inside: Inside, started: list[subprocess.Popen[Any]]
) -> None:
    pid = start_kernel(started, sys.executable, inside.variables, "k1")
    sleeper = subprocess.Popen(["sleep", "600"])
    started.append(sleeper)
    with inside.enter() as session:
        for refused in (
            {"pid": pid, "started": (processes.read_start_time(pid) or 0) + 1},
            {"pid": sleeper.pid, "started": processes.read_start_time(sleeper.pid)},  # no kernel
        ):
            with pytest.raises(InsideError) as error:
                session.request("end-kernel", **refused)
            assert error.value.code == "INSIDE_KERNEL_GONE"
        assert processes.read_start_time(pid)
        assert session.request("end-kernel", pid=pid, started=processes.read_start_time(pid))["by"] == "signal"
    assert processes.read_start_time(pid) is None
    assert processes.read_start_time(sleeper.pid)


def test_a_kernel_that_does_not_end_is_reported_alive(
    inside: Inside, started: list[subprocess.Popen[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "END_TIMEOUT_SECONDS", 0.1)
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {KERNEL}"
    monkeypatch.setitem(globals(), "KERNEL", deaf)
    pid = start_kernel(started, sys.executable, inside.variables, "k1")
    with pytest.raises(protocol.InsideRefusedError) as refused:
        kernels.end_kernel({"pid": pid, "started": processes.read_start_time(pid)})
    assert refused.value.code == "INSIDE_KERNEL_LIVES"


@pytest.mark.parametrize(
    ("told", "holders_", "expected"),
    [
        ({7: 100}, 3, {"gpu_bytes": 100}),
        ({99: 100}, 1, {"gpu_bytes": 100}),  # the driver tells an id of the machine's
        ({99: 100}, 2, {}),
        ({99: 100, 98: 1}, 1, {}),
        ({}, 1, {}),
    ],
)
def test_memory_is_reported_only_for_certain_processes(
    told: dict[int, int], holders_: int, expected: dict[str, int]
) -> None:
    assert memory_holders._choose_gpu_memory(7, holders_, told) == expected


def test_a_jupyter_server_reports_a_kernels_notebook_and_activity(
    inside: Inside, started: list[subprocess.Popen[Any]]
) -> None:
    """A real server with a real kernel."""
    port = free_port()
    (inside.home / "train.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    env = {**inside.variables, "PATH": f"{os.path.dirname(sys.executable)}:/usr/bin:/bin"}
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
         "--IdentityProvider.token=secret", "--allow-root", f"--ServerApp.root_dir={inside.home}"],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started.append(server)

    def ask(path: str, data: dict[str, Any] | None = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        headers = {"Authorization": "token secret", "Content-Type": "application/json"}
        try:
            asking = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
            with urllib.request.urlopen(asking, timeout=60) as answer:
                return json.load(answer)
        except OSError:
            return None

    until(lambda: ask("/api/status"), what="the server answers")
    about = {"path": "train.ipynb", "name": "train.ipynb", "type": "notebook", "kernel": {"name": "python3"}}
    made = until(lambda: ask("/api/sessions", about), what="a kernel")["kernel"]["id"]

    def mine() -> list[user_processes.UserProcess]:
        return [one for one in user_processes.list_own_processes() if server.pid in (one.pid, one.parent)]

    def look(busy: bool) -> Any:
        found = memory_holders.find_holders(mine())["kernels"]
        return found and found[0]["busy"] is busy and found[0]

    with connect(f"ws://127.0.0.1:{port}/api/kernels/{made}/channels?token=secret") as channel:
        kernel = until(lambda: look(False), what="the kernel is idle")
        assert (kernel["id"], kernel["notebook"]) == (made, "train.ipynb")
        channel.send(json.dumps(message("while True: pass")))
        until(lambda: look(True), what="the kernel is busy")
    found = interpreters.find_interpreters(inside.variables, mine())
    assert by_path(found)[found["default"]]["sources"][0] == "kernel"
    assert os.path.dirname(found["default"]) == os.path.dirname(sys.executable)
    ended = kernels.end_kernel({"pid": kernel["pid"], "started": kernel["started"]})
    assert (ended["by"], ask("/api/kernels")) == ("jupyter", []), "its server knows, and does not start it again"


def message(code: str) -> dict[str, Any]:
    """An `execute_request` (https://jupyter-client.readthedocs.io/en/stable/messaging.html)."""
    header = {"msg_id": "1", "username": "", "session": "s", "msg_type": "execute_request", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }


def test_the_container_reports_its_limits_and_devices() -> None:
    found = container.describe_container("/home/user/.fermi")
    assert found["memory_limit"] > found["memory_used"] > 0
    assert found["processors"] > 0
    assert found["home"] == "/home/user/.fermi"
    assert found["user"] == os.getuid()
    assert "127.0.0.1" in next(one["addresses"] for one in found["interfaces"] if one["name"] == "lo")


def tree(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return str(root)


def test_cgroup_v1_limits_are_read(tmp_path: Path) -> None:
    root = tree(tmp_path, {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{8 << 30}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 << 30}\n",
        "sys/fs/cgroup/memory/memory.stat": f"cache 5\ntotal_inactive_file {1 << 30}\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "250000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    })  # fmt: skip
    found = container.describe_container("/h", root)
    assert (found["memory_limit"], found["memory_used"], found["processors"]) == (8 << 30, 2 << 30, 2.5)
    assert found["memory_is_limited"]


def test_a_container_without_a_limit_says_so(tmp_path: Path) -> None:
    root = tree(tmp_path, {
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n",
    })  # fmt: skip
    found = container.describe_container("/h", root)
    assert (found["memory_limit"], found["memory_used"]) == (1000 << 10, 600 << 10)
    assert not found["memory_is_limited"]


def test_rdma_devices_are_listed_with_their_access(tmp_path: Path) -> None:
    root = tree(tmp_path, {
        "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
    })  # fmt: skip
    found = container.describe_container("/h", root)
    assert found["rdma"] == [{"device": "mlx5_0", "layer": "InfiniBand", "state": "ACTIVE", "usable": False}]
    tree(tmp_path, {"dev/infiniband/uverbs3": "", "sys/class/infiniband_verbs/uverbs3/ibdev": "mlx5_0\n"})
    (one,) = container.describe_container("/h", root)["rdma"]
    assert one["usable"]


def test_a_survey_over_the_stream_answers_the_request(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "venv")
    kernelspec(inside.home / ".local/share/jupyter", "mine", python)
    inside_engines.install_files(python, inside_engines.metadata("toy", "1.0", "toy"))
    with inside.enter() as session:
        cheap = session.request("survey")
        assert cheap["container"]["home"] == str(inside.home / ".fermi")
        assert cheap["life"].count("/") == 1
        assert "mine" in by_path(cheap)[python]["kernels"]
        assert "packages" not in cheap
        found = session.request("survey", parts=["packages"], python="mine", imports=["toy"])
        assert found["packages"]["python"] == python
        assert found["packages"]["imports"]["toy"]["found"]
        assert session.request("survey", parts=["holders"])["holders"]["gpus"] == []
        with pytest.raises(InsideError):
            session.request("survey", parts=["packages"], python="other")


def test_a_kernels_name_selects_the_nodes_interpreter(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "venv")
    kernelspec(inside.home / ".local/share/jupyter", "mine", python)
    order = {"name": "task-1", "python": "mine"}
    inside.variables["JUPYTER_DATA_DIR"] = str(inside.home / ".local/share/jupyter")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in inside.variables.items():
            patched.setenv(name, value)
        assert inside_main.resolve_request_interpreter({"order": order})["order"]["python"] == python
        with pytest.raises(protocol.InsideRefusedError) as refused:
            inside_main.resolve_request_interpreter({"order": {**order, "python": "other"}})
    assert refused.value.code == "INSIDE_KERNEL_UNKNOWN"
    assert "mine" in refused.value.params["known"]
    assert inside_main.resolve_request_interpreter({"order": {"python": "/opt/python"}}) == {
        "order": {"python": "/opt/python"}
    }


def test_packages_are_installed_once_and_their_output_reported(tmp_path: Path, inside: Inside) -> None:
    inside_engines.make_wheel(tmp_path / "wheels", "toy", "1.0", "toy")
    inside.variables.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "wheels"))
    python = inside_engines.make_venv(inside.home / "venv", pip=True)
    said: list[dict[str, Any]] = []
    with inside.enter() as session:
        session.came = lambda told, _: said.append(told)
        assert session.request("install", packages=["toy==1.0"], python=python)["exit"] == 0
        assert "Successfully installed toy-1.0" in "".join(one["output"] for one in said)
        assert packages.describe_packages(python, ["toy"])["imports"]["toy"]["found"]
        said.clear()
        assert session.request("install", packages=["toy==1.0"], python=python)["exit"] == 0
        assert "already satisfied" in "".join(one["output"] for one in said)
        said.clear()
        assert session.request("install", packages=["absent"], python=python)["exit"] == 1
        assert "No matching distribution" in "".join(one["output"] for one in said)


def test_uv_installs_where_an_interpreter_has_no_pip(tmp_path: Path, inside: Inside) -> None:
    uv = shutil.which("uv", path=os.path.dirname(sys.executable))
    if uv is None:
        pytest.skip("uv is not installed")
    inside_engines.make_wheel(tmp_path / "wheels", "toy", "1.0", "toy")
    (inside.home / ".config/uv").mkdir(parents=True)
    config = f"no-index = true\nfind-links = ['{tmp_path}/wheels']\n"
    (inside.home / ".config/uv/uv.toml").write_text(config)
    inside.variables["PATH"] = f"{os.path.dirname(uv)}:/usr/bin:/bin"
    python = inside_engines.make_venv(inside.home / "venv")
    said: list[str] = []
    with inside.enter() as session:
        session.came = lambda told, _: said.append(told["output"])
        assert session.request("install", packages=["toy"], python=python)["exit"] == 0, "".join(said)
    assert packages.describe_packages(python, ["toy"])["imports"]["toy"]["found"]


def test_without_pip_and_uv_nothing_is_installed(inside: Inside) -> None:
    python = inside_engines.make_venv(inside.home / "venv")
    with inside.enter() as session, pytest.raises(InsideError):
        session.request("install", packages=["toy"], python=python)


def test_a_second_installation_waits_for_the_first(inside: Inside) -> None:
    lock = inside.home / ".fermi/install.lock"
    lock.parent.mkdir()
    held = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    told: list[dict[str, Any]] = []

    def tell(one: dict[str, Any]) -> None:
        told.append(one)
        if len(told) == 1:
            fcntl.flock(held, fcntl.LOCK_UN)

    fcntl.flock(held, fcntl.LOCK_EX)
    other = os.open(lock, os.O_RDWR)
    installation.wait_for_lock(other, float("inf"), tell)
    assert told == [{"of": "install", "waiting": True}]
    os.close(held)
    os.close(other)


@pytest.mark.parametrize(
    "wrong",
    [
        "--index-url=http://x",
        "-r x",
        "./toy",
        "/tmp/toy",
        "toy @ http://x/y.whl",
        "git+https://x",
        "a b",
        "",
        "toy==",
        "a;b",
    ],
)
def test_invalid_package_specifiers_are_never_installed(wrong: str) -> None:
    with pytest.raises(ValueError, match="no name and version"):
        installation.check_packages([wrong])


@pytest.mark.parametrize(
    "right", ["einops==0.8.0", "torch", "a", "Jinja2>=3,<4", "uvicorn[standard]~=0.30", "x==1.0+cu121"]
)
def test_names_with_versions_and_extras_are_accepted(right: str) -> None:
    assert installation.check_packages([right]) == [right]


def test_modules_for_environments_are_valid_python_3_9() -> None:
    """Its syntax, and the annotations and keywords that are newer."""
    for path, text in bundle.collect_modules(bundle.INSIDE_MODULES, ()).items():
        parsed = ast.parse(text, path, feature_version=(3, 9))
        names = [one for one in parsed.body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
        annotated = any(isinstance(one, ast.FunctionDef | ast.AnnAssign) for one in ast.walk(parsed))
        assert names or not annotated or " | " not in text, f"{path} has annotations that Python 3.9 evaluates"
        for call in (one for one in ast.walk(parsed) if isinstance(one, ast.Call)):
            newer = {word.arg for word in call.keywords} & {"slots", "kw_only"}
            assert not newer, f"{path}:{call.lineno} {newer}"


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13", "3.14"])
def test_it_runs_on_every_installed_python(inside: Inside, version: str) -> None:
    python = shutil.which(f"python{version}", path=f"{_pyenv(version)}:{os.environ['PATH']}")
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip(f"no Python {version} here")
    with inside.enter(python) as session:
        found = session.request("survey", parts=["interpreters", "container", "packages", "holders"])
    assert found["version"].startswith(f"{version}.")
    assert found["packages"]["distributions"] is not None


def _pyenv(version: str) -> str:
    """The tests' HOME is not the person's."""
    folders = sorted(Path(pwd.getpwuid(os.getuid()).pw_dir, ".pyenv/versions").glob(f"{version}.*/bin"))
    return str(folders[-1]) if folders else ""


def test_a_stream_with_another_protocol_is_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.sendall(b"bash: python3: command not found\n")
    theirs.close()
    with pytest.raises(InsideError):
        InsideSession(ours).greet()
