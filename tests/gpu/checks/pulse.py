"""What the platform sees of steps on the GPU, and what that costs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import procfs
from fermi.diagnosis.hangs import CODES
from fermi.runner import stacks
from tests.gpu.check import check
from tests.gpu.checks.first_step import own_environment
from tests.gpu.context import Context
from tests.gpu.stacks import files_of, request_stacks

PHASE_SECONDS = 2.6
"""A runner looks once a second."""
Row = dict[str, Any]


# --- Steps and phases --------------------------------------------------------------------------------------------


@check("the platform counts the steps that optimizers make, and tells the phases", limit=120)
def steps_are_counted(context: Context) -> None:
    """A scaler asks a fused optimizer to step in any case, and that decides on the GPU: such a step counts."""
    script, steps = context.job("counted.py"), 50
    ways: dict[str, tuple[str, ...]] = {
        "foreach": ("--accumulate", "4", "--phases", str(PHASE_SECONDS)),
        "fused": ("--optimizer", "fused"),
        "foreach with a scaler": ("--scaler",),
        "fused with a scaler": ("--optimizer", "fused", "--scaler"),
    }
    tasks, holds = {}, {}
    for name, words in ways.items():
        holds[name] = context.workspace / f"hold-{name.replace(' ', '-')}"
        own = own_environment(context, name.replace(" ", "-"))
        words = ("--steps", str(steps), *words, "--hold", str(holds[name]))
        tasks[name] = context.start(script, *words, **own)
    seen = {name: _follow(context, task, '"waiting"') for name, task in tasks.items()}
    for name, task in tasks.items():
        holds[name].touch()
        ended = context.finish(task, 60)
        context.expect(ended["status"] == "succeeded", f"{name}: {ended['status']}: {ended['reason']}")
        told = context.printed(task, "skipped")
        print(f"{name}: printed {told}, phases {seen[name][0]}, last {seen[name][1]}")
        skipped = told["skipped"] if "fused" not in name else 0
        counted = seen[name][1].get("step")
        context.expect(counted == steps - skipped, f"{name}: {counted} steps were counted of {steps}, {told}")
        context.expect("scaler" not in name or told["skipped"] == 10, f"{name}: the scaler skipped {told['skipped']}")
        context.figure(f"{name}: counted", f"{counted} of {steps}, {told['skipped']} skipped by the scaler")
    phases, last = seen["foreach"]
    missing = [phase for phase in ("starting", "running", "evaluating", "saving") if phase not in phases]
    missing = [phase for phase in missing if phase != "running"]  # fifty steps may take less than a look
    context.expect(not missing, f"phases that were not told: {missing}; told: {phases}")
    if context.machine.cuda:
        context.expect((last.get("gpuBytes") or 0) > 1 << 20, f"memory on the GPU: {last.get('gpuBytes')}")


def _follow(context: Context, task: str, word: str, seconds: float = 60) -> tuple[list[str], Row]:
    """Returns the phases that were told until the rank has printed the word, and what was told two looks later."""
    phases, deadline = list[str](), time.monotonic() + seconds
    last: Row = {}
    ends: float | None = None
    while time.monotonic() < (ends or deadline):
        if ends is None and word in context.log(task):
            ends = time.monotonic() + PHASE_SECONDS
        for one in context.platform.get(f"/training-tasks/{task}/pulses")["ranks"]:
            last = one
            if not phases or phases[-1] != one["phase"]:
                phases.append(one["phase"])
        if ends is None and context.platform.task(task)["status"] in ("failed", "stopped", "succeeded"):
            break
        time.sleep(0.25)
    return phases, last


@check("steps in CUDA graphs: what is counted, and no false verdict", limit=150)
def cuda_graph_steps(context: Context) -> None:
    script, seconds = context.job("replayed.py"), 18.0
    holds = [context.workspace / "hold-replayed", context.workspace / "hold-compiled"]
    replayed = context.start(
        script, "--seconds", str(seconds), "--hold", str(holds[0]), **own_environment(context, "replayed")
    )
    compiled = context.start(
        script, "--compile", "--steps", "60", "--hold", str(holds[1]), **own_environment(context, "compiled")
    )
    phases, last = _follow(context, compiled, '"steps"', 90)
    holds[1].touch()
    print(f"compiled: {phases} {last}")
    context.expect(last.get("step") == 60, f"with reduce-overhead {last.get('step')} of 60 steps were counted")
    context.figure("reduce-overhead, optimizer outside: counted", f"{last.get('step')} of 60")
    context.note(f"phases with reduce-overhead: {', '.join(phases)}")
    phases, last = _follow(context, replayed, '"replays"', 90)
    found = context.platform.diagnosis(replayed)
    print(f"replayed: {phases} {last}\n{json.dumps(found, indent=1)[:6000]}")
    status = context.platform.data / "runs" / f"{replayed}-1" / "node-0.status.json"
    print(status.read_text()[:6000] if status.exists() else "no status")
    holds[0].touch()
    for task in (compiled, replayed):
        ended = context.finish(task, 60)
        context.expect(ended["status"] == "succeeded", f"{ended['status']}: {ended['reason']}")
        events = context.platform.events(task)
        print("\n".join(events))
        _expect_no_hang(context, events)
    told = context.printed(replayed, "replays")
    context.expect(last.get("step") == 4, f"of a captured step {last.get('step')} were counted; 4 are Python's own")
    context.figure("replays of a whole step: counted", f"{last.get('step')} of {told['replays'] + 4}")


def _expect_no_hang(context: Context, events: list[str]) -> None:
    """That a rank computes without a step may be said of it (docs/rank-progress.md), and nothing more."""
    for one in map(json.loads, events):
        if one["code"] == "HANG_SUSPECTED" and one["params"].get("why") == "computes":
            context.note(f"said of it: {one['message']}")
        elif one["code"] in CODES:
            context.fail(f"a rank that replays a graph counts as hanging: {one}")


# --- Stacks ------------------------------------------------------------------------------------------------------


@check("a rank that waits for the GPU says in which line, and goes on", limit=90)
def profiles_and_stacks(context: Context) -> None:
    """Asked as its runner asks, through the rank's page; and by the runner itself, of one that is silent for long."""
    task = context.start(context.job("waiting.py"), "--seconds", "14", hangSeconds=5, onHang="report",
                         **own_environment(context, "waiting"))  # fmt: skip
    deadline = time.monotonic() + 60
    while '"the device"' not in context.log(task) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    rank = context.pid(task)
    runner = procfs.read_parent(rank)
    print(Path(f"/proc/{rank}/status").read_text(encoding="utf-8"), procfs.read_command(runner), sep="\n")
    with files_of(runner) as (page, file):
        took = request_stacks(page, file, 5)
        frames = stacks.read_stacks(file)
        print(os.pread(file, 1 << 16, 0).decode(errors="replace"))
    place = stacks.find_own_line(frames[0], str(context.workspace)) if frames else ""
    context.expect("in wait_for_the_device" in place, f"asked while it waits, it named {place!r}")
    context.figure("its answer took", took, "s", most=2.0)
    found = _stalled(context, task, 12)
    print(json.dumps(found, indent=1))
    context.expect("in wait_for_the_device" in str(found.get("at")), f"the runner found it at {found.get('at')!r}")
    context.note(f"the runner: state {found.get('state')}, cpu {found.get('cpu')}, still {found.get('still')}, "
                 f"moves {found.get('moves')}, waits in {found.get('waits')}")  # fmt: skip
    print(json.dumps(context.platform.diagnosis(task), indent=1)[:6000])
    ended = context.finish(task, 60)
    context.expect(ended["status"] == "succeeded", f"it did not go on: {ended['status']}: {ended['reason']}")
    print("\n".join(context.platform.events(task)))
    context.figure("it waited", context.printed(task, "waited")["waited"], "s", least=10.0)


def _stalled(context: Context, task: str, seconds: float) -> Row:
    """Returns what the node's runner says of the silent rank."""
    path = context.platform.data / "runs" / f"{task}-1" / "node-0.status.json"
    deadline, found = time.monotonic() + seconds, dict[str, Any]()
    while time.monotonic() < deadline:
        with suppress(OSError, ValueError, LookupError):
            found = json.loads(path.read_text())["ranks"][0]["stalled"] or found
        if found.get("looks", 0) > 1:
            break
        time.sleep(0.2)
    return found


# --- Cost --------------------------------------------------------------------------------------------------------


@check("what the probe costs a step of 5 ms on the GPU", limit=90, alone=True)
def cost_of_a_step(context: Context) -> None:
    cuda = context.machine.cuda
    rounds = "40" if cuda else "4"
    ran = context.python("-m", "tests.gpu.probe_cost", context.folder, "--rounds", rounds, cwd=Path.cwd(), seconds=80)
    told = ran.json("pulsed")["pulsed"]
    most = 1.01 if cuda else None
    context.figure("step without the probe", told["whole"] * 1e3, "ms")
    context.figure("step with the probe, against without", told["whole_ratio"], "×", most=most)
    context.figure("launches of a step without the probe", told["host"] * 1e3, "ms")
    context.figure("launches with the probe, against without", told["host_ratio"], "×", most=1.02 if cuda else None)
    context.figure("the hook", told["hook"] * 1e6, "µs", most=20.0 if cuda else None)
    context.figure("the hook, where it asks for the memory", told["hook_asking_for_memory"] * 1e6, "µs")
    context.expect(told["counted"] == 10, f"{told['counted']} of 10 steps were counted")
    if cuda:
        without, with_ = (told["synchronises"][name] for name in ("without", "with"))
        context.expect(not with_ or without, f"the probe makes a step wait for the GPU: {with_}")
        if without:
            context.note(f"this step waits for the GPU by itself, so the probe's part was not seen: {without}")


@check("what telemetry costs a task, and its questions to NVML", limit=120, alone=True)
def telemetry_cost(context: Context) -> None:
    """A task and a process by hand are both ready and train in turns."""
    seconds = (2.0, 8.0, 2.0)
    script, folder = context.job("paced.py"), context.workspace
    turns = [folder / name for name in ("by-hand-1", "task", "by-hand-2")]
    words = [f"{turn}:{each}" for turn, each in zip(turns, seconds, strict=True)]
    log = context.folder / "by-hand.log"
    by_hand = _begin_by_hand(context, log, str(script), "--turns", words[0], words[2])
    try:
        products = _wait_for(log.read_text, '"products"', 60)["products"]
        task = context.start(script, "--products", str(products), "--turns", words[1],
                             **own_environment(context, "telemetry"))  # fmt: skip
        _wait_for(lambda: context.log(task), '"products"', 60)
        turns[0].touch()
        before = _wait_for(log.read_text, '"by-hand-1"', 30)
        rank = context.pid(task)
        runner = procfs.read_parent(rank)
        used, began = procfs.read_cpu_seconds([runner]), time.monotonic()
        turns[1].touch()
        during, until, after_it = _wait_for_growing(context, task, runner)
        used, passed = after_it - used, until - began
        turns[2].touch()
        after = _wait_for(log.read_text, '"by-hand-2"', 30)
    finally:
        by_hand.kill()
        by_hand.wait()
    context.finish(task, 30)
    print(json.dumps([before, during, after], indent=1))
    cuda = context.machine.cuda
    for what in ("median", "mean"):
        plain = (before[what] + after[what]) / 2
        context.figure(f"step by hand, {what}", plain * 1e3, "ms")
        context.figure(
            f"step of a task, {what}, against by hand", during[what] / plain, "×", most=1.02 if cuda else None
        )
    context.figure("the two turns by hand, one against the other", after["median"] / before["median"], "×")
    context.figure("the runner's processor", 100 * used / passed, "% of a core", most=5.0 if cuda else None)
    metrics = context.platform.data / "runs" / f"{task}-1" / "node-0.telemetry.json"
    print(metrics.read_text()[:4000] if metrics.exists() else "no telemetry file")
    if cuda:
        _ask_nvml(context)


def _begin_by_hand(context: Context, log: Path, *words: str) -> subprocess.Popen[bytes]:
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, "-u", *words], stdout=output, stderr=output, cwd=context.folder,
                                env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True)  # fmt: skip


def _wait_for(read: Any, word: str, seconds: float) -> Row:
    """Returns the line of JSON with the word, once it is there. Raises AssertionError with what is there at the end."""
    deadline, text = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        text = read()
        for line in text.splitlines():
            if word in line and line.startswith("{"):
                with suppress(ValueError):
                    found: Row = json.loads(line)
                    return found
        time.sleep(0.02)
    raise AssertionError(f"no line with {word} in {seconds} s:\n{text[-3000:]}")


def _wait_for_growing(context: Context, task: str, runner: int) -> tuple[Row, float, float]:
    """The same of a task's turn, and when the processor time of its runner was read last, and that: the runner ends
    with it. Its log is looked at rarely, so that this does not disturb the steps."""
    log = context.platform.data / "logs" / task / "1" / "0.log"
    until, used = 0.0, 0.0
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        time.sleep(0.5)
        with suppress(OSError):
            until, used = time.monotonic(), procfs.read_cpu_seconds([runner])
        if '"turn"' in log.read_text():
            break
    return _wait_for(log.read_text, '"turn"', 1), until, used


def _ask_nvml(context: Context) -> None:
    """How long a sample takes, and each of its questions."""
    told = context.python("-m", "tests.gpu.nvml_latency", seconds=30, cwd=Path.cwd()).json("asked")
    print(json.dumps(told, indent=1))
    context.figure("a sample of the GPUs", told["sample"] * 1e3, "ms", most=500.0)
    context.figure("its processor time", told["processor"] * 1e3, "ms")
    for name, each in sorted(told["asked"].items(), key=lambda item: -item[1])[:5]:
        context.figure(name, each * 1e3, "ms")
