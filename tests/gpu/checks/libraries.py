"""Accelerate, Lightning and transformers' Trainer as users have them: scripts that do not know the platform (`jobs/`),
each as a task of one process on the card."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.gpu.check import check
from tests.gpu.context import Context, Ran, Row


def output(context: Context) -> Path:
    """Returns a folder of the workspace that tasks may write."""
    folder = context.workspace / "output"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def size(context: Context) -> tuple[str, ...]:
    """Returns arguments that make a model small enough for a CPU; none for a card."""
    return () if context.machine.cuda else ("--width", "16", "--batch", "4")


def curve(context: Context, task_id: str) -> list[float]:
    """Returns the losses that the platform stored, in order."""
    points = context.platform.items(task_id, "metrics", limit=5000)
    return [point["values"]["loss"] for point in points if point["values"].get("loss") is not None]


def on_card(context: Context, device: str) -> None:
    wanted = ("cuda", "cuda:0") if context.machine.cuda else ("cpu",)  # Accelerate's alone has no number
    context.expect(device in wanted, f"it trained on {device}, not on {wanted[-1]}")


def fell(context: Context, task: Row, label: str) -> None:
    found = curve(context, task["taskId"])
    print("curve  |", found, flush=True)
    if context.expect(len(found) >= 4, f"{label}: the platform has {len(found)} points of its curve"):
        context.expect(found[-1] < found[0], f"{label}: the loss went from {found[0]} to {found[-1]}")
    context.figure(f"{label}: steps that the platform counted", task["step"] or 0, "steps", least=40)


@check("Accelerate, unchanged: bf16 on the card, curve, saved and loaded", limit=120, needs=("accelerate",))
def accelerate(context: Context) -> None:
    folder, script = output(context), context.job("accelerate_loop.py")
    task = context.train(script, "--output", str(folder), "--steps", "40", *size(context), seconds=60)
    told = context.printed(task["taskId"], "weights_on")
    on_card(context, told["device"])
    on_card(context, told["weights_on"])
    context.expect(told["precision"] == "bf16", f"it trained in {told['precision']}")
    fell(context, task, "Accelerate")
    saved = sorted(path.name for path in (folder / "state").glob("*"))
    context.expect("model.safetensors" in saved and "optimizer.bin" in saved, f"save_state left {saved}")
    again = context.train(script, "--output", str(folder), "--steps", "60", *size(context), seconds=60)
    begun = context.printed(again["taskId"], "weights_on")["from"]
    context.expect(begun == 40, f"the second task began at step {begun}")
    before, after = curve(context, task["taskId"]), curve(context, again["taskId"])
    if before and after:
        context.expect(after[0] < before[0], f"it went on with a loss of {after[0]}, having begun with {before[0]}")


@check("Lightning, unchanged: its group, curve, goes on after kill -9", limit=120, needs=("lightning",))
def lightning(context: Context) -> None:
    folder, script = output(context), context.job("lightning_fit.py")
    words = ("--output", str(folder), "--steps", "60", "--delay", "0.1")
    task_id = context.start(script, *words, maxRestarts=1)
    pid, deadline = context.pid(task_id), time.monotonic() + 60
    while not said_step(context, task_id, 15) and time.monotonic() < deadline and context.is_alive(pid):
        time.sleep(0.05)
    context.expect((folder / "last.ckpt").exists(), "no last.ckpt after 15 steps")
    if context.is_alive(pid):
        os.kill(pid, signal.SIGKILL)
    task = context.finish(task_id, 80)
    context.expect(task["status"] == "succeeded", f"{task_id}: {task['status']}: {task['reason']}")
    ends = [attempt["outcome"]["code"] for attempt in task["attempts"] if attempt["outcome"]]
    context.expect(ends == ["RANK_KILLED", "COMPLETED"], f"its attempts ended as {ends}")
    logs = [context.platform.log(task_id, 0, number) for number in (1, 2)]
    print("first attempt |", logs[0][-3000:], "second attempt |", logs[1][-3000:], sep="\n", flush=True)
    told = [_started(text) for text in logs]
    for one in filter(None, told):
        on_card(context, one["device"])
        context.expect(one["world"] == 1, f"its group has {one['world']} processes")
    if context.expect(told[1], "the second attempt did not begin to train"):
        context.expect(told[1]["from"] >= 10, f"the second attempt began at step {told[1]['from']}")
        context.note(f"strategy {told[1]['strategy']}; went on from step {told[1]['from']}")
    fell(context, task, "Lightning")


def said_step(context: Context, task_id: str, step: int) -> bool:
    return f'"step": {step},' in context.log(task_id)


def _started(log: str) -> Row:
    """Returns what `Say` told at the start of training; empty where it did not come to it."""
    try:
        return Ran(0, 0.0, log).json("strategy")
    except AssertionError:
        return {}


@check("transformers' Trainer, unchanged: bf16 on the card, curve, resumes", limit=120,
       needs=("transformers", "accelerate"))  # fmt: skip
def transformers_trainer(context: Context) -> None:
    folder, script = output(context), context.job("trainer_gpt2.py")
    task = context.train(script, "--output", str(folder), "--steps", "40", *size(context), seconds=80)
    told = context.printed(task["taskId"], "history")
    on_card(context, told["device"])
    context.expect(told["world"] == 1, f"its group has {told['world']} processes")
    fell(context, task, "Trainer")
    saved = sorted(path.name for path in folder.glob("checkpoint-*"))
    context.expect(saved == ["checkpoint-20", "checkpoint-40"], f"it left {saved}")
    context.note(f"its checkpoints in the platform: {len(context.platform.items(task['taskId'], 'checkpoints'))}")
    again = context.train(script, "--output", str(folder), "--steps", "60", *size(context), seconds=80)
    told = context.printed(again["taskId"], "history")
    context.expect(told["resumed"].endswith("checkpoint-40"), f"the second task went on from {told['resumed']!r}")
    context.expect(told["ended"] == 60, f"the second task ended at step {told['ended']}")
    after = curve(context, again["taskId"])
    context.expect(len(after) == 4, f"the second task's curve has {len(after)} points: steps 45 to 60 were to be told")
