"""How soon the first optimizer step comes, and what of that is CUDA's."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from bench import procfs
from fermi.engines.fork_rules import IMPORT_TIME_PREFIXES
from fermi.engines.local.launcher import build_training_env
from fermi.frameworks.ddp import PRELOAD
from tests.gpu.check import check
from tests.gpu.context import Context
from tests.platform_process import free_port
from tests.polling import until

TRAINER = "fermi.train.train_ddp"
CUDA_LIBRARIES = re.compile(r"/(lib(?:cuda|cudart|nvidia-ml|nccl|cublas|cufile|nvshmem|cupti|cudnn)[\w.-]*\.so[\w.]*)")
Row = dict[str, Any]


@check("an unchanged DDP script trains as a task of this machine", limit=90, proves=("000-54", "000-55", "003-23"))
def plain_script(context: Context) -> None:
    task = context.train(context.job("plain_ddp.py"))
    print("\n".join(context.platform.events(task["taskId"])))
    told = context.printed(task["taskId"], "first_step")
    device = told["device"]
    context.expect(device == ("cuda:0" if context.machine.cuda else "cpu"), f"it trained on {device}")
    backend = "nccl" if context.machine.cuda else "gloo"
    context.expect(told.get("backend") == backend, f"its backend was {told.get('backend')}")
    context.figure("device", device)
    context.figure("backend", told.get("backend", ""))
    _split(context, "", told)


def _split(context: Context, of: str, told: Row) -> None:
    for name, begin, end in (
        ("imports", "began", "imported"), ("context", "imported", "context"),
        ("group and first collective", "context", "met"), ("first step", "met", "first_step"),
    ):  # fmt: skip
        context.figure(f"{of}{name}", told[end] - told[begin], "s")


# --- The fork server ---------------------------------------------------------------------------------------------


@check("the process that others are forked from has no CUDA context, and CUDA starts in those", limit=120)
def fork_server_has_no_context(context: Context) -> None:
    script = context.job("forked.py")
    own = own_environment(context, "fork-server")
    context.train(script, **own)
    found = _stand_by(context)
    context.expect(found, "no process stood by with PyTorch imported")
    if found:
        _expect_untouched(context, found)
    libraries = [name for name in ("jax", "transformers") if name in context.machine.packages]
    for words in ((), (), libraries):
        task = context.train(script, *words, **own)
        told = context.printed(task["taskId"], "before")
        print(json.dumps(told, indent=1))
        context.expect("torch" in told["before"], f"PyTorch had not been imported before the rank: {told['before']}")
        context.expect(len(told["threads"]) <= 2, f"a forked rank began with {told['threads']} (one is the pulse's)")
        wanted = int(told["threads_wanted"] or 1)
        context.expect(told["threads_of_torch"] == wanted, f"{told['threads_of_torch']} threads, not {wanted}, compute")
        context.note(f"threads: {len(told['threads'])}, of a worker {told['threads_of_a_worker']}; compute: {wanted}")
        context.expect(not told["initialised"], "CUDA counted as initialised when the rank began")
        context.expect(not told["bad_fork"], "PyTorch took the rank for forked after CUDA had begun")
        context.expect(told["sum"] == told["after"] == 64**3, f"it computed {told['sum']} and {told['after']}")
        context.expect(told["loaded"] == 2016.0, f"its data loader's workers brought {told['loaded']}")
        context.expect(told["device"] == ("cuda" if context.machine.cuda else "cpu"), f"it ran on {told['device']}")
        for name, what in told["libraries"].items():
            context.expect(isinstance(what, list), f"{name} in a forked rank: {what}")
            context.note(f"{name} {what[0]}: {what[1]}" if isinstance(what, list) else f"{name} failed")
    if found := _stand_by(context):  # after it was used
        _expect_untouched(context, found)


def own_environment(context: Context, name: str) -> Row:
    """Returns what `Context.start` is given for a task in an environment of its own: tasks in another one do not wait
    for each other, though both use the same card."""
    cuda = context.machine.cuda
    made = context.platform.environment(f"{context.name}-{name}", 1, emulated=not cuda)
    distributed = {"enabled": True, "nodeIds": [made], "masterNode": made, "framework": "ddp"}
    return {"environmentIds": [made], "distributedConfig": distributed}


def _stand_by(context: Context) -> Row | None:
    """Returns what /proc tells of the process that stands by, None where there is none; another task may have it
    replaced meanwhile."""
    for _ in range(100):
        with suppress(OSError, IndexError, KeyError):
            pid = template(context)
            if pid:
                return _facts(pid)
        time.sleep(0.1)
    return None


def template(context: Context) -> int | None:
    """Returns the process that stands by for tasks of PyTorch, once that is imported."""
    worker = int(context.platform.processes()["worker"]["pid"])
    for pid in procfs.list_children(worker):
        if "fermi.runner.fork_server" in procfs.read_command(pid) and "torch" in procfs.read_command(pid):
            return (
                pid
                if "libtorch_cpu" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
                else None
            )
    return None


def _facts(pid: int) -> Row:
    files = [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
    maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
    return {
        "pid": pid, "files": sorted(files), "libraries": sorted(set(CUDA_LIBRARIES.findall(maps))),
        "devices": sorted({line.split()[-1] for line in maps.splitlines() if "/dev/nvidia" in line}),
        "threads": len(os.listdir(f"/proc/{pid}/task")), "memory": procfs.read_memory([pid]).resident,
        "command": procfs.read_command(pid),
    }  # fmt: skip


def _expect_untouched(context: Context, found: Row) -> None:
    print(json.dumps(found, indent=1))
    opened = [name for name in (*found["files"], *found["devices"]) if "/dev/nvidia" in name]
    context.expect(not opened, f"the process that stands by has {opened} open")
    context.expect(found["threads"] == 1, f"the process that stands by has {found['threads']} threads")
    loaded = [name for name in found["libraries"] if name.startswith(("libcuda.so", "libnvidia-ml"))]
    context.note(f"of the driver's libraries it has loaded {loaded or 'none'}; CUDA's: {len(found['libraries'])}")
    context.figure("memory of the process that stands by", found["memory"], "MiB")
    if context.machine.cuda:
        print(subprocess.run(["nvidia-smi"], capture_output=True, text=True, check=False).stdout)
        named = [row["pid"] for row in context.smi("pid", "used_memory", of="compute-apps")]
        context.expect(str(found["pid"]) not in named, "nvidia-smi names the process that stands by")


@check("who loads the driver's library when PyTorch is imported, and which variables are read then", limit=90)
def read_before_the_fork(context: Context) -> None:
    modules = ", ".join(PRELOAD)
    driver = context.python(
        "-c", f"import {modules}", env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(context.folder / "ld")}
    )
    context.expect(driver.code == 0, f"the imports ended with {driver.code}")
    for path in context.folder.glob("ld.*"):
        said = path.read_text(encoding="utf-8", errors="replace").splitlines()
        lines = [line for line in said if re.search(r"libcuda\.so|libnvidia-ml", line)]
        print("\n".join(lines[:40]))
        for line in lines:
            if "dynamically loaded by" in line or "needed by" in line:
                context.note(line.split(":", 1)[1].strip()[:200])
    source, library = context.folder / "getenv.c", context.folder / "getenv.so"
    source.write_text(GETENV)
    built = context.run("gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl")
    if built.code != 0:
        context.skip("there is no C compiler to watch getenv with")
    names = context.folder / "names"
    # what is set is read by whoever goes through the environment: only what is asked for by its name shall be seen
    machines: dict[str, str | None] = {name: None for name in os.environ if name.startswith(OF_ACCELERATORS)}
    context.note(f"set by the machine's image: {', '.join(sorted(machines))}")
    watched = context.python("-c", PYTHON_READS.replace("MODULES", modules), env={
        **machines, "LD_PRELOAD": str(library), "GETENV_LOG": str(names),
    })  # fmt: skip
    in_c = set(names.read_text().split()) if names.exists() else set()
    in_python = watched.json("python")["python"]
    places = {name: place for name, place in in_python.items() if name.startswith((*OF_ACCELERATORS, *OF_COMPILERS))}
    print(f"in C: {sorted(in_c)}\nin Python: {sorted(in_python)}\n{json.dumps(places, indent=1)}")
    read = in_c | in_python.keys()
    context.expect(len(in_c) > 10, f"only {sorted(in_c)} were seen in C")
    unlisted = sorted(name for name in read if not name.startswith(IMPORT_TIME_PREFIXES))
    context.figure("variables that are read before the fork", len(read))
    context.note(f"read before the fork, and not listed: {', '.join(unlisted)}")
    matter = [
        name  # a name with small letters is a library's own secret (CUDA_7a3f9c2d)
        for name in unlisted
        if name.startswith((*OF_ACCELERATORS, *OF_COMPILERS)) and name.isupper() and name not in HARMLESS
    ]
    context.expect(not matter, f"read before the fork, so that a forked rank's would come too late: {matter}")


OF_ACCELERATORS = ("CUDA", "CUBLAS", "CUDNN", "CUFFT", "CUSOLVER", "CUSPARSE", "NVIDIA", "NCCL", "NVSHMEM", "NVTE",
                   "GLOO", "XLA", "JAX", "TRITON", "CUPTI", "KINETO", "ATEN", "C10", "CUFILE", "UCX")  # fmt: skip
OF_COMPILERS = ("CXX", "NVRTC", "NVCC", "PTXAS")
HARMLESS = {
    "CUDA_HOME": "where it is looked for while PyTorch is imported, nothing is built",
    "CUDA_PATH": "the same",
    "PTXAS_OPTIONS": "of no documentation",
}
GETENV = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
static char *find(const char *name) {
    size_t length = strlen(name);
    for (char **one = environ; one && *one; one++)
        if (!strncmp(*one, name, length) && (*one)[length] == '=') return *one + length + 1;
    return 0;
}
static void note(const char *name) {
    char *path = find("GETENV_LOG");
    if (!path || !strcmp(name, "GETENV_LOG")) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (file < 0) return;
    char line[256];
    size_t length = strlen(name) > 254 ? 254 : strlen(name);
    memcpy(line, name, length);
    line[length] = '\n';
    if (write(file, line, length + 1)) {}
    close(file);
}
char *getenv(const char *name) { note(name); return find(name); }
char *secure_getenv(const char *name) { note(name); return find(name); }
"""
PYTHON_READS = """
import json, os
import sys
read, get = {}, os._Environ.__getitem__
def noted(self, name):
    frame = sys._getframe(1)
    while frame and ("os.py" in frame.f_code.co_filename or "frozen" in frame.f_code.co_filename
                     or "collections" in frame.f_code.co_filename):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename[-60:]}:{frame.f_lineno}" if frame else ""
    read.setdefault(name if isinstance(name, str) else repr(name), place)
    return get(self, name)
os._Environ.__getitem__ = noted
import MODULES
print(json.dumps({"python": read}))
"""


@check("variables of the environment reach CUDA in a forked rank", limit=120)
def variables_reach_a_forked_rank(context: Context) -> None:
    script = context.job("variables.py")
    plain = context.torchrun(script, seconds=60).json("variables")["variables"]
    uuid = f"GPU-{plain.get('uuid', '').removeprefix('GPU-')}"
    allocator = "expandable_segments:True"
    runs: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
        "none": ({}, ()),
        "many": ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "NVIDIA_TF32_OVERRIDE": "0",
                  "CUBLAS_WORKSPACE_CONFIG": ":16:8", "NCCL_DEBUG": "INFO"}, ()),
        "blocking": ({"CUDA_LAUNCH_BLOCKING": "1"}, ()),
        "allocator": ({"PYTORCH_CUDA_ALLOC_CONF": allocator}, ()),
        "newer allocator": ({"PYTORCH_ALLOC_CONF": allocator}, ()),
        "by uuid": ({"CUDA_VISIBLE_DEVICES": uuid}, ()),
        "no device": ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
        "in the script": ({}, (f"PYTORCH_CUDA_ALLOC_CONF={allocator}", "NVIDIA_TF32_OVERRIDE=0",
                               "CUDA_LAUNCH_BLOCKING=1", "CUBLAS_WORKSPACE_CONFIG=:16:8")),
    }  # fmt: skip
    tasks = {}
    for name, (env, words) in runs.items():
        own = own_environment(context, name.replace(" ", "-"))
        tasks[name] = context.start(script, *words, env=env, **own)
    ended = {name: context.finish(task, 60) for name, task in tasks.items()}
    for name, task in ended.items():
        context.expect(task["status"] == "succeeded", f"with {name}: {task['status']}: {task['reason']}")
    found = {name: _variables(context, task) for name, task in tasks.items()}
    found["torchrun"] = plain
    witness = context.python(script, *runs["in the script"][1], seconds=60, env={"RANK": None}).json("variables")
    found["in the script, by hand"] = witness["variables"]
    print(json.dumps(found, indent=1))
    none, many = found["none"], found["many"]
    context.expect(none.get("forked") and many.get("forked"), "the ranks were not forked, so nothing is shown of that")
    for name in ("allocator", "newer allocator", "blocking"):
        context.expect(
            found[name].get("forked") is False, f"{runs[name][0]}: the rank was forked after it had been read"
        )
    context.expect(many.get("order") == "PCI_BUS_ID", f"CUDA_DEVICE_ORDER is {many.get('order')}")
    context.expect(found["no device"].get("devices") == 0, f"CUDA_VISIBLE_DEVICES=-1: {found['no device']}")
    if context.machine.cuda:
        _expect_effects(context, found, tasks)
        context.expect(found["by uuid"].get("devices") == 1, f"CUDA_VISIBLE_DEVICES={uuid}: {found['by uuid']}")


def _expect_effects(context: Context, found: dict[str, Row], tasks: dict[str, str]) -> None:
    none, many, log = found["none"], found["many"], context.log(tasks["many"])
    _expect_blocking(context, "none", none, blocking=False)
    _expect_blocking(context, "CUDA_LAUNCH_BLOCKING", found["blocking"], blocking=True)
    context.expect(none.get("error", 0) > 3e-5, f"without a variable TF32 was not in use: {none.get('error')}")
    context.expect(many.get("error", 1) < 3e-5, f"NVIDIA_TF32_OVERRIDE=0 changed nothing: {many.get('error')}")
    context.expect(many.get("workspace", 1e9) < none.get("workspace", 0),
                   f"CUBLAS_WORKSPACE_CONFIG: {many.get('workspace')} against {none.get('workspace')} B")  # fmt: skip
    context.expect(many.get("deterministic") == "", f"CUBLAS_WORKSPACE_CONFIG: {many.get('deterministic')}")
    context.expect("NCCL INFO" in log, "NCCL_DEBUG=INFO brought no line of NCCL's")
    context.expect("Destroy COMPLETE" in log, f"NCCL's last lines are not in the log: {log[-600:]}")
    for name in ("none", "allocator"):  # forked, executed
        context.expect("NCCL version" in context.log(tasks[name]), f"with {name} the log lacks NCCL's version")
    for name in ("allocator", "newer allocator"):
        context.expect(found[name].get("expandable"), f"the {name}'s variable changed nothing")
    ours, theirs = found["in the script"], found["in the script, by hand"]
    for name, told in (("ours", ours), ("by hand", theirs)):
        shown = {what: told.get(what) for what in ("expandable", "error", "launch", "workspace")}
        context.note(f"set by the script before it imports torch, {name}: {shown}")
    for what, same in (
        ("PYTORCH_CUDA_ALLOC_CONF", ours.get("expandable") == theirs.get("expandable")),
        ("NVIDIA_TF32_OVERRIDE", (ours.get("error", 1) < 3e-5) == (theirs.get("error", 1) < 3e-5)),
        ("CUDA_LAUNCH_BLOCKING", _blocks(ours) == _blocks(theirs)),
        ("CUBLAS_WORKSPACE_CONFIG", ours.get("workspace") == theirs.get("workspace")),
    ):
        context.expect(same, f"{what}, set by a script before it imports torch, acts otherwise in a forked rank")


def _variables(context: Context, task_id: str) -> Row:
    with suppress(AssertionError):
        found: Row = context.printed(task_id, "variables")["variables"]
        return found
    return {}


def _blocks(told: Row) -> bool:
    return bool(told.get("launch", 0) > 0.5 * told.get("kernel", 1))


def _expect_blocking(context: Context, name: str, told: Row, *, blocking: bool) -> None:
    text = f"a launch took {told.get('launch')} s of a kernel's {told.get('kernel')} s"
    context.expect(_blocks(told) == blocking, f"with {name} {text}")


# --- Time --------------------------------------------------------------------------------------------------------

HYPERPARAMETERS = {"totalSteps": 20, "evalBatches": 1}
ROUNDS = {"trainer": (3, 1, 1), "plain script": (2, 2, 2)}
"""Warm, cold, and by torchrun. Cold and torchrun are nearest to each other with the plain script."""


@check("request to first optimizer step, warm and cold, against torchrun", limit=240, alone=True, proves=("003-22",))
def cold_and_warm(context: Context) -> None:
    """Ours: from sending POST /training-tasks. torchrun: from starting its process. Cold: the process that stands by
    was ended just before."""
    cuda, script = context.machine.cuda, context.job("plain_ddp.py")
    own = own_environment(context, "alone")
    sizes = () if cuda else ("--width", "64", "--batch", "4")  # on processors it is not the step that counts
    took: dict[str, list[float]] = {}
    words = list[str]()

    def trainer() -> float:
        began = time.time()
        task = context.start(hyperparameters=HYPERPARAMETERS, **own)
        ended = context.finish(task, 60)
        context.expect(ended["status"] == "succeeded", f"{task}: {ended['status']}: {ended['reason']}")
        command = json.loads((context.platform.data / "runs" / f"{task}-1" / "node-0.json").read_text())["command"]
        words[:] = command[command.index(TRAINER) :]
        device = "cuda:0" if cuda else "cpu"
        context.expect(f"Device: {device}" in context.log(task), f"our trainer did not say that it has {device}")
        return _first_metric(context.log(task)) - began

    def plain() -> float:
        began = time.time()
        task = context.start(script, *sizes, **own)
        ended = context.finish(task, 60)
        context.expect(ended["status"] == "succeeded", f"{task}: {ended['status']}: {ended['reason']}")
        told = context.printed(task, "first_step")
        splits.append({**told, "requested": began})
        return float(told["first_step"]) - began

    splits = list[Row]()
    trainer()  # is not counted: now a process stands by, and every file has been read once
    ways = {"trainer": trainer, "plain script": plain}
    for name, way in ways.items():
        for _ in range(ROUNDS[name][0]):
            _wait_for_stand_by(context)
            took.setdefault(f"{name}, warm", []).append(way())
    warm = splits[-1]
    for name, way in ways.items():
        for _ in range(ROUNDS[name][1]):
            _end_stand_by(context)
            took.setdefault(f"{name}, cold", []).append(way())
    took["trainer, torchrun"] = [_by_hand(context, words) for _ in range(ROUNDS["trainer"][2])]
    runs = [_plain_by_hand(context, script, *sizes) for _ in range(ROUNDS["plain script"][2])]
    took["plain script, torchrun"] = [run["first_step"] - run["requested"] for run in runs]
    by_hand = runs[-1]
    print(json.dumps({"took": took, "warm": warm, "torchrun": by_hand}, indent=1))
    for name in ("trainer", "plain script"):
        for when, most, seconds in (("warm", 0.6, 5.0), ("cold", 1.0, None)):
            ours, theirs = median(took[f"{name}, {when}"]), median(took[f"{name}, torchrun"])
            context.figure(f"{name}, {when}", ours, "s", most=seconds if cuda else None)
            context.figure(f"{name}, {when}, against torchrun", ours / theirs, "×", most=most if cuda else None)
        context.figure(f"{name}, torchrun", median(took[f"{name}, torchrun"]), "s")
    for name, told in (("warm: ", warm), ("torchrun: ", by_hand)):
        context.figure(f"{name}until the script begins", told["began"] - told["requested"], "s")
        _split(context, name, told)


def _first_metric(log: str) -> float:
    for line in log.splitlines():
        if line.startswith('{"step": '):
            return float(json.loads(line)["time"])
    raise AssertionError(f"no line of metrics in:\n{log[-3000:]}")


def _wait_for_stand_by(context: Context) -> None:
    """Until it has imported everything: then it waits without using the processor."""
    worker = int(context.platform.processes()["worker"]["pid"])
    until(lambda: procfs.find_standby(worker), seconds=20, what="a process stands by")


def _end_stand_by(context: Context) -> None:
    worker = int(context.platform.processes()["worker"]["pid"])
    for pid in procfs.list_children(worker):
        if "fermi.runner.fork_server" in procfs.read_command(pid):
            os.kill(pid, signal.SIGKILL)
            until(lambda pid=pid: not context.is_alive(pid) or _state(pid) == "Z", what="it has ended")  # type: ignore[misc]


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return "Z"


def _by_hand(context: Context, words: list[str]) -> float:
    command = [*_torchrun(), "-m", *words, "--checkpoint_dir", str(context.folder / f"made-{time.time_ns()}")]
    began = time.time()
    ran = context.run(*command, env=build_training_env(), seconds=90)
    context.expect(ran.code == 0, f"torchrun ended with {ran.code}")
    return _first_metric(ran.output) - began


def _plain_by_hand(context: Context, script: Path, *words: str) -> Row:
    began = time.time()
    ran = context.run(*_torchrun(), str(script), *words, env=build_training_env(), seconds=90)
    context.expect(ran.code == 0, f"torchrun ended with {ran.code}")
    return {**ran.json("first_step"), "requested": began}


def _torchrun() -> list[str]:
    return [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=1", f"--master_port={free_port()}"]


@check("what CUDA, NCCL, cuBLAS and the first step of AdamW take, each in a fresh process", limit=60, alone=True)
def context_and_nccl_apart(context: Context) -> None:
    ran = context.python("-m", "tests.gpu.start_latency", context.folder, seconds=50, cwd=Path.cwd())
    told = ran.json("beginnings")
    for name, what in told["beginnings"].items():
        context.expect("error" not in what, f"{name}: {what.get('error')}")
        for part, seconds in what.items():
            if part != "error":
                context.figure(f"{name}: {part}", seconds, "s")
