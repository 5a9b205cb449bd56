"""The process that stands by: it stays, shares nothing between orders, and notices what is installed meanwhile."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.local import launcher
from fermi.engines.local.launcher import Launcher
from fermi.jobs.errors import BackendError
from fermi.runner import files
from tests import packages
from tests.polling import until

PRELOAD = ("decimal", "fractions")
WAITS_FOR_CODE = """
import os, time
until = time.monotonic() + 60
while not os.path.exists("{path}"):
    if time.monotonic() > until:
        raise ImportError("there is no code")
    time.sleep(0.01)
"""


@pytest.fixture
def starting() -> Iterator[Launcher]:
    launching = Launcher(sys.executable, warm=True)
    yield launching
    launching.close()
    until(lambda: not any(one.is_running() for one in launching._leaving))


def order(
    launching: Launcher, folder: Path, script: str, *preload: str,
    env: Mapping[str, str] | None = None, spec: Mapping[str, Any] | None = None, **secrets: str,
) -> dict[str, Any]:  # fmt: skip
    """The status of a node whose one rank ran `script`. `spec`: more of its spec."""
    folder.mkdir()
    (folder / "script.py").write_text(script, encoding="utf-8")
    content = {
        "name": folder.name, "node_rank": 0, "command": [sys.executable, "-u", str(folder / "script.py")],
        "cwd": str(folder), "env": dict(env or {}), "stop_signal": "SIGTERM", "grace_seconds": 30, "fork": True,
        "ranks": [{"rank": 0, "local_rank": 0, "env": {}, "log": str(folder / "0.log")}],
        **(spec or {}),
    }  # fmt: skip
    path = folder / "node-0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    launching.launch(folder.name, [path], preload or PRELOAD, folder / "launch.log", secrets)
    until(partial(_idle, launching, folder.name), what="the order is carried out")

    def ended() -> dict[str, Any] | None:
        status = files.read_json(str(folder / "node-0.status.json"))
        return status if status and status["state"] == "exited" else None

    return until(ended, what="its rank has ended")


def _idle(launching: Launcher, name: str) -> bool:
    return not launching.is_busy(name)


def read_log(folder: Path) -> str:
    return (folder / "0.log").read_text(encoding="utf-8")


def standing(launching: Launcher) -> int:
    assert launching._standing_by
    return launching._standing_by._process.pid


def test_it_serves_the_next_launch_and_leaves_no_zombie(starting: Launcher, tmp_path: Path) -> None:
    starting.stand_by(PRELOAD)
    first = standing(starting)
    for name in ("a-1", "b-1", "b-2"):
        status = order(starting, tmp_path / name, "import sys; print('decimal' in sys.modules)")
        assert (status["ranks"][0]["exit_code"], read_log(tmp_path / name)) == (0, "True\n")
        assert standing(starting) == first
    assert Path(f"/proc/{first}/task/{first}/children").read_text(encoding="utf-8") == ""


def test_a_launcher_with_other_imports_replaces_it(starting: Launcher, tmp_path: Path) -> None:
    starting.stand_by(PRELOAD)
    idle, asked = starting._standing_by, "import sys; print('colorsys' in sys.modules)"
    order(starting, tmp_path / "a-1", asked, "colorsys")
    assert idle
    assert not idle.is_running(), "nothing was asked of it, so it was ended"
    used = starting._standing_by
    order(starting, tmp_path / "b-1", asked)
    assert (read_log(tmp_path / "a-1"), read_log(tmp_path / "b-1")) == ("True\n", "False\n")
    assert used
    until(lambda: not used.is_running(), what="it ends when it has done what it was told")


def test_it_serves_launches_that_import_more_of_the_same_packages(starting: Launcher, tmp_path: Path) -> None:
    starting.stand_by(("json", "decimal"))
    first, asked = standing(starting), "import sys; print('json.tool' in sys.modules)"
    order(starting, tmp_path / "a-1", asked, "json", "decimal", "json.tool")
    order(starting, tmp_path / "b-1", asked, "decimal", "json")
    assert standing(starting) == first
    assert read_log(tmp_path / "a-1") == "True\n", "imported once, for all ranks of this order"
    assert read_log(tmp_path / "b-1") == "False\n", "and for no other"


def test_code_is_unpacked_while_modules_are_imported(starting: Launcher, monkeypatch, tmp_path: Path) -> None:
    tree = tmp_path / "trees" / "code"
    (tmp_path / "waits_for_code.py").write_text(WAITS_FOR_CODE.format(path=f"{tree}.attempt"))
    inherited = launcher.build_training_env()
    path = f"{inherited['PYTHONPATH']}{os.pathsep}{tmp_path}"
    monkeypatch.setattr(launcher, "build_training_env", lambda: {**inherited, "PYTHONPATH": path})
    snapshot = packages.archive(tmp_path / "archives", {"train.py": "print('from the snapshot')\n"})
    code = {"snapshot": snapshot, "folder": str(tmp_path / "archives" / snapshot), "cache": str(tmp_path / "cache")}
    spec = {"cwd": str(tree), "code": code, "command": [sys.executable, "-u", "train.py"]}
    order(starting, tmp_path / "a-1", "", "waits_for_code", spec=spec)
    assert read_log(tmp_path / "a-1") == "from the snapshot\n"
    assert (tmp_path / "a-1" / "launch.log").read_text() == "", "the import has seen the code"


def test_a_cold_launcher_exits_after_its_work(tmp_path: Path) -> None:
    cold = Launcher(sys.executable, warm=False)
    cold.stand_by(PRELOAD)
    assert not cold._standing_by
    order(cold, tmp_path / "a-1", "print('trained')")
    assert read_log(tmp_path / "a-1") == "trained\n"
    until(lambda: not any(one.is_running() for one in cold._leaving))


SECRET = "hunter2-of-the-first-order-only"
LOOKS_FOR_IT = f"""
import re
sought = re.compile(rb"[{SECRET[0]}]{SECRET[1:]}")
found = 0
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        area, rights, *_ = line.split()
        if "r" in rights and "[v" not in line:
            start, end = (int(one, 16) for one in area.split("-"))
            memory.seek(start)
            try:
                found += len(sought.findall(memory.read(end - start)))
            except OSError:
                pass
print(found > 0)
"""
"""The pattern itself is not what it looks for."""


def test_no_page_of_a_rank_has_the_secrets_of_another_order(starting: Launcher, tmp_path: Path) -> None:
    order(starting, tmp_path / "a-1", LOOKS_FOR_IT, TOKEN=SECRET * 500)  # more than the next order could write over
    order(starting, tmp_path / "b-1", LOOKS_FOR_IT)
    assert (read_log(tmp_path / "a-1"), read_log(tmp_path / "b-1")) == ("True\n", "False\n")


def test_packages_installed_meanwhile_are_imported_by_ranks(
    starting: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    inherited = launcher.build_training_env()
    inherited |= {"PYTHONPATH": os.pathsep.join([inherited["PYTHONPATH"], str(packages)])}
    monkeypatch.setattr(launcher, "build_training_env", lambda: inherited)
    script = "import framework; print(framework.VERSION)"
    (packages / "framework.py").write_text("VERSION = 1", encoding="utf-8")
    order(starting, tmp_path / "a-1", script, "framework")
    first = standing(starting)
    (packages / "upgraded.py").write_text("VERSION = 22", encoding="utf-8")
    (packages / "upgraded.py").rename(packages / "framework.py")
    for name in ("b-1", "c-1"):
        order(starting, tmp_path / name, script, "framework")
    assert [read_log(tmp_path / name) for name in ("a-1", "b-1", "c-1")] == ["1\n", "22\n", "22\n"]
    assert standing(starting) == first, "it began anew, with the order in hand"


def test_a_failed_order_is_reported_and_the_next_one_runs(starting: Launcher, tmp_path: Path) -> None:
    starting.stand_by(PRELOAD)
    for name in ("x-1", "y-1"):
        starting.launch(name, [], PRELOAD, tmp_path / "no folder" / "launch.log")
        until(partial(_idle, starting, name))
        with pytest.raises(BackendError) as refused:
            starting.launch(name, [], PRELOAD, tmp_path / "launch.log")
        assert (refused.value.code, refused.value.params["exitCode"]) == ("LAUNCHER_FAILED", 1)
    order(starting, tmp_path / "a-1", "print('trained')")
    assert read_log(tmp_path / "a-1") == "trained\n"


def test_a_dead_launcher_is_replaced(starting: Launcher, tmp_path: Path) -> None:
    order(starting, tmp_path / "a-1", "print('trained')")
    dead = starting._standing_by
    assert dead
    dead._process.kill()
    dead._process.wait()
    order(starting, tmp_path / "b-1", "print('trained')")
    assert read_log(tmp_path / "b-1") == "trained\n"


def test_a_file_left_open_by_a_script_is_flushed(starting: Launcher, tmp_path: Path) -> None:
    """As the interpreter does at its end, which a forked rank does not wait for."""
    order(starting, tmp_path / "a-1", "left = open('left', 'w'); left.write('all of it')")
    assert (tmp_path / "a-1" / "left").read_text(encoding="utf-8") == "all of it"


def test_a_forked_rank_has_no_idle_threads(starting: Launcher, tmp_path: Path) -> None:
    """PyTorch's pthreadpool would start them at once, and again in each worker of a DataLoader."""
    script = "import os, torch; print(torch.get_num_threads(), len(os.listdir('/proc/self/task')))"
    order(starting, tmp_path / "a-1", script, "torch", env={"OMP_NUM_THREADS": "4"})
    assert read_log(tmp_path / "a-1") == "4 1\n"


@pytest.mark.parametrize("ends", ["raise SystemExit", "os.kill(os.getpid(), 9)"])
def test_output_of_c_libraries_is_in_the_log_at_once(starting: Launcher, tmp_path: Path, ends: str) -> None:
    """NCCL prints its warnings this way, and does not flush."""
    order(starting, tmp_path / "a-1", f"import ctypes, os; ctypes.CDLL(None).printf(b'NCCL WARN a line'); {ends}")
    assert read_log(tmp_path / "a-1") == "NCCL WARN a line"


def test_a_file_left_open_by_a_c_library_is_flushed(starting: Launcher, tmp_path: Path) -> None:
    script = "import ctypes; libc = ctypes.CDLL(None); libc.fopen.restype = ctypes.c_void_p\n"
    script += "libc.fputs(b'all of it', ctypes.c_void_p(libc.fopen(b'left', b'w')))"
    order(starting, tmp_path / "a-1", script)
    assert (tmp_path / "a-1" / "left").read_text(encoding="utf-8") == "all of it"


def test_modules_of_runners_and_ranks_are_preloaded(starting: Launcher, tmp_path: Path) -> None:
    asked = "import sys; from fermi.runner.fork_server import DEFERRED_MODULES as late; "
    asked += "print(sorted(set(late) - set(sys.modules)))"
    for name in ("a-1", "b-1"):  # the first of a fresh process would not wait for them
        order(starting, tmp_path / name, asked)
    assert read_log(tmp_path / "b-1") == "[]\n"


def test_the_first_import_of_an_optimizer_starts_no_thread() -> None:
    """A process that has threads cannot be forked for ranks."""
    script = (
        "import os, torch; from fermi.runner import fork_server; look = lambda: len(os.listdir('/proc/self/task')); "
    )
    script += (
        "before = look(); fork_server.warm_up_profiler(); print(before == look(), '_record_function_enter_new' in "
    )
    script += "vars(torch.ops.profiler))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "True True\n"
