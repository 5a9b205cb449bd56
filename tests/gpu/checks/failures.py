"""What goes wrong with a card: named by the platform with rank, line, cause and what to do, within seconds.

A launch time-out needs a card with a display's watchdog: it is not made here. The parser's tests have its text
(tests/unit/diagnosis/test_root_cause.py).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.catalogue.fault import Expected
from tests.gpu import answers
from tests.gpu.check import check
from tests.gpu.context import JOBS, Context
from tests.gpu.platform import FINAL
from tests.polling import until

BATCH = "batch|smaller"
ILLEGAL = "illegal memory access"
ENDED = "RANK_FAILED|RANK_KILLED"
"""A process whose card has failed may abort while it goes down."""


@check("CUDA out of memory: how much was asked for, and who holds the rest", limit=75, needs=("cuda",))
def out_of_memory(context: Context) -> None:
    with _holder(context, 20) as holder:
        script = context.job("out_of_memory.py")
        alone = context.start(script, "--where", "tensor")
        model = context.start(script, "--where", "model")
        part = context.start(script, "--share", "0.05")
        total = context.machine.memory / 2**30
        says = ["out of memory|memory ran out", BATCH, f"{total:.2f} GiB"]
        expected = Expected("RANK_FAILED", rank=0, says=says, shows=["out_of_memory.py:{tensor}"])
        said = answers.judge(context, alone, expected, script, title="tensor")
        whole = f"{said.text}\n{said.evidence}"
        context.expect(f"{total * 0.99:.2f} GiB" in said.text, "it does not say how much was asked for")
        context.expect("20." in whole and str(holder) in whole,
                       f"it does not say that process {holder} holds 20 GiB: {said.short[:400]}")  # fmt: skip
        expected = Expected("RANK_FAILED", rank=0, says=["memory", "GiB", BATCH], shows=["out_of_memory.py:{forward}"])
        answers.judge(context, model, expected, script, title="model")
        expected = Expected("RANK_FAILED", rank=0, says=["memory", "GiB"], shows=["out_of_memory.py:{tensor}"])
        answers.judge(context, part, expected, script, title="part of the card")


@check("the first product on a full card: cuBLAS has no memory for itself", limit=60, needs=("cuda",), alone=True)
def full_card(context: Context) -> None:
    script = context.job("full_card.py")
    expected = Expected("RANK_FAILED", rank=0, says=["memory", BATCH], shows=["full_card.py:{product}"])
    answers.judge(context, context.start(script), expected, script, title="first product")


@contextmanager
def _holder(context: Context, gib: int) -> Iterator[int]:
    """Lets a process beside the platform hold memory of the card, and gives its id."""
    with subprocess.Popen(
        [sys.executable, str(JOBS / "holds_memory.py"), str(gib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            said = process.stdout.readline()
            assert said.startswith("holds"), f"the holder says {said!r}"
            print(f"holder | {said.strip()} {context.smi('pid', 'used_gpu_memory', of='compute-apps')}", flush=True)
            yield process.pid
        finally:
            process.stdin.close()
            process.wait(20)


@check("an illegal address in a kernel: named with the rank, and with CUDA_LAUNCH_BLOCKING by its line", limit=75,
       needs=("cuda",))  # fmt: skip
def illegal_address(context: Context) -> None:
    script = context.job("illegal_address.py")
    with _xids() as seen:
        late = context.start(script)
        at_once = context.start(script, env={"CUDA_LAUNCH_BLOCKING": "1"})
        says = [ILLEGAL, "CUDA_LAUNCH_BLOCKING"]
        expected = Expected(ENDED, rank=0, says=says, shows=["illegal_address.py:{later}"])
        said = answers.judge(context, late, expected, script, title="asynchronous")
        expected = Expected(ENDED, rank=0, says=[ILLEGAL], shows=["illegal_address.py:{kernel}"])
        answers.judge(context, at_once, expected, script, title="CUDA_LAUNCH_BLOCKING=1")
    kernel = context.run("dmesg", seconds=10).output if shutil.which("dmesg") else ""
    logged = [line for line in kernel.splitlines() if "Xid" in line]
    print("xids   | NVML's events:", seen, "kernel's log:", logged, flush=True)
    context.figure("Xids by NVML's events", ", ".join(map(str, seen)) or "none")
    context.figure("Xids in the kernel's log", str(len(logged)))
    if logged:
        context.note(logged[-1][:250])
        context.expect("Xid" in f"{said.text}\n{said.evidence}", "the kernel's line of the Xid is not in the evidence")
    told = context.platform.get(f"/training-tasks/{late}/telemetry", metric="xid")
    print("telemetry |", json.dumps(told)[:3000], flush=True)


@contextmanager
def _xids() -> Iterator[list[int]]:
    """Collects the Xids of which NVML tells meanwhile (nvml.h: `nvmlEventTypeXidCriticalError`)."""
    found: list[int] = []
    over = threading.Event()

    def listen() -> None:
        try:
            import pynvml  # type: ignore[import-untyped]

            pynvml.nvmlInit()
            events = pynvml.nvmlEventSetCreate()
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            print("xids   | event types:", hex(pynvml.nvmlDeviceGetSupportedEventTypes(card)), flush=True)
            pynvml.nvmlDeviceRegisterEvents(card, pynvml.nvmlEventTypeXidCriticalError, events)
            while not over.is_set():
                try:
                    told = pynvml.nvmlEventSetWait_v2(events, 500)
                except pynvml.NVMLError_Timeout:
                    continue
                print("xids   | event", hex(told.eventType), told.eventData, flush=True)
                found.append(int(told.eventData))
            pynvml.nvmlEventSetFree(events)
        except Exception as error:
            print("xids   | NVML tells of none:", repr(error), flush=True)

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield found
        time.sleep(1.0)
    finally:
        over.set()
        thread.join(3)


@check("an index out of range: by a device-side assert on a card", limit=75)
def index_too_large(context: Context) -> None:
    script, on_gpu = context.job("index_too_large.py"), context.machine.cuda
    tasks = {what: context.start(script, what) for what in ("embedding", "class")}
    blocking = context.start(script, "class", env={"CUDA_LAUNCH_BLOCKING": "1"}) if on_gpu else ""
    conditions = {"embedding": "srcIndex|out of bounds|vocabulary", "class": "n_classes|t >= 0|class"}
    for what, task_id in tasks.items():
        says = ["An assertion on the GPU", "CUDA_LAUNCH_BLOCKING", conditions[what]] if on_gpu else ["range|bounds"]
        shows = [] if on_gpu else [f"index_too_large.py:{{{what}}}"]
        answers.judge(context, task_id, Expected(ENDED, rank=0, says=says, shows=shows), script, title=what)
    if blocking:
        expected = Expected(ENDED, rank=0, says=["An assertion on the GPU"], shows=["index_too_large.py:{class}"])
        answers.judge(context, blocking, expected, script, title="class, CUDA_LAUNCH_BLOCKING=1")


@check("a kernel of 24 s is no hang: said where the rank waits, and not ended", limit=80, needs=("cuda",))
def long_kernel(context: Context) -> None:
    script = context.job("long_kernel.py")
    task_id = context.start(script, "24", hangSeconds=5)
    line, found, use = answers.marks(script)["here"], list[str](), list[str]()
    deadline, told = time.monotonic() + 60, 0.0
    while (task := context.platform.task(task_id))["status"] not in FINAL and time.monotonic() < deadline:
        if answers.moment(context, task_id, "waits", 1):
            diagnosis = context.platform.diagnosis(task_id)
            use += [row["utilization.gpu"] for row in context.smi("utilization.gpu")]
            if text := json.dumps(diagnosis["findings"]):
                found.append(text)
            if time.monotonic() - told > 6:
                told = time.monotonic()
                print("meanwhile |", json.dumps(diagnosis)[:6000], flush=True)
                print(
                    "pulses |", json.dumps(context.platform.get(f"/training-tasks/{task_id}/pulses"))[:3000], flush=True
                )
        time.sleep(1.0)
    answers.show(context, task_id)
    print("utilisation |", " ".join(use), flush=True)
    context.expect(task["status"] == "succeeded" and task["attempt"] == 1,
                   f"it was ended: {task['status']}, attempt {task['attempt']}: {task['reason']}")  # fmt: skip
    said = [text for text in found if f"long_kernel.py:{line}" in text]
    context.expect(said, f"while it lasted nobody was told that rank 0 waits in line {line}")
    context.figure("looks at which it was said", f"{len(said)} of {len(found)}")


@check("rank 1 of two on the card leaves an all_reduce out: both operations are named", limit=90)
def skipped_collective(context: Context) -> None:
    context.note("with nccl and one rank nothing can wait for anybody, and two ranks of nccl need two cards")
    script = context.job("skipped_collective.py")
    task_id = context.start(script, ranks=2, hangSeconds=8)
    expected = Expected("COLLECTIVE_MISMATCH", rank=1, says=["all_reduce", "all_?gather|allgather|all_gather"])
    answers.judge(context, task_id, expected, script, seconds=60, within=30, ranks=2)
    context.expect(answers.stop(context, task_id)["status"] == "failed", "it was not ended for it")


@check("a loss that is no number in bfloat16 is told, and ends what asks for that", limit=60)
def nan_in_bf16(context: Context) -> None:
    script = context.job("nan_in_bf16.py")
    task_id = context.start(script, onBadLoss="stop")
    expected = Expected("LOSS_NOT_FINITE|BAD_LOSS", says=["5|6"])
    answers.judge(context, task_id, expected, script, seconds=40)


@check("a wrong libcuda.so.1 before the driver's is named", limit=60, needs=("cuda",))
def wrong_driver_library(context: Context) -> None:
    script, before = context.job("uses_the_card.py"), os.environ.get("LD_LIBRARY_PATH", "")
    folders = {"empty": context.workspace / "empty", "without symbols": context.workspace / "stub"}
    for folder in folders.values():
        folder.mkdir()
        folder.chmod(0o755)
    (folders["empty"] / "libcuda.so.1").write_bytes(b"")
    (folders["empty"] / "libcuda.so.1").chmod(0o644)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler:
        source = context.workspace / "stub.c"
        source.write_text("int fermi_stub;\n")
        words = (
            "-shared",
            "-fPIC",
            "-Wl,-soname,libcuda.so.1",
            "-o",
            folders["without symbols"] / "libcuda.so.1",
            source,
        )
        context.run(compiler, *words, seconds=20)
    else:
        context.note("no compiler: only an empty library was tried")
        del folders["without symbols"]
    tasks = {name: context.start(script, env={"LD_LIBRARY_PATH": f"{folder}:{before}".rstrip(":")})
             for name, folder in folders.items()}  # fmt: skip
    for name, folder in folders.items():
        context.python("-c", "import torch; print(torch.cuda.is_available()); torch.ones(1, device='cuda')", seconds=30,
                       env={"LD_LIBRARY_PATH": f"{folder}:{before}".rstrip(":")})  # fmt: skip
        expected = Expected(
            "RANK_FAILED", rank=0, says=["driver", "LD_LIBRARY_PATH"], shows=["uses_the_card.py:{here}"]
        )
        answers.judge(context, tasks[name], expected, script, title=name)


@check("a task that has a card and trains on the CPU is told so; one that trains on its card is not", limit=110,
       needs=("cuda",))  # fmt: skip
def falls_to_the_cpu(context: Context) -> None:
    script = context.job("falls_to_the_cpu.py")
    for env, device in (({"CUDA_VISIBLE_DEVICES": ""}, "cpu"), ({}, "cuda:0")):
        task_id, began = context.start(script, "42", env=env), time.monotonic()
        found, deadline = dict[str, str](), began + 48
        while "GPU_NOT_USED" not in found and time.monotonic() < deadline:
            found |= {str(one["code"]): one["message"] for one in context.platform.diagnosis(task_id)["findings"]}
            if context.platform.task(task_id)["status"] in FINAL:
                break
            time.sleep(0.5)
        told, seconds = "GPU_NOT_USED" in found, time.monotonic() - began
        print(device, "| found |", json.dumps(found), flush=True)
        context.expect(told == (device == "cpu"), f"on {device} it was told {found}")
        if told:
            context.figure("seconds from the request until it was told", seconds, "s", most=40)
            answers.stop(context, task_id)
        else:
            answers.show(context, task_id)
            used = context.printed(task_id, "device")["device"]
            context.expect(used == device, f"it trained on {used}")


@check("kill -9 of one of two ranks that share the card: named, its memory is free, and it goes on", limit=75)
def killed_rank(context: Context) -> None:
    script = context.job("goes_on_from_a_checkpoint.py")
    saved = context.workspace / "state.pt"
    task_id = context.start(script, str(saved), "120", ranks=2, maxRestarts=1)
    until(lambda: saved.exists() or context.platform.task(task_id)["status"] in FINAL, seconds=40, what="a checkpoint")
    pids = [context.pid(task_id, rank) for rank in (0, 1)]
    if context.machine.cuda:
        print("before |", context.smi("pid", "used_gpu_memory", of="compute-apps"), pids, flush=True)
    killed_at = time.time()
    os.kill(pids[1], 9)
    said, seconds = "", None
    while time.time() - killed_at < 40 and (task := context.platform.task(task_id))["status"] not in FINAL:
        said = json.dumps(context.platform.diagnosis(task_id))
        if seconds is None and "RANK_KILLED" in said and "SIGKILL" in said:
            seconds = time.time() - killed_at
            print("diagnosis |", said[: answers.MOST_LOGGED], flush=True)
        time.sleep(0.2)
    context.expect(seconds is not None, "nobody was told that SIGKILL ended rank 1")
    if seconds is not None:
        context.figure("seconds until it was told", seconds, "s", most=10)
    answers.show(context, task_id, ranks=2)
    task = context.platform.task(task_id)
    again = context.platform.log(task_id, 0, 2)
    print("second attempt |", again[-3000:], flush=True)
    context.expect(
        task["status"] == "succeeded" and task["attempt"] == 2, f"{task['status']}, attempt {task['attempt']}"
    )
    firsts = [json.loads(line)["first"] for line in again.splitlines() if line.startswith('{"first"')]
    context.expect(firsts and firsts[0] >= 10, f"the second attempt began at step {firsts}")
    context.expect(not any(map(context.is_alive, pids)), f"of {pids} one still lives")
    if context.machine.cuda:
        left = [row for row in context.smi("pid", "used_gpu_memory", of="compute-apps") if row["pid"] in map(str, pids)]
        context.expect(not left, f"memory of the card is still held: {left}")


@check("a crash in C of a rank that has the card is named", limit=50)
def crash_in_c(context: Context) -> None:
    script = context.job("crash_in_c.py")
    task_id = context.start(script)
    expected = Expected("RANK_KILLED|RANK_FAILED", rank=0, says=["SIGSEGV|crashed"], shows=["crash_in_c.py", "{here}"])
    answers.judge(context, task_id, expected, script)


@check("CUDA in a forked DataLoader worker: named with the remedy", limit=50, needs=("cuda",))
def card_in_a_loader(context: Context) -> None:
    script = context.job("card_in_a_loader.py")
    expected = Expected("RANK_FAILED", rank=0, says=["fork", "spawn"], shows=["card_in_a_loader.py:{here}"])
    answers.judge(context, context.start(script), expected, script)


@check("XLA out of memory: how much was asked for", limit=70, needs=("cuda", "jax"))
def jax_out_of_memory(context: Context) -> None:
    script = context.job("jax_out_of_memory.py")
    task_id = context.start(script, env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "1"})
    expected = Expected("RANK_FAILED", rank=0, says=["memory", BATCH], shows=["jax_out_of_memory.py:{here}"])
    answers.judge(context, task_id, expected, script, seconds=60)
