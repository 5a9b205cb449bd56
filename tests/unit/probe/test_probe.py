"""What a rank's process tells of itself, with real processes: who may write the page, stacks when they are asked for,
the exception that ends it, and what is seen of PyTorch."""

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fermi.engines import bundle
from fermi.probe import setup
from fermi.probe.errors import MAX_MESSAGE_LENGTH, describe_error
from fermi.probe.rank import STACK_SIGNAL
from fermi.probe.reader import PageValues
from fermi.probe.shared_page import PULSE_VARIABLE, SharedPage
from fermi.runner import rank, stacks
from tests.polling import until

PYTHON = [sys.executable, "-u"]
ROOT = Path(__file__).parents[3]


class Rank:
    """One executed process, as a node runner begins it."""

    def __init__(self, folder: Path, command: list[str], **env: str) -> None:
        self.given = setup.create_rank_files()
        self.page = SharedPage(self.given.page)
        self.path = folder / "log"
        output = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.pid = rank.start_rank(
            0, command, {**os.environ, **env}, str(folder), output,
            fork=False, confinement=None, signals=(), inherited=(), pulse=self.given,
        )  # fmt: skip
        self.code: int | None = None

    def wait(self) -> PageValues | None:
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.page.read()

    @property
    def text(self) -> str:
        return self.path.read_text()

    def stacks(self) -> str:
        return os.pread(self.given.stacks, 1 << 16, 0).decode()

    def read_answer(self) -> str:
        """The answer."""
        moment = time.monotonic()
        stacks.request_stacks(self.page, self.given.stacks, moment)
        until(lambda: self.page.at("answered_at") == moment, what="the rank has answered")
        return self.stacks()

    def close(self) -> None:
        if self.code is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, 9)
            os.waitpid(self.pid, 0)
        self.given.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator["Start"]:
    made = Start(tmp_path)
    yield made
    for one in made.ranks:
        one.close()


class Start:
    def __init__(self, folder: Path) -> None:
        self.folder, self.ranks = folder, []

    def __call__(self, code: str, *, command: list[str] | None = None, **env: str) -> Rank:
        (self.folder / "train.py").write_text(textwrap.dedent(code))
        self.ranks.append(Rank(self.folder, command or [*PYTHON, "train.py"], **env))
        return self.ranks[-1]


def test_the_probe_is_invisible_to_a_script_and_its_sitecustomize_runs(start):
    theirs = start.folder / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('theirs', __name__)")
    (start.folder / "fermi.py").touch()
    one = start(
        """
        import sys
        print([path for path in sys.path if path.endswith("site")], sys.modules["sitecustomize"].__file__)
        import fermi  # the script's own
        print(fermi.__file__)
        """,
        PYTHONPATH=str(theirs),
    )
    seen = one.wait()
    assert one.text.splitlines() == [
        "theirs sitecustomize", f"[] {theirs}/sitecustomize.py", f"{start.folder}/fermi.py",
    ]  # fmt: skip
    assert (one.code, seen.pid, seen.phase, seen.error) == (0, one.pid, "ending", {})


def test_the_final_exception_is_reported_with_the_users_frame(start):
    one = start(
        """
        import json
        def load(text):
            return json.loads(text)
        load("{")
        """
    )
    error = one.wait().error
    assert {name: error[name] for name in ("type", "file", "line", "function", "step")} == {
        "type": "JSONDecodeError", "file": "train.py", "line": 4, "function": "load", "step": 0,
    }  # fmt: skip
    assert error["message"].startswith("Expecting property name")
    assert abs(error["at"] - time.time()) < 60
    assert "probe" not in one.text  # the traceback is the script's


def test_a_caught_exception_is_not_reported(start):
    assert start("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise SystemExit(3)").wait().error == {}


def test_a_long_message_keeps_its_start_and_end():
    told = describe_error(ValueError("begin" + "x" * 10_000 + "end"), None)["message"]
    assert len(told) <= MAX_MESSAGE_LENGTH
    assert (told[:5], told[-3:]) == ("begin", "end")


def test_stacks_are_read_while_c_code_holds_the_gil(start):
    one = start(
        """
        import ctypes, threading, time
        threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
        def load_batch():
            while True:
                ctypes.PyDLL(None).sleep(600)  # no other thread of Python's comes to run
        print("begins")
        load_batch()
        """
    )
    until(lambda: "begins" in one.text)
    stacks.request_stacks(one.page, one.given.stacks, time.monotonic())
    for _ in range(2):
        until(
            lambda: stacks.signal_stack_writer(one.page.read(), one.pid, one.given.stacks),
            what="the thread that answers waits for the interpreter",
        )
        told = until(lambda: "<module>" in one.stacks() and one.stacks())
        assert 'train.py", line 6 in load_batch' in told
        assert "threading.py" in told


def test_no_thread_of_the_probe_is_left_when_the_interpreter_ends(start):
    one = start(
        """
        import atexit, os
        count_threads = lambda: len(os.listdir("/proc/self/task"))
        before = count_threads()
        atexit._run_exitfuncs()
        print(before - count_threads())
        """
    )
    one.wait()
    assert one.text.split() == ["1"]


CALLS = """
import ctypes, os, time
read, write = os.pipe()
print(f"{os.getpid()} {read}")
def save():
    return os.write(write, bytes(1 << 20))
def pause():
    return ctypes.CDLL(None).sleep(3)
print(os.environ["CALL"], "returned", {"save": save, "pause": pause}[os.environ["CALL"]](), flush=True)
"""


def slowly(path: str) -> Iterator[int]:
    """Reads the pipe to its end, a little each time."""
    with open(path, "rb", buffering=0) as pipe:
        left = 1 << 20
        while left:
            left -= len(pipe.read(min(left, 1 << 15)))
            yield left


@pytest.mark.parametrize(("call", "result"), [("save", 1 << 20), ("pause", 0)])
def test_ten_stack_requests_change_no_result_of_a_system_call(start, call, result):
    one = start(CALLS, CALL=call)
    pid, pipe = until(lambda: one.text.count("\n") and one.text.split())[:2]
    until(lambda: f" in {call}" in one.read_answer(), what="it is in the call")
    reads = slowly(f"/proc/{pid}/fd/{pipe}") if call == "save" else iter(())
    for _ in range(10):
        assert f" in {call}" in one.read_answer()
        next(reads, None)
    list(reads)
    one.wait()
    assert f"{call} returned {result}\n" in one.text


def test_the_signal_does_not_end_a_process_without_a_probe(start):
    one = start("", command=["sh", "-c", "echo begins; sleep 600 & wait; echo ends"])
    until(lambda: "begins" in one.text)
    os.killpg(one.pid, STACK_SIGNAL)
    os.killpg(one.pid, 15)
    one.wait()
    assert one.code == -15


def test_a_fatal_signal_reports_its_location(start):
    one = start("import ctypes\ndef forward():\n    ctypes.string_at(0)\nforward()")
    one.wait()
    assert one.code == -11
    assert 'train.py", line 3 in forward' in one.text


def test_consecutive_pythons_take_over_the_page(start):
    one = start(
        "raise KeyError('second')",
        command=["bash", "-c", f"{sys.executable} -c 'raise ValueError(1)'; {sys.executable} train.py; true"],
    )
    seen = one.wait()
    assert (seen.error["type"], seen.error["file"]) == ("KeyError", "train.py")
    assert seen.pid != one.pid


def test_child_processes_and_forks_leave_the_page_to_their_parent(start):
    one = start(
        """
        import os, subprocess, sys
        subprocess.run([sys.executable, "-c", "raise ValueError('of a child')"], stderr=subprocess.DEVNULL)
        if os.fork() == 0:
            raise KeyError("of a fork")
        os.wait()
        print(os.getpid())
        """
    )
    seen = one.wait()
    assert (seen.pid, seen.error) == (one.pid, {})


def module(folder: Path, name: str, text: str) -> None:
    """A stand-in for a module of a library; its packages are empty."""
    *packages, name = name.split(".")
    for package in packages:
        folder /= package
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").touch()
    (folder / f"{name}.py").write_text(textwrap.dedent(text))


ENGINE = """
class DeepSpeedEngine:
    def _take_model_step(self): pass
"""
STEPS = """
def train(steps):
    from deepspeed.runtime.engine import DeepSpeedEngine
    for _ in range(steps):
        DeepSpeedEngine()._take_model_step()
"""


def test_steps_of_earlier_pythons_are_kept(start):
    module(start.folder, "deepspeed.runtime.engine", ENGINE)
    module(start.folder, "steps", STEPS)
    train = f"{sys.executable} -c 'import steps; steps.train({{}})'"
    one = start(
        "pass", command=["bash", "-c", "; ".join([train.format(5), train.format(3), f"{sys.executable} train.py"])]
    )
    seen = one.wait()
    assert (seen.step, seen.most_steps) == (0, 5)


FORKED = """
import os, sys
sys.path.insert(0, sys.argv[1])
from fermi.probe import setup
from fermi.probe.shared_page import SharedPage
from fermi.runner import rank

given = setup.create_rank_files()
try:
    pid = rank.start_rank(0, ["python", "train.py"], dict(os.environ), os.getcwd(), os.dup(1), fork=True,
                     confinement=None, signals=(), inherited=(), pulse=given)
except rank.UnwindToRankError as one:
    command, env = one.command, one.env
else:
    os.waitpid(pid, 0)
    seen = SharedPage(given.page).read()
    print(seen.step, seen.pid != pid, flush=True)
    os._exit(0)
rank.run_rank_here(command, env)
"""


def test_a_training_process_spawned_by_a_forked_rank_takes_the_page(start):
    """As `torch.multiprocessing.spawn` starts them: by an interpreter of its own, which inherits no descriptor."""
    module(start.folder, "deepspeed.runtime.engine", ENGINE)
    module(start.folder, "steps", STEPS)
    module(start.folder, "gang", FORKED)
    one = start(
        """
        import multiprocessing, steps
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=steps.train, args=(3,))
            child.start()
            child.join()
        """,
        command=["env", "-u", PULSE_VARIABLE, *PYTHON, "gang.py", str(ROOT / "platform")],
    )
    one.wait()
    assert one.text.splitlines() == ["3 True"]


def test_the_hugging_face_trainer_reports_step_total_and_epoch(start):
    module(
        start.folder,
        "transformers.trainer_callback",
        """
        class CallbackHandler:
            def on_train_begin(self, args, state, control, **kwargs): return control
            def on_step_end(self, args, state, control, **kwargs): return control
        """,
    )
    one = start(
        """
        import json, os
        from types import SimpleNamespace as Of
        import _fermi_probe.shared_page
        from transformers.trainer_callback import CallbackHandler
        page = _fermi_probe.shared_page.SharedPage(int(os.environ["FERMI_PULSE"].split(",")[0]))
        handler, args = CallbackHandler(), Of(logging_strategy=Of(value="steps"), logging_steps=0.1)
        state = Of(global_step=500, max_steps=1000, epoch=2.5, logging_steps=10)
        assert handler.on_train_begin(args, state, "control") == "control"
        print(json.dumps(page.read().trainer))
        state.global_step, state.epoch = 501, 2.505
        handler.on_step_end(args, state, "control", model=None)
        print(json.dumps(page.read().trainer))
        args.logging_strategy = "epoch"
        handler.on_step_end(args, state, "control")
        print(json.dumps(page.read().trainer))
        state.max_steps = None
        assert handler.on_step_end(args, state, "control") == "control", "whatever another version has there"
        """
    )
    one.wait()
    assert one.code == 0, one.text
    assert [json.loads(line) for line in one.text.splitlines()] == [
        {"step": 500, "total": 1000, "epoch": 2.5, "every": 10},
        {"step": 501, "total": 1000, "epoch": 2.505, "every": 10},
        {"step": 501, "total": 1000, "epoch": 2.505, "every": 0},
    ]


def test_a_rank_that_joins_as_another_one_is_reported(start):
    module(
        start.folder,
        "torch.distributed.rendezvous",
        "def _create_c10d_store(hostname, port, rank, world_size, timeout=None): return rank",
    )
    code = """
        import multiprocessing, os
        from torch.distributed.rendezvous import _create_c10d_store
        def join(rank): assert _create_c10d_store("localhost", 1, rank, 4) == rank
        if __name__ == "__main__":
            {}
        """
    started = 'multiprocessing.get_context("fork").Process(target=join, args=(0,))'
    for call, told in (("join(0)", 1), (f"child = {started}; child.start(); child.join()", 0)):
        one = start(code.format(call), RANK="2", LOCAL_RANK="0")
        assert (one.wait().joined_as, one.code) == (told, 0), one.text


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_ignores_the_environment_runs_without_a_probe(start, option):
    one = start("", command=[sys.executable, option, "-c", "print('runs')"])
    assert one.wait() is None
    assert (one.code, one.text) == (0, "runs\n")


def test_a_rank_behind_a_program_that_closes_what_it_inherits_is_followed(start):
    """As `conda run` does, whose own interpreter may have no probe."""
    closes = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:], close_fds=True))"
    module(start.folder, "deepspeed.runtime.engine", ENGINE)
    module(start.folder, "steps", STEPS)
    one = start(
        "import steps\nsteps.train(3)",
        command=["bash", "-c", f"{sys.executable} -I -c '{closes}' {sys.executable} train.py"],
    )
    told = one.wait()
    assert (one.code, told and told.step) == (0, 3)


def test_an_invalid_page_is_ignored(start):
    one = start("print('runs')", command=["bash", "-c", f"exec 3>&- 4>&-; FERMI_PULSE=1,2,2 {sys.executable} train.py"])
    one.wait()
    assert (one.code, one.text) == (0, "runs\n")


def test_a_rank_cannot_shrink_the_page_that_its_runner_reads(start):
    one = start("import os\nfd = int(os.environ['FERMI_PULSE'].split(',')[0])\nos.ftruncate(fd, 0)")
    assert one.wait().error["type"] == "PermissionError"


TORCH = """
import json, os, subprocess, sys
import _fermi_probe.shared_page
page = _fermi_probe.shared_page.SharedPage(int(os.environ["FERMI_PULSE"].split(",")[0]))
def tell(name): print(json.dumps([name, page.read()[:3]]))
tell("before")
import torch
from torch.utils.data import DataLoader

class Outer(torch.optim.SGD):  # as Horovod's: both classes are hooked
    def step(self, closure=None):
        return super().step(closure)

class Saved:
    def __reduce__(self):
        tell("inside save")
        return int, ()

def train(optimizer, steps):
    for _ in range(steps):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

def main():
    global model
    model = torch.nn.Linear(2, 2)
    most, seldom = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.Adam(model.parameters())
    for _ in range(4):
        train(seldom, 1)
        train(most, 3)
    tell("two optimizers")
    train(Outer(model.parameters(), lr=0.1), 3)
    tell("another")
    model.eval()
    tell("evaluates")
    train(most, 2)
    torch.save(Saved(), "saved.pt")
    tell("saved")
    for _ in DataLoader(range(4), num_workers=1, collate_fn=step_in_worker): pass
    child = [sys.executable, "-c", "import os; print(json.dumps(['child', ['FERMI_PULSE' in os.environ]]))"]
    subprocess.run([*child[:2], "import json;" + child[2]])
    tell("ends")
    model(torch.ones(4, 7))

def step_in_worker(batch):
    train(torch.optim.SGD(model.parameters(), lr=0.1), 5)
    return batch

main()
"""


def test_steps_and_phases_of_an_unchanged_pytorch_script_are_seen(start):
    one = start(TORCH)
    seen = one.wait()
    told = dict(json.loads(line) for line in one.text.splitlines() if line[:1] == "[")
    phases = {name: (step, phase) for name, (_, step, phase) in ((n, r) for n, r in told.items() if len(r) == 3)}
    assert phases == {
        "before": (0, "starting"),
        "two optimizers": (12, "running"),  # those of the one that steps most
        "another": (14, "running"),  # it leads from its second step on
        "evaluates": (14, "evaluating"),
        "inside save": (15, "saving"),
        "saved": (15, "running"),
        "ends": (15, "running"),  # not those of a DataLoader's worker
    }
    assert told["child"] == [False]  # what a process starts that trains does not
    assert (seen.pid, seen.step, seen.phase) == (one.pid, 15, "ending")
    assert (seen.error["type"], seen.error["file"], seen.error["function"]) == ("RuntimeError", "train.py", "main")
    assert seen.stepping > 0.0


def test_output_of_c_libraries_is_line_buffered_and_not_lost(start):
    """NCCL prints so. In whole blocks, lines of Python would go on where a block ended."""
    one = start(
        """
        import ctypes, os
        import torch
        say = ctypes.CDLL(None).printf
        for number in range(300):
            say(b"host:1:1 [0] NCCL INFO Channel %d/300 : 0\\n", number)
            if number % 100 == 50:
                print('{"event": "started"}', flush=True)
        os.abort()
        """,
        command=[sys.executable, "train.py"],  # with -u Python has C write at once; a forked rank begins without
        PYTHONUNBUFFERED="",
    )
    one.wait()
    lines = one.text.splitlines()
    said = [line for line in lines if "NCCL" in line]
    assert said == [f"host:1:1 [0] NCCL INFO Channel {number}/300 : 0" for number in range(300)]
    assert [at for at, line in enumerate(lines) if line == '{"event": "started"}'] == [51, 152, 253]


GANG = """
import json, os, sys, time
sys.path.insert(0, sys.argv[1])
import torch  # once, for both
from fermi.probe import setup
from fermi.probe.shared_page import SharedPage
from fermi.runner import rank

def begin(number, pulse, earlier):
    env = {**os.environ, "RANK": str(number)}
    return rank.start_rank(number, ["python", "train.py"], env, os.getcwd(), os.dup(1), fork=True, confinement=None,
                      signals=(), inherited=earlier, pulse=pulse)

def settled(waits, late):  # a thread of each rank writes what is compared, soon
    return (waits and late and waits.trace and waits.step == late.step == 3
            and waits.begun == late.begun + 1 and waits.collective_at and not late.collective_at
            and "skips" in late.place.get("at", ""))

def main():
    first, second = setup.create_rank_files(), setup.create_rank_files()
    pids = [begin(0, first, []), begin(1, second, list(first))]
    pages = [SharedPage(first.page), SharedPage(second.page)]
    deadline = time.monotonic() + 60
    while not settled(*(page.read() for page in pages)) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(pages[0].read().pid, 23)
    while b"<module>" not in os.pread(first.stacks, 1 << 16, 0):
        time.sleep(0.05)
    print(json.dumps({"seen": [page.read()._asdict() for page in pages],
                      "stacks": os.pread(first.stacks, 1 << 16, 0).decode()}), flush=True)
    open("go", "w").close()
    for pid in pids:
        os.waitpid(pid, 0)
    print(json.dumps([page.read()._asdict() for page in pages]), flush=True)

try:
    main()
except rank.UnwindToRankError as one:
    command, env = one.command, one.env
else:
    sys.exit()
rank.run_rank_here(command, env)
"""
DDP = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def skips(number):
    if number == 1:
        while not os.path.exists("go"):
            time.sleep(0.05)
    dist.all_reduce(torch.ones(4, 7))

number = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/meeting", rank=number, world_size=2)
model = DistributedDataParallel(torch.nn.Linear(10, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(7, 10)).sum().backward()
    optimizer.step()
skips(number)
if number == 1:
    raise SystemExit("no more")
"""


def test_a_rank_late_to_a_collective_is_seen(start):
    (start.folder / "gang.py").write_text(GANG)
    one = start(
        DDP, command=["env", "-u", PULSE_VARIABLE, *PYTHON, "gang.py", str(ROOT / "platform")], GLOO_SOCKET_IFNAME="lo"
    )
    one.wait()
    during, after = (json.loads(line) for line in one.text.splitlines() if line[:1] in "{[")
    waits, late = during["seen"]
    assert [seen["step"] for seen in during["seen"]] == [3, 3]
    assert waits["begun"] == late["begun"] + 1  # DDP's own are counted too
    assert waits["begun"] - waits["ended"] in (1, 2)  # of two that end at once gloo may not count one: collectives.py
    told = {"op": "all_reduce", "seq": waits["begun"], "group": "0", "sizes": [[4, 7]], "ranks": [0, 1]}
    assert waits["collective"] == told
    assert waits["trace"]["groups"] == {"0": {"enqueued": waits["begun"], "completed": waits["ended"]}}
    assert [entry["state"] for entry in waits["trace"]["last"]] == ["completed"] * 3 + ["scheduled"]
    assert waits["collective_at"] > waits["stepped_at"]
    assert late["collective_at"] == 0.0
    assert waits["waited"] > late["waited"]
    assert late["place"]["at"] == "train.py:10 in skips"  # without a signal
    assert "line 11 in skips" in during["stacks"]
    assert [seen["error"].get("type") for seen in after] == [None, "SystemExit"]
    assert after[1]["error"] | {"at": 0} == {
        "type": "SystemExit", "message": "no more", "file": "train.py", "line": 22, "function": "<module>", "at": 0,
        "step": 3,
    }  # fmt: skip


def test_a_shipped_runner_has_the_whole_probe():
    found = {path for path in bundle.collect_modules(bundle.POD_MODULES, ()) if path.startswith("fermi/probe/")}
    folder = Path(setup.__file__).parents[1]
    assert found == {f"fermi/{path.relative_to(folder).as_posix()}" for path in (folder / "probe").rglob("*.py")}


def test_steps_that_compile_are_counted_until_the_compiler_gives_up(start):
    one = start(
        """
        import torch
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters())
        label = ""
        def forward(batch):
            return model(batch) if label != "none" else batch
        compiled = torch.compile(forward, backend="eager")
        for number in range(12):  # each is compiled anew, until the compiler gives up
            label = f"step {number}"
            compiled(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        """,
        OMP_NUM_THREADS="1",
    )
    seen = one.wait()
    assert 5 <= seen.recompiled <= seen.recompiled_at <= 10 < seen.step, one.text
    assert seen.compiles > seen.recompiled
    assert seen.compiling > 0.0
    assert seen.compiler == {"gave_up": "train.py:6 in forward"}


PLACE = {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "gn5", "MASTER_PORT": "29500"}


def test_jax_finds_its_rank_without_arguments(start: "Start") -> None:
    """Before what it finds of Slurm, which starts one process on each node here."""
    code = """
        from jax._src import clusters
        print(clusters.ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 300))
    """
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "gn[5-6]", "SLURM_NTASKS": "2", "SLURM_PROCID": "0",
             "SLURM_LOCALID": "0"}  # fmt: skip
    rank = start(code, **PLACE, **slurm, FERMI_TASK_ID="task-x")
    rank.wait()
    assert rank.text.splitlines()[-1] == "('gn5:29500', 4, 3, [1])"
