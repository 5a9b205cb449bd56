"""The node runner by itself, as a process: how ranks that are left behind end."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi import messages
from fermi.diagnosis import root_cause, rules
from fermi.diagnosis.facts import JobFacts
from fermi.engines import telemetry_reports, untrusted
from fermi.engines.failure_cause import build_rank_status, find_failure_cause
from fermi.engines.local import LocalBackend
from fermi.jobs.spec import Entrypoint, Handle, Observation, Phase
from fermi.planning import plugins
from fermi.runner import causes, files, node
from tests.disks import small_disk
from tests.goldens import job
from tests.platform_process import free_port
from tests.polling import until

PREAMBLE = """
import os, pathlib, signal, sys, time
rank, here = int(os.environ["RANK"]), pathlib.Path(os.environ["HERE"])
def until(name):
    while not (here / name).exists():
        time.sleep(0.01)
def ready():
    (here / f"ready-{rank}").touch()
"""
WAITS_IN_C = """
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    ready()
    time.sleep(600)
"""
"""What a rank with a handler of its own looks like while a collective in C has it: the request never reaches it."""


RUNNER = ("-m", "fermi.runner.node")


def run(folder: Path, script: str, ranks: int, runner: tuple[str, ...] = RUNNER, **spec: Any) -> list[dict[str, Any]]:
    """The ranks' entries once the runner has ended."""
    (folder / "script.py").write_text(PREAMBLE + script, encoding="utf-8")
    content = {
        "name": "task-x-1", "node_rank": 0, "command": [sys.executable, "-u", str(folder / "script.py")],
        "cwd": str(folder), "env": {"HERE": str(folder)}, "stop_signal": "SIGTERM", "grace_seconds": 30, "fork": False,
        "ranks": [
            {"rank": n, "local_rank": n, "env": {"RANK": str(n)}, "log": str(folder / f"{n}.log")} for n in range(ranks)
        ],
        **spec,
    }  # fmt: skip
    (folder / "node-0.json").write_text(json.dumps(content), encoding="utf-8")
    path = os.pathsep.join([str(Path(node.__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    subprocess.run(
        [sys.executable, *runner, str(folder / "node-0.json")], check=True, timeout=120,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    status = files.read_json(str(folder / "node-0.status.json"))
    assert status["state"] == "exited"
    return list(status["ranks"])


def cause(folder: Path) -> dict[str, Any] | None:
    found: dict[str, Any] | None = files.read_json(str(folder / "node-0.status.json")).get("cause")
    return found


OFTEN = """
import sys
from fermi.runner import node
from fermi.telemetry import aggregation, metrics
metrics.PERIOD_SECONDS, aggregation.REPORT_SECONDS = 0.1, 0.2
node.main(sys.argv[1], {})
"""


def test_usage_of_node_and_ranks_is_reported_while_they_run(tmp_path: Path) -> None:
    script = """
import json
data = b"x" * (30 << 20) if rank == 1 else b""
wanted = {"cpu", "memory", "gpu:0", "gpu:1", "rank_cpu:0", "rank_cpu:1", "rank_memory:0", "rank_written:1"}
told = here / "node-0.telemetry.json"
def seen():
    samples = json.loads(told.read_text())["telemetry"] if told.exists() else []
    return any(wanted <= one["values"].keys() and one["values"]["rank_memory:1"] > 30 << 20 for one in samples)
while not seen():
    sum(range(10_000)) if rank == 0 else time.sleep(0.02)
"""
    env = {"HERE": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    ranks = run(tmp_path, script, 2, ("-c", OFTEN), env=env)
    assert [rank["exit_code"] for rank in ranks] == [0, 0]
    samples = telemetry_reports.read_samples(tmp_path, 0.0)
    assert all(sample.emulated for sample in samples)
    values = [sample.values for sample in samples if sample.values.get("rank_memory:1", 0) > 30 << 20]
    assert any(0 < one.get("gpu:0", 0) <= 100 for one in values)


GPUS = """
import functools, os, sys
from fermi.runner import node
here = os.path.dirname(sys.argv[1])
node.XidReader = functools.partial(node.XidReader, log=here + "/kmsg", devices=here + "/gpus")
node.main(sys.argv[1], {})
"""


def test_a_forked_rank_cannot_read_the_runners_log(tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    (tmp_path / "gpus" / "0000:3b:00.0").mkdir(parents=True)
    script = """
fds = pathlib.Path("/proc/self/fd")
opened = [os.readlink(fd) for fd in list(fds.iterdir()) if fd.exists()]
sys.exit(any(path.endswith("kmsg") for path in opened))
"""
    [rank] = run(tmp_path, script, 1, ("-c", GPUS), env={"HERE": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0"}, fork=True)
    assert rank["exit_code"] == 0


def test_a_rank_with_a_lost_gpu_ends_with_the_kernels_message(tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    for pci in ("0000:3b:00.0", "0000:af:00.0"):
        (tmp_path / "gpus" / pci).mkdir(parents=True)
    script = """
if rank == 1:
    until("ready-0")
    with open(here / "kmsg", "a") as kernel:
        print(f"3,9,{int(time.monotonic() * 1e6)},-;NVRM: Xid (PCI:0000:af:00): 79, GPU has fallen off", file=kernel)
    sys.exit("CUDA error: unspecified launch failure")
ready()
time.sleep(600)
"""
    other, lost = run(tmp_path, script, 2, ("-c", GPUS), env={"HERE": str(tmp_path), "CUDA_VISIBLE_DEVICES": "0,1"})
    line = "NVRM: Xid (PCI:0000:af:00): 79, GPU has fallen off"
    assert lost["kill"] == {"by": "gpu", "gpu": 1, "xid": 79, "line": line}
    assert (other["asked"], other["kill"]) == (True, None)


def test_waiting_peers_are_ended_at_once_and_saving_peers_get_their_grace(tmp_path: Path) -> None:
    script = f"""
if rank == 0:
    until("ready-1"), until("ready-2")
    sys.exit(3)
if rank == 1:
    {WAITS_IN_C}
def leave(*_):
    for number in range(20):
        print("saving", number)
        time.sleep(0.1)
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
ready()
while True:
    time.sleep(1)
"""
    failed, waited, saved = run(tmp_path, script, 3)
    assert (failed["exit_code"], failed["asked"]) == (3, False)
    assert (waited["exit_code"], waited["asked"]) == (-9, True)
    assert (saved["exit_code"], saved["asked"]) == (143, True)
    assert waited["ended_at"] < saved["ended_at"], "it got the time that nobody needed"
    assert "saving 19" in (tmp_path / "2.log").read_text()


@pytest.mark.parametrize("fork", [True, False])
def test_a_rank_that_raised_before_the_stop_ends_by_its_exception(fork: bool, tmp_path: Path) -> None:
    """It leaves its group for a while, in which a peer fails for want of it; the request to end comes then."""
    script = """
import atexit
class SignalException(Exception): pass
def raise_it(*_):
    raise SignalException("a launcher's own, for SIGTERM")
if rank == 0:
    atexit.register(lambda: (ready(), time.sleep(600)))
    raise ValueError("bad batch at step 7")
until("ready-0")
if rank == 1:
    until("ready-2")
    raise RuntimeError("Connection closed by peer")
signal.signal(signal.SIGTERM, raise_it)
ready()
time.sleep(600)
"""
    first, follower, launcher = run(tmp_path, script, 3, fork=fork, pulse=True)
    assert (first["exit_code"], first["asked"], first["error"]["type"]) == (1, False, "ValueError")
    assert (follower["exit_code"], follower["asked"]) == (1, False)
    assert (launcher["exit_code"], launcher["asked"], launcher["error"]["type"]) == (
        1,
        True,
        "SignalException",
    )
    cause = find_failure_cause([build_rank_status(entry, 0) for entry in (first, follower, launcher)], str)
    assert cause is not None
    assert (cause.code, cause.params["rank"]) == ("RANK_FAILED", 0)
    assert cause.params["exception"] == "ValueError: bad batch at step 7"


@pytest.mark.parametrize("fork", [True, False])
def test_programs_of_the_ranks_interpreter_come_first_on_path(fork: bool, tmp_path: Path) -> None:
    """As in an activated virtual environment; a PATH that the task's `env` sets keeps its order behind that."""
    env = {"HERE": str(tmp_path), "PATH": "/of/the/user:/usr/bin:/bin"}
    [rank] = run(tmp_path, "print(os.environ['PATH'])", 1, fork=fork, env=env)
    assert rank["exit_code"] == 0
    folder = os.path.dirname(sys.executable)
    assert (tmp_path / "0.log").read_text() == f"{folder}:/of/the/user:/usr/bin:/bin\n"


def test_a_stop_gives_idle_ranks_all_of_their_grace(tmp_path: Path) -> None:
    """Whoever asks for a stop may have to wait for a rank that waits for something else."""
    script = """
def leave(*_):
    time.sleep(2)
    print("gone well")
    sys.exit(143)
signal.signal(signal.SIGTERM, leave)
os.kill(os.getppid(), signal.SIGTERM)
while True:
    time.sleep(1)
"""
    [rank] = run(tmp_path, script, 1)
    assert (rank["exit_code"], rank["asked"]) == (143, True)
    assert "gone well" in (tmp_path / "0.log").read_text()


def test_a_port_busy_before_the_start_is_named_with_its_holder_and_starts_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        [rank] = run(tmp_path, "print('began')", 1, port=port)
    assert (rank["state"], rank["exit_code"]) == ("waiting", None)
    told = cause(tmp_path)
    assert told is not None
    assert (told["code"], told["port"]) == ("MASTER_PORT_TAKEN", port)
    assert f"pid {os.getpid()} (" in told["holder"]


LISTENS = """
import socket
def listen(port=int(os.environ["MASTER_PORT"])):
    door = socket.create_server(("127.0.0.1", port))
    print("listens", flush=True)
    return door
def meet():
    ready()
    until("taken")
    return listen()
"""


def of_task(folder: Path, port: int, task: str = "task-x") -> dict[str, Any]:
    """What the ranks of `run` meet at, and what the runner is told of it."""
    return {"port": port, "env": {"HERE": str(folder), "MASTER_PORT": str(port), "FERMI_TASK_ID": task}}


@pytest.mark.parametrize("caught", [False, True], ids=["raises", "prints"])
def test_a_port_taken_during_the_start_of_rank_0_is_the_cause(caught: bool, tmp_path: Path) -> None:
    """Whether it raises that, or a process that it has started prints it."""
    script = LISTENS + ("try:\n    meet()\nexcept OSError as error:\n    sys.exit(str(error))" if caught else "meet()")
    port = free_port()
    with ThreadPoolExecutor() as pool:
        given = of_task(tmp_path, port, "" if caught else "task-x")  # by hand there is no task
        ended = pool.submit(run, tmp_path, script, 1, pulse=not caught, **given)
        until((tmp_path / "ready-0").exists, what="the rank runs")
        with socket.create_server(("127.0.0.1", port)):
            (tmp_path / "taken").touch()
            assert ended.result()[0]["exit_code"] == 1
    told = cause(tmp_path)
    assert told is not None
    assert (told["code"], told["port"]) == ("MASTER_PORT_TAKEN", port)
    assert f"pid {os.getpid()} (" in told["holder"]


def test_a_failure_next_to_a_taken_port_explains_itself(tmp_path: Path) -> None:
    """Only rank 0 listens there, and only its own word says that it could not."""
    port = free_port()
    script = "ready(); until('taken'); raise ValueError('bad batch')"
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(run, tmp_path, script, 1, pulse=True, **of_task(tmp_path, port))
        until((tmp_path / "ready-0").exists, what="the rank runs")
        with socket.create_server(("127.0.0.1", port)):
            (tmp_path / "taken").touch()
            [rank] = ended.result()
    assert (rank["error"]["type"], rank["kill"], cause(tmp_path)) == ("ValueError", None, None)


STARTS = (
    LISTENS
    + """
import subprocess
CHILD = "import os, pathlib, socket, time; door = socket.create_server(('', int(os.environ['MASTER_PORT'])))"
if rank == 1:
    until("listening")
    sys.exit(subprocess.call([sys.executable, "-c", CHILD]))
held = listen() if os.environ["WHO"] == "rank" else subprocess.Popen(
    [sys.executable, "-c", CHILD + "; pathlib.Path('listening').touch(); time.sleep(600)"])
if os.environ["WHO"] == "rank":
    (here / "listening").touch()
time.sleep(600)
"""
)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("who", "code"), [("child", "RANKS_STARTED_RANKS"), ("rank", "PORT_IN_USE")])
def test_the_tasks_own_port_has_no_foreign_holder(who: str, code: str, first: int, tmp_path: Path) -> None:
    """Ranks that start processes of their own meet at one port: rank 0 may come first or last. Nobody else's process
    is blamed, the rank that failed says why, and nothing is tried again for free."""
    port = free_port()
    given = of_task(tmp_path, port)
    given["env"]["WHO"] = who
    script = STARTS.replace("if rank == 1:", f"if rank == {1 - first}:")
    failed = run(tmp_path, script, 2, pulse=True, **given)[1 - first]
    assert cause(tmp_path) is None
    kill = failed["kill"]
    assert (kill["by"], kill["port"], kill["fixed"]) == ("port", port, False)
    assert (kill["started"], kill.get("rank")) == ((True, None) if who == "child" else (False, first))
    told = root_cause.explain_rank(
        build_rank_status(failed, 0),
        "gn5",
        (tmp_path / f"{1 - first}.log").read_bytes(),
        rules.load_rules(),
        {},
        JobFacts(),
    )
    assert (told.why, told.follows) == (code, False)
    said, hint = messages.render_text(told.why, "en", **(told.about or {}))
    assert str(port) in said
    assert code != "RANKS_STARTED_RANKS" or ("MASTER_PORT" in said and str(kill["holder"]) in hint)


def test_a_printed_port_reveals_no_foreign_command_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        line = f"The server socket has failed to bind to [::]:{port} (errno: 98"
        [rank] = run(tmp_path, f"sys.exit({line!r})", 1, **of_task(tmp_path, free_port()))
    assert rank["kill"] == {
        "by": "port", "port": port, "holder": f"pid {os.getpid()}", "task": None, "rank": None, "fixed": True,
    }  # fmt: skip


def test_a_process_of_another_user_is_not_the_tasks() -> None:
    env = {**os.environ, "FERMI_TASK_ID": "task-other", "RANK": "3"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=env) as other:
        assert until(lambda: causes.find_owner(other.pid, os.geteuid()) == ("task-other", 3))
        assert causes.find_owner(other.pid, os.geteuid() + 1) == ("", None)
        other.communicate(b"\n")


def test_a_port_chosen_by_the_script_names_the_task_that_holds_it(tmp_path: Path) -> None:
    """The other task's process, as this machine's engine starts it: forked, known by the log that it prints to."""
    log = tmp_path / "logs" / "task-other" / "1" / "3.log"
    log.parent.mkdir(parents=True)
    holds = "import os, socket, sys; door = socket.create_server(('', 0))\n"
    holds += "os.write(2, b'%d ' % door.getsockname()[1]); sys.stdin.read()"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if name not in ("FERMI_TASK_ID", "RANK")},
        ) as other,
    ):  # fmt: skip
        assert other.stderr is not None
        port = int(b"".join(iter(lambda: other.stderr.read(1), b" ")))  # type: ignore[union-attr]
        given = of_task(tmp_path, free_port())
        [rank] = run(tmp_path, LISTENS + f"listen({port})", 1, pulse=True, **given)
        other.communicate()
    assert cause(tmp_path) is None
    assert rank["kill"]["holder"] == f"pid {other.pid}"
    told = root_cause.explain_rank(
        build_rank_status(rank, 0), "gn5", (tmp_path / "0.log").read_bytes(), rules.load_rules(), {}, JobFacts()
    )
    assert told.why == "PORT_FIXED_IN_USE"
    assert told.about is not None
    assert (told.about["port"], told.about["task"], told.about["holderRank"]) == (str(port), "task-other", "3")
    assert "which the script sets itself" in messages.render_text(told.why, "en", **told.about)[0]
    finding = told.finding()
    assert finding is not None
    assert ("SEE_TASK", "task-other") in {(one.code, one.params.get("task")) for one in finding.actions}


def test_a_failed_rank_with_its_own_port_fails_by_itself(tmp_path: Path) -> None:
    script = (
        LISTENS
        + """
door = listen()
if os.fork() == 0:  # a helper that outlives the rank has the port still
    time.sleep(600)
sys.exit(1)
"""
    )
    [rank] = run(tmp_path, script, 1, **of_task(tmp_path, free_port()))
    assert (rank["exit_code"], rank["kill"]) == (1, None)
    assert cause(tmp_path) is None


def test_a_forked_holder_is_named_without_its_parents_command_line(tmp_path: Path) -> None:
    script = (
        LISTENS
        + """
if rank == 0:
    held = listen()
    (here / "listening").touch()
    time.sleep(600)
until("listening")
listen()
"""
    )
    first, second = run(tmp_path, script, 2, fork=True, pulse=True, **of_task(tmp_path, free_port()))
    assert second["kill"]["holder"] == f"pid {first['pid']}"


def test_the_local_engine_names_the_holder_of_the_port(tmp_path: Path) -> None:
    backend = LocalBackend({"data_dir": str(tmp_path), "warm": False})
    with socket.create_server(("127.0.0.1", free_port())) as other:
        spec = replace(job("env-001"), master_port=other.getsockname()[1])
        backend.submit(backend.render(spec, plugins.get_framework(spec.framework).plan(spec)))
        handle = Handle(spec.name, spec.task_id, spec.attempt, spec.world_size)
        seen = until(
            lambda: (seen := backend.observe([handle])[handle.name]).phase is Phase.FAILED and seen, seconds=120
        )
        assert seen.cause is not None
        assert seen.cause.code == "MASTER_PORT_TAKEN"
        assert seen.cause.params["port"] == spec.master_port
        assert str(os.getpid()) in seen.cause.params["holder"]
        assert str(os.getpid()) in messages.render_text(seen.cause.code, "en", **seen.cause.params)[0]
        backend.cancel(handle, 0.0)
        until(lambda: backend.observe([handle])[handle.name].left is False, what="gone")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path, 4) as found:
        yield found


FILL = """
with open(pathlib.Path(os.environ["HERE"], "filling"), "wb", buffering=0) as file:
    for size in (1 << 16, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            pass
"""


def test_a_full_disk_ends_no_runner_and_is_the_cause(disk: Path) -> None:
    [rank] = run(disk, FILL + "sys.exit(5)", 1)
    assert (rank["state"], rank["exit_code"]) == ("exited", 5)
    told = cause(disk)
    assert told is not None
    assert (told["code"], told["path"]) == ("DISK_FULL", str(disk))
    assert told["free"] < 1 << 20 < told["total"] <= 4 << 20
    assert "was full" in messages.render_text("DISK_FULL", "en", node="gn5", **told)[0]
    assert not [path for path in disk.iterdir() if path.suffix in (".tmp", ".reserve")]


def test_training_on_a_full_disk_continues_and_can_be_stopped(disk: Path) -> None:
    """Where nothing of the disk is kept for the platform."""
    script, door = disk / "train.py", disk.parent / "door"
    os.mkfifo(door)
    reader = os.open(door, os.O_RDWR)
    waits = f"""
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
os.write(os.open({str(door)!r}, os.O_WRONLY), b".")
while True:
    time.sleep(1)
"""
    script.write_text(PREAMBLE + FILL + waits, encoding="utf-8")
    backend = LocalBackend({"data_dir": str(disk), "warm": False, "bounds": {"reservePercent": 0}})
    environment = {"HERE": str(disk)}
    spec = replace(job("env-001"), entrypoint=Entrypoint(str(script)), env=environment, master_port=free_port())
    handle = Handle(spec.name, spec.task_id, spec.attempt, spec.world_size)

    def seen() -> Observation:
        return backend.observe([handle])[handle.name]

    backend.submit(backend.render(spec, plugins.get_framework(spec.framework).plan(spec)))
    for _ in range(spec.world_size):
        assert os.read(reader, 1) == b"."
    os.close(reader)
    until(lambda: seen().phase is Phase.RUNNING, what="the runner says that they run")
    backend.cancel(handle, 30.0)
    until(lambda: seen().left is False, what="all have ended")
    assert {rank.exit_code for rank in seen().ranks} == {143}


HANGS_OR_WORKS = """
if rank == 0:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    signal.sigwait([signal.SIGUSR2])
while True:
    print("saving", flush=True)
    time.sleep(0.05)
"""


def test_an_idle_rank_reports_since_when(tmp_path: Path) -> None:
    before = time.time()

    def still() -> list[float | None]:
        status = files.read_json(str(tmp_path / "node-0.status.json"))
        return [rank["still_since"] for rank in status["ranks"]] if status else []

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(run, tmp_path, HANGS_OR_WORKS, 2, last_seconds=1.0)
        try:
            since, other = until(lambda: any(still()) and still(), what="rank 0 is still")
            assert before < since < time.time() - 1.0
            assert other is None
        finally:
            files.write_json_atomically(str(tmp_path / "stop.json"), {"grace_seconds": 0})
        assert [rank["still_since"] for rank in ended.result()] == [None, None], "what has ended is not still"


HOW = "print(os.sched_getscheduler(0) == os.SCHED_BATCH, flush=True)"


@pytest.mark.parametrize(("visible", "batch"), [("", True), ("0,1", False)])
def test_cpu_ranks_have_disjoint_cpus(tmp_path: Path, visible: str, batch: bool) -> None:
    env = {"HERE": str(tmp_path), "CUDA_VISIBLE_DEVICES": visible}
    run(tmp_path, HOW, 1, env=env)
    assert (tmp_path / "0.log").read_text(encoding="utf-8") == f"{batch}\n"


def test_an_existing_scheduling_policy_is_kept(tmp_path: Path) -> None:
    script = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    script += "from fermi.runner import processes; processes.use_batch_scheduling(); print(os.sched_getscheduler(0))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) == os.SCHED_IDLE


LEAVES = """
import subprocess
if rank == 1:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "training"], start_new_session=True)
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "multiprocessing.resource_tracker"])
    subprocess.Popen(["sleep", "600"])
    if os.fork() == 0:
        time.sleep(600)
"""


@pytest.mark.parametrize(("end", "said"), [("", True), ("sys.exit(rank)", False)])
def test_training_left_in_the_background_is_reported(tmp_path: Path, end: str, said: bool) -> None:
    """Not helpers of libraries, no other programs, and no fork in the rank's own session; and only of a success."""
    ranks = run(tmp_path, LEAVES + end, 2)
    left = {"by": "left", "processes": 1, "line": f"{sys.executable} -c import time; time.sleep(600) training"}
    assert [rank["kill"] for rank in ranks] == [None, left if said else None]
    entry = build_rank_status({**ranks[1], "kill": untrusted.KILL(ranks[1]["kill"])}, 0)
    assert [one.code for one in root_cause.find_left_running([entry], ["gn5"])] == ["PROCESSES_LEFT_RUNNING"] * said


def test_a_daemon_forked_by_a_rank_is_reported(tmp_path: Path) -> None:
    script = "if os.fork() == 0:\n    os.setsid()\n    ready()\n    time.sleep(600)\nuntil('ready-0')\n"
    [rank] = run(tmp_path, script, 1)
    assert (rank["exit_code"], rank["kill"]["by"], rank["kill"]["processes"]) == (0, "left", 1)
