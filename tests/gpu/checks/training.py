"""Our trainers on the card: that they learn, save, stop and go on; what they take of memory, and how fast they are.

One card shows world size 1: the schedules of a split run on CUDA. What a split comes to is for `several.py`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from fermi.jobs import gpus, memory, recipes
from tests.gpu.check import check
from tests.gpu.context import Context, Row
from tests.gpu.stacks import print_stacks

ROOT = Path(__file__).resolve().parents[3]
STEPS, HALF = 20, 10
STOP_AFTER = 3
GRACE = 20
"""Seconds that a stop may take: NCCL needs half a second to end each communicator, and Megatron has several."""
SLOW = 1.8
"""Seconds of a stop after which it is printed where the rank is."""
LEARNS = 0.2
"""Nats per token that the loss falls by, at least, in so many steps."""
NEAR = 5e-3
"""Relative. What backward passes of attention sum on GPUs is summed in any order: a run that went on from a checkpoint
equals the uninterrupted one bit for bit on CPUs, and within this on GPUs."""


# --- Our trainers as tasks ------------------------------------------------------------------------------------------


def shape(context: Context) -> Row:
    """Returns hyperparameters of a GPT that trains in a few seconds."""
    small = {"layers": 4, "heads": 8, "hiddenSize": 512, "sequenceLength": 256, "batchSize": 8}
    tiny = {"layers": 1, "heads": 2, "hiddenSize": 32, "sequenceLength": 32, "batchSize": 4}
    told = small if context.machine.cuda else tiny
    rest = {"learningRate": 1e-3 if context.machine.cuda else 1e-2, "warmupSteps": 2, "logEvery": 1, "evalEvery": HALF}
    return {**told, **rest, "evalBatches": 2, "totalSteps": STEPS, "checkpointEvery": HALF}


def begin(context: Context, framework: str, *words: str, options: Mapping[str, Any] | None = None,
          script: Path | None = None, resume: str = "", env: Mapping[str, str] | None = None, grace: int = 5,
          **hyperparameters: Any) -> str:  # fmt: skip
    """Starts a task of a framework of ours and returns its id. Options go through `distributedConfig`."""
    changes: Row = {"hyperparameters": {**shape(context), **hyperparameters}, "graceSeconds": grace}
    if resume:
        changes["resumeFrom"] = resume
    return context.start(script, *words, framework=framework, env=env, options=dict(options or {}), **changes)


def printed_events(context: Context, task_id: str, event: str) -> list[Row]:
    """Returns the events of this name that rank 0 printed, each on a line of its own."""
    found = []
    for line in context.log(task_id).splitlines():
        if line.startswith("{") and f'"{event}"' in line:
            told = json.loads(line)
            found += [told] if told.get("event") == event else []
    return found


def losses(context: Context, task_id: str, name: str = "loss") -> dict[int, float]:
    """Returns what the platform stored, by step."""
    points = context.platform.items(task_id, "metrics", limit=5000)
    return {point["step"]: point["values"][name] for point in points if point["values"].get(name) is not None}


def on_card(context: Context, device: str) -> bool:
    return device.startswith(("cuda", "gpu")) if context.machine.cuda else device == "cpu"


def succeeded(context: Context, task_id: str, seconds: float) -> bool:
    task = context.finish(task_id, seconds)
    if task["status"] != "succeeded":
        print("events |", *context.platform.events(task_id)[-40:], sep="\n", flush=True)
        print("told   |", json.dumps(context.platform.diagnosis(task_id))[:6000], flush=True)
    return context.expect(task["status"] == "succeeded", f"{task_id}: {task['status']}: {task['reason']}")


def learns(context: Context, task_id: str, label: str, seconds: float, steps: int = STEPS) -> dict[int, float]:
    """Waits for a task's end; returns its losses. Expects that it trained on the card, all steps, and learnt."""
    if not succeeded(context, task_id, seconds):
        return {}
    [started] = printed_events(context, task_id, "started") or [{}]
    context.expect(on_card(context, str(started.get("device"))), f"{label} trained on {started.get('device')}")
    found = losses(context, task_id)
    if context.expect(set(found) == set(range(1, steps + 1)), f"{label}: the platform has the steps {sorted(found)}"):
        fell = found[1] - mean(found[step] for step in range(steps - 2, steps + 1))
        context.figure(f"{label}: loss fell by", fell, "nats", least=LEARNS)
    context.note(f"{label}: {started.get('dtype')}, {started.get('parameters')} parameters on {started.get('device')}")
    return found


def saves_and_resumes(context: Context, framework: str, label: str, *words: str, seconds: float = 60,
                      script: Path | None = None, options: Mapping[str, Any] | None = None,
                      env: Mapping[str, str] | None = None) -> str:  # fmt: skip
    """Trains; goes on from the checkpoint half-way as a task of its own; and stops a third one that would train for
    ever. Returns the id of the first."""
    whole = begin(context, framework, *words, options=options, script=script, env=env)
    endless = begin(
        context, framework, *words, options=options, script=script, grace=GRACE, totalSteps=100_000, stepDelay=0.05,
        evalEvery=0, checkpointEvery=0,
    )  # fmt: skip
    found = learns(context, whole, label, seconds)
    kept = {one["step"]: one for one in context.platform.items(whole, "checkpoints")}
    context.expect({HALF, STEPS} <= set(kept), f"{label}: checkpoints of steps {sorted(kept)}")
    again = ""
    if found and HALF in kept:
        print("saved  |", json.dumps(kept[HALF]), flush=True)
        again = begin(context, framework, *words, options=options, script=script, resume=kept[HALF]["path"])
    stops(context, endless, label, seconds)
    if again and succeeded(context, again, seconds):
        resumed = losses(context, again)
        context.expect(printed_events(context, again, "resumed"), f"{label}: it did not say that it resumed")
        if context.expect(set(resumed) == set(range(HALF + 1, STEPS + 1)), f"{label}: resumed {sorted(resumed)}"):
            off = max(abs(resumed[step] - found[step]) / found[step] for step in resumed)
            context.figure(f"{label}: resumed, off by at most", off, "of the loss", most=NEAR)
            if not context.machine.cuda:
                context.expect(off == 0, f"{label}: resumed on CPUs, off by {off}")
    return whole


def stops(context: Context, task_id: str, label: str, seconds: float) -> None:
    """Stops a task that trains: SIGTERM, a checkpoint of the last step, all within its grace period."""
    deadline = time.monotonic() + seconds
    while (task := context.platform.task(task_id))["status"] not in ("failed", "succeeded", "stopped"):
        if (task["step"] or 0) >= STOP_AFTER or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    began = time.monotonic()
    context.platform.api.post(f"/training-tasks/{task_id}/stop")

    def print_slow_stop() -> None:
        if (lasts := time.monotonic() - began) > SLOW:
            print(f"stop   | after {lasts:.1f} s; the log ends {context.log(task_id)[-200:]!r}")
            print_stacks(context, task_id)
            time.sleep(0.7)

    task = context.finish(task_id, 30, print_slow_stop)
    context.figure(f"{label}: saved and stopped after", time.monotonic() - began, "s", most=20)
    stopped, saved = printed_events(context, task_id, "stopped"), printed_events(context, task_id, "checkpoint")
    context.expect(task["status"] == "stopped", f"{label}: stopped as {task['status']}: {task['reason']}")
    if context.expect(stopped and saved, f"{label}: SIGTERM saved nothing: {stopped} {saved}"):
        last = max(losses(context, task_id), default=0)
        same = stopped[-1]["step"] == saved[-1]["step"] >= last
        context.expect(same, f"{label}: stopped {stopped[-1]}, saved {saved[-1]}, last loss of step {last}")


def talked_by_nccl(context: Context, task_id: str, label: str) -> None:
    """Expects NCCL's own lines in the log of a task that ran with NCCL_DEBUG=INFO; no line of ours says it."""
    if context.machine.cuda:
        lines = [line for line in context.log(task_id).splitlines() if "NCCL INFO" in line or "NCCL version" in line]
        print("nccl   |", *lines[:60], sep="\n", flush=True)
        context.expect(any("NCCL version" in line for line in lines), f"{label}: no line of NCCL's own: gloo?")


@check("DDP: learns on the card over NCCL, saves, resumes, stops", limit=100,
       proves=("000-54", "000-55", "003-22", "003-23", "004-208"))  # fmt: skip
def ddp_trains(context: Context) -> None:
    """A copy of our trainer, as users copy it, with `--distributed`: the recipe itself makes no group of one process.
    The recipe is trained by the checks of precision and MFU."""
    script = context.workspace / "my_ddp.py"
    script.write_bytes((ROOT / "platform/fermi/train/train_ddp.py").read_bytes())
    script.chmod(0o644)
    env = {"NCCL_DEBUG": "INFO"}
    task_id = saves_and_resumes(context, "ddp", "DDP", "--distributed", script=script, env=env)
    talked_by_nccl(context, task_id, "DDP")


@check("FSDP2: learns on the card over NCCL, saves, resumes, stops", limit=100)
def fsdp_trains(context: Context) -> None:
    task_id = saves_and_resumes(context, "fsdp", "FSDP2", env={"NCCL_DEBUG": "INFO"})
    talked_by_nccl(context, task_id, "FSDP2")


@check("JAX: learns on the card, saves, resumes, stops", limit=200, needs=("jax",), proves=("001-39", "001-47"))
def jax_trains(context: Context) -> None:
    task_id = saves_and_resumes(context, "jax", "JAX", seconds=80)
    print(context.log(task_id)[:2000], flush=True)


@check("DeepSpeed: ZeRO 1 to 3 learn on the card, save, resume, stop", limit=150, needs=("deepspeed",))
def deepspeed_trains(context: Context) -> None:
    others = {
        stage: begin(context, "deepspeed", options={"zeroStage": stage, "offloadOptimizer": "none"}) for stage in (1, 3)
    }
    saves_and_resumes(context, "deepspeed", "ZeRO 2, optimizer on the CPU", options={"zeroStage": 2}, seconds=110)
    for stage, task_id in others.items():
        learns(context, task_id, f"ZeRO {stage}", 110)


@check(
    "Megatron-core: its schedule learns on the card, saves, resumes, stops",
    limit=120,
    needs=("cuda", "megatron"),
    proves=("004-16",),
)
def megatron_trains(context: Context) -> None:
    """One card has no tensor or pipeline ranks: what is shown is that the layers, the schedule and the optimizer that
    all splits use run on CUDA, and how near the memory is to the estimate that the splits are chosen by."""
    task_id = saves_and_resumes(context, "megatron", "Megatron", seconds=90, options={"globalBatchSize": 8})
    print(context.log(task_id)[:3000], flush=True)


@check("Pinned memory can be had by a task", limit=90, proves=("003-27",))
def pinned_memory(context: Context) -> None:
    """A user's script pins half a gigabyte and copies it; our trainer's batches are pinned by itself and, with loading
    workers, by a thread of torch's."""
    workers = begin(context, "ddp", numWorkers=2)
    task = context.train(context.job("pinned.py"), seconds=50)
    told = context.printed(task["taskId"], "memlock")
    if context.machine.cuda:
        context.expect(told["pinned"], f"torch says that nothing was pinned: {told}")
        context.figure("copied to the card from pinned memory", told["pinned_gb_s"], "GB/s", least=5)
        context.figure("copied to the card from other memory", told["pageable_gb_s"], "GB/s")
    learns(context, workers, "DDP with loading workers", 60)


# --- Memory and speed, measured inside the trainers -------------------------------------------------------------------


class Measured:
    """What runs of our trainers came to, one after the other in one process of a task (jobs/measured.py)."""

    def __init__(self, context: Context, runs: Mapping[str, tuple[str, Sequence[str]]], seconds: float) -> None:
        """`runs`: by a label, the trainer's module and its words."""
        path = context.workspace / "runs.json"
        asked = [{"label": label, "trainer": trainer, "words": words} for label, (trainer, words) in runs.items()]
        path.write_text(json.dumps(asked))
        path.chmod(0o644)
        task = context.train(context.job("measured.py"), str(path), seconds=seconds)
        self.rows: dict[str, Row] = {}
        for line in context.log(task["taskId"]).splitlines():
            if line.startswith('{"measured"'):
                row = json.loads(line)
                self.rows[row["measured"]] = row
                print("run    |", json.dumps(row), flush=True)
        for label in runs:
            row = self.rows.get(label) or {"why": "it did not come to it"}
            context.expect(row.get("code") == 0, f"{label}: {row.get('why') or row.get('code')}")

    def get(self, label: str) -> Row | None:
        """None: it failed, which was noted already."""
        row = self.rows.get(label)
        return row if row and row.get("code") == 0 else None

    def speed(self, label: str) -> float:
        """Tokens per second, without the first points; 0 where the run failed."""
        row = self.get(label)
        return median(row["speeds"][-3:]) if row and row["speeds"] else 0.0


def large(context: Context) -> Row:
    """Returns hyperparameters of a GPT that keeps the card busy: 151 million weights, 8192 tokens a step."""
    if context.machine.cuda:
        return {"layers": 12, "heads": 16, "hiddenSize": 1024, "sequenceLength": 512, "batchSize": 16}
    return {"layers": 1, "heads": 2, "hiddenSize": 64, "sequenceLength": 32, "batchSize": 4}


def words_of(hyperparameters: Mapping[str, Any], *more: str) -> list[str]:
    """Returns them as the trainers' options."""
    said = [f"--{recipes.GPT[name].flag}={value}" for name, value in hyperparameters.items()]
    return [*said, "--eval_every=0", "--checkpoint_every=0", *more]


@check("Precisions: speed, memory and loss; memory against the estimate", limit=100, alone=True,
       proves=("002-23", "002-24", "002-28", "002-57", "002-59"))  # fmt: skip
def precisions(context: Context) -> None:
    """bfloat16, float16 with a scaler, TF32 and float32 with the same data and weights. Then the state alone (a batch
    of one short sequence) against our estimate, for DDP and FSDP; and FSDP's activations, kept or not."""
    model = large(context)
    speed = words_of({**model, "totalSteps": 30, "warmupSteps": 5, "learningRate": 3e-4, "logEvery": 5})
    short = words_of({**model, "batchSize": 1, "sequenceLength": 32, "totalSteps": 4, "logEvery": 1})
    few = words_of({**model, "totalSteps": 6, "warmupSteps": 2, "learningRate": 3e-4, "logEvery": 2})
    ddp, fsdp, low = "fermi.train.train_ddp", "fermi.train.train_fsdp", "--dtype=bfloat16"
    made = Measured(context, {
        "bfloat16": (ddp, [*speed, low]),
        "float16": (ddp, [*speed, "--dtype=float16"]),
        "tf32": (ddp, [*speed, "--dtype=float32", "--tf32"]),
        "float32": (ddp, [*speed, "--dtype=float32", "--no-tf32"]),
        "state of one process": (ddp, [*short, low]),
        "state of DDP": (ddp, [*short, low, "--distributed"]),
        "state of FSDP": (fsdp, [*short, low]),
        "FSDP": (fsdp, [*few, low]),
        "FSDP, activations computed again": (fsdp, [*few, low, "--activation_checkpointing"]),
    }, seconds=90)  # fmt: skip
    for label in ("bfloat16", "float16", "tf32", "float32", "FSDP", "FSDP, activations computed again"):
        context.figure(f"{label}: speed", made.speed(label), "tokens/s")
    compare_speeds(context, made)
    compare_losses(context, made)
    compare_memory(context, made, {**model, "sequenceLength": 32})


def compare_speeds(context: Context, made: Measured) -> None:
    pairs = (("bfloat16", "float32", 1.5), ("tf32", "float32", 1.2), ("float16", "float32", 1.5),
             ("bfloat16", "tf32", 1.0))  # fmt: skip
    for faster, slower, least in pairs:
        if made.speed(faster) and made.speed(slower):
            bound = least if context.machine.cuda else None
            context.figure(f"{faster} over {slower}", made.speed(faster) / made.speed(slower), "times", least=bound)


def compare_losses(context: Context, made: Measured) -> None:
    exact = made.get("float32")
    for label, most in (("bfloat16", 0.05), ("tf32", 0.05), ("float16", 0.15)):
        if exact and (row := made.get(label)):
            off = abs(row["losses"][-1] - exact["losses"][-1]) / exact["losses"][-1]
            context.figure(f"{label}: last loss, off float32's by", off, "of it", most=most)


def compare_memory(context: Context, made: Measured, model: Row) -> None:
    """`model`: the one of the runs that measure the state. Its estimate is weights, gradients and Adam's state, and
    DDP's buckets. In the second step DDP lays these out anew while NCCL's watchdog, which looks every 100 ms, may still
    hold the old ones: 4 bytes a parameter more at most."""
    count = recipes.count_gpt_parameters(model)
    for label in ("state of one process", "state of DDP", "state of FSDP"):
        estimated = memory.compute_needed_gib(count, in_buckets=label == "state of DDP")
        context.figure(f"{label}: our estimate", estimated, "GiB")
        if row := made.get(label):
            context.expect(
                row["parameters"] == count, f"{label}: {row['parameters']} weights, the platform says {count}"
            )
            if context.machine.cuda:
                over = row["peak_gib"] / estimated
                context.figure(f"{label}: peak over the estimate", over, "", least=0.8, most=1.25)
    for label in ("bfloat16", "float16", "tf32", "float32", "FSDP", "FSDP, activations computed again"):
        if context.machine.cuda and (row := made.get(label)):
            context.figure(f"{label}: peak", row["peak_gib"], "GiB")
    for less, more in (("bfloat16", "float32"), ("FSDP, activations computed again", "FSDP")):
        if context.machine.cuda and (low := made.get(less)) and (high := made.get(more)):
            lower, higher = low["peak_gib"], high["peak_gib"]
            context.expect(lower < higher, f"{less} takes {lower:.2f} GiB, {more} {higher:.2f} GiB")
    if context.machine.cuda:
        context.note("one process shards nothing: FSDP's state is whole here")


@check("MFU: what the platform tells against the card's peak", limit=90, alone=True)
def mfu(context: Context) -> None:
    model = large(context)
    steps = 40 if context.machine.cuda else 10
    task_id = begin(context, "ddp", **{**model, "totalSteps": steps, "logEvery": 5, "evalEvery": 0,
                                       "learningRate": 3e-4, "checkpointEvery": 0})  # fmt: skip
    if not succeeded(context, task_id, 70):
        return
    told = context.platform.get(f"/training-tasks/{task_id}/usage")["modelFlops"]
    print("usage  |", json.dumps(told), flush=True)
    speeds = losses(context, task_id, "tokens_per_s")
    width, length, layers = model["hiddenSize"], model["sequenceLength"], model["layers"]
    weights = 12 * layers * width**2 + 256 * width
    each = 6 * weights + 12 * layers * width * length
    mine = mean(list(speeds.values())[1:]) * each / 1e12  # the platform leaves the first point out, too
    context.figure("TFLOPS that the platform tells, over ours", told["tflops"] / mine, "", least=0.99, most=1.01)
    steady = median(list(speeds.values())[-4:]) * each / 1e12
    context.figure("TFLOPS once it is warm", steady, "TFLOPS")
    if not context.machine.cuda:
        context.expect(told["utilisation"] is None, f"an emulated GPU has a utilisation: {told}")
        return
    peak = gpus.find_gpu(context.machine.card).tflops
    context.figure("the card's peak by our table", peak, "TFLOPS")
    context.expect(
        told["peakTflops"] == peak, f"the platform takes {told['peakTflops']} for the card's peak, not {peak}"
    )
    context.figure("MFU that the platform tells", told["utilisation"] or 0.0, "", least=0.02, most=0.9)
    context.figure("MFU once it is warm", steady / peak if peak else 0.0, "", least=0.1, most=0.9)


@check("torch.compile and fused AdamW work inside a task", limit=100, alone=True)
def compile_and_fused(context: Context) -> None:
    """A user's plain script: our trainers use fused AdamW, and compile nothing."""
    task = context.train(context.job("compiled.py"), seconds=90, env={"TORCH_LOGS": "recompiles"})
    told = context.printed(task["taskId"], "compiled_ms")
    context.expect(on_card(context, told["device"]), f"it ran on {told['device']}")
    context.expect(told["off"] < 0.02, f"compiled and eager losses differ by {told['off']}")
    bound = 1.0 if context.machine.cuda else None
    context.figure("torch.compile: first step", told["first_compiled_s"], "s")
    context.figure("torch.compile: a step, over eager", told["eager_ms"] / told["compiled_ms"], "times", least=bound)
    context.figure("AdamW: fused over foreach", told["foreach_ms"] / told["fused_ms"], "times", least=bound)
    context.figure("AdamW: fused over a loop", told["loop_ms"] / told["fused_ms"], "times", least=bound)
