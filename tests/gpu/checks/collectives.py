"""NCCL with one rank, gloo with several ranks on one card, and what NCCL and torch tell of their collectives."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sysconfig
import time
from pathlib import Path

from fermi.probe import collectives
from fermi.runner import ras
from tests.faults.catalogue.fault import Expected
from tests.gpu import answers
from tests.gpu.check import check
from tests.gpu.context import Context, Row
from tests.gpu.platform import FINAL
from tests.platform_process import free_port
from tests.polling import until

DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,BOOTSTRAP"}


@check("NCCL's collectives in a task, with the variables that the platform renders", limit=60,
       proves=("000-55", "000-66", "003-23", "004-208"))  # fmt: skip
def nccl_world_of_one(context: Context) -> None:
    task = context.train(context.job("nccl_collectives.py"), env=DEBUG if context.machine.cuda else {}, seconds=50)
    log = context.log(task["taskId"])
    print(log[-30_000:], flush=True)
    told = context.printed(task["taskId"], "backend")
    context.expect(not told["wrong"], f"wrong results: {told['wrong']}")
    if not context.machine.cuda:
        context.note("without a card: gloo")
        return
    context.expect(told["backend"] == "nccl", f"the group's backend is {told['backend']}")
    context.expect(told["env"].get("FERMI_BACKEND") == "nccl", f"rendered was {told['env']}")
    warned = [line for line in log.splitlines() if "NCCL WARN" in line]
    context.expect(not warned, f"NCCL warns: {warned[:3]}")
    context.expect("NCCL INFO" in log, "there is no line of NCCL in the log")
    listens = re.findall(r"RAS client listening socket at \S+", log)
    context.expect(listens and not any("28028" in one for one in listens), f"its RAS shares NCCL's port: {listens}")
    context.figure("group and first all_reduce", told["group"], "s", most=15)
    context.figure("NCCL", told["nccl"])


@check("a rank meets the group at the node's own address", limit=60)
def master_on_the_nodes_address(context: Context) -> None:
    script = context.job("nccl_collectives.py")
    shown = context.run("hostname", "-I", seconds=10).output.split() if shutil.which("hostname") else []
    addresses = [word for word in shown if re.fullmatch(r"[\d.]+", word) and not word.startswith("127.")]
    if not addresses:
        context.run("sh", "-c", "ip addr 2>/dev/null || cat /proc/net/fib_trie", seconds=10)
        context.note("this machine has no address but 127.0.0.1")
    warned = []
    for address in ["127.0.0.1", *addresses[:1]]:
        launch = ("-m", "torch.distributed.run", "--nnodes=1", "--nproc-per-node=1", f"--master-addr={address}",
                  f"--master-port={free_port()}")  # fmt: skip
        own = {"NCCL_RAS_ADDR": f"127.0.0.1:{free_port()}"}  # jobs that other checks start by hand share the default
        ran = context.python(*launch, script, seconds=40, env={**DEBUG, **own})
        if not context.expect(ran.code == 0, f"MASTER {address}: exit code {ran.code}"):
            continue
        told = ran.json("backend")
        context.expect(not told["wrong"], f"MASTER {address}: {told['wrong']}")
        context.figure(f"group at {address}", told["group"], "s")
        warned += [line for line in ran.output.splitlines() if "NCCL WARN" in line]
    context.expect(not warned, f"NCCL warns: {warned[:3]}")


@check("DDP over gloo on CUDA tensors, 2 and 4 ranks on one card: the losses of one process", limit=120)
def gloo_on_one_card(context: Context) -> None:
    script = context.job("gloo_on_one_card.py")
    hold = "20" if context.machine.cuda else "0"
    tasks = {ranks: context.start(script, "--hold", hold, ranks=ranks) for ranks in (2, 4)}
    alone = context.torchrun(script, seconds=60)
    wanted = alone.json("losses")["losses"] if context.expect(alone.code == 0, "torchrun failed") else []
    seen = _driver_memory(context, tasks) if context.machine.cuda else {}
    for ranks, task_id in tasks.items():
        task = context.finish(task_id, 80)
        if context.machine.cuda:
            _memory_of_ranks(context, task_id, ranks, seen)
        context.expect(task["status"] == "succeeded", f"{ranks} ranks: {task['status']}: {task['reason']}")
        if task["status"] != "succeeded":
            answers.show(context, task_id, ranks=ranks)
            continue
        found = context.printed(task_id, "losses")
        context.expect(found["device"] == ("cuda:0" if context.machine.cuda else "cpu"), f"on {found['device']}")
        off = max(abs(one - other) for one, other in zip(found["losses"], wanted, strict=False)) if wanted else 1.0
        context.figure(f"{ranks} ranks: farthest loss from that of one process", off, most=1e-5)


def _held(context: Context, task_id: str, ranks: int) -> list[Row]:
    """What its ranks printed once they hold their memory."""
    return [json.loads(line) for rank in range(ranks) for line in context.log(task_id, rank).splitlines()
            if line.startswith('{"losses"')]  # fmt: skip


def _driver_memory(context: Context, tasks: dict[int, str]) -> dict[str, str]:
    """Returns the largest MiB that nvidia-smi tells of each process, until all ranks hold theirs."""
    seen, deadline = dict[str, str](), time.monotonic() + 60
    while time.monotonic() < deadline:
        held = all(len(_held(context, task_id, ranks)) == ranks for ranks, task_id in tasks.items())
        for row in context.smi("pid", "used_gpu_memory", of="compute-apps"):
            if row["used_gpu_memory"].isdigit():
                seen[row["pid"]] = str(max(int(row["used_gpu_memory"]), int(seen.get(row["pid"], 0))))
        if held or all(context.platform.task(task_id)["status"] in FINAL for task_id in tasks.values()):
            break
        time.sleep(0.5)
    return seen


def _memory_of_ranks(context: Context, task_id: str, ranks: int, driver: dict[str, str]) -> None:
    """Each rank held 256 MiB for each number up to its own: what the platform says afterwards, and what the driver said
    meanwhile. What a short task used is written within half a minute after its end."""
    printed = _held(context, task_id, ranks)
    print("driver |", driver, [one["pid"] for one in printed], flush=True)
    series, deadline = dict[int, float](), time.monotonic() + 40
    while len(series) < ranks and time.monotonic() < deadline:
        told = context.platform.get(f"/training-tasks/{task_id}/telemetry", metric="rank_gpu_memory")["series"]
        values = {one["rank"]: [each for each in one["values"] if each] for one in told}
        series = {rank: max(found) / 2**20 for rank, found in values.items() if found}
        time.sleep(0.5)
    print("telemetry |", json.dumps(told)[:4000], flush=True)
    for rank, one in enumerate(printed):
        said, seen = series.get(rank), driver.get(str(one["pid"]), "")
        context.note(
            f"rank {rank} of {ranks}: platform {said} MiB, nvidia-smi {seen} MiB, torch {one['allocated'] >> 20} MiB"
        )
        if context.expect(seen.isdigit(), f"{ranks} ranks: nvidia-smi has no memory of rank {rank} ({one['pid']})"):
            right = said is not None and abs(said - float(seen)) < 100
            context.expect(right, f"{ranks} ranks: rank {rank} holds {said} MiB, by nvidia-smi {seen}")


@check("two ranks of NCCL on one card: named, with what to do", limit=60, needs=("cuda",))
def two_ranks_of_nccl(context: Context) -> None:
    script = context.job("nccl_two_on_one_card.py")
    task_id = context.start(script, ranks=2)
    expected = Expected("RANK_FAILED", says=["same GPU|both", "LOCAL_RANK|set_device"], shows=["Duplicate GPU"])
    answers.judge(context, task_id, expected, script, ranks=2, marked=False)


@check("the flight recorder of NCCL is read; a rank behind a kernel is told with its line, as no hang", limit=100,
       needs=("cuda",))  # fmt: skip
def flight_recorder(context: Context) -> None:
    script = context.job("collective_behind_a_kernel.py")
    task_id = context.start(script, "--seconds", "14", hangSeconds=5)
    line, seen, deadline = answers.marks(script)["here"], list[str](), time.monotonic() + 85
    codes: set[str] = set()
    while (task := context.platform.task(task_id))["status"] not in FINAL and time.monotonic() < deadline:
        if answers.moment(context, task_id, "waits", 1):
            told = {"pulses": context.platform.get(f"/training-tasks/{task_id}/pulses"),
                    "diagnosis": context.platform.diagnosis(task_id)}  # fmt: skip
            seen.append(json.dumps(told))
            codes |= {one["code"] for one in told["diagnosis"]["findings"]}
            if len(seen) % 5 == 1:
                print("meanwhile |", seen[-1][:9000], flush=True)
        time.sleep(1.0)
    answers.show(context, task_id)
    context.expect(task["status"] == "succeeded" and task["attempt"] == 1,
                   f"it was ended: {task['status']}, attempt {task['attempt']}: {task['reason']}")  # fmt: skip
    lines = [json.loads(text) for text in context.log(task_id).splitlines() if text.startswith('{"recorder"')]
    read = [one for one in lines if one["recorder"] != "pickle" and len(one["raw"]) > 2]
    context.expect(read, "torch has neither recorder, or both are empty")
    for one in read:
        backend = "nccl" if "nccl" in one["recorder"] else "gloo"
        state = json.loads(one["raw"])
        counts = collectives._count_collectives({backend: state})
        shown = [collectives._summarize_entry({**entry, "backend": backend}) for entry in state.get("entries", ())]
        print("read   |", one["recorder"], one["active"], counts, json.dumps(shown)[:3000], flush=True)
        context.figure(f"{one['recorder']}: to read it", one["microseconds"], "µs")
        if backend == "nccl" and not one["active"]:
            context.expect(any(each["op"] == "all_reduce" for each in shown), f"no all_reduce in {shown[:3]}")
            context.expect(any(begun for begun, _ in counts.values()), f"no collective is counted: {counts}")
    said = [text for text in seen if f"{script.name}:{line}" in text]
    context.expect(said, f"while it waited nothing told of its line {line}")
    context.expect("HANG" not in codes, "a group of one rank, which waits for nobody, was told as a hang")
    context.figure("looks at which its line was told", f"{len(said)} of {len(seen)}")
    context.note(f"found meanwhile: {', '.join(sorted(codes)) or 'nothing'}")


@check("NCCL's RAS answers, in a task and outside of one", limit=60, needs=("cuda",))
def ras_answers(context: Context) -> None:
    script, port = context.job("nccl_group_at_rest.py"), free_port()
    address = {"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
    task_id = context.start(script, "14", env=address)
    until(lambda: answers.moment(context, task_id, "ready", 1) or context.platform.task(task_id)["status"] in FINAL,
          seconds=40, what="a group")  # fmt: skip
    print(context.log(task_id)[-3000:], flush=True)
    for asked in (b"timeout 1\nstatus\n", b"client protocol 2\n", b"timeout 1\nverbose status\n", b"help\n"):
        print("raw    |", asked, _ask(port, asked), flush=True)
    if program := shutil.which("ncclras") or next(iter(_programs()), ""):
        context.run(program, "-v", "-p", str(port), seconds=8)
    else:
        context.note("there is no ncclras")
    report = ras.query_status(address)
    print("report |", json.dumps(report, indent=1), flush=True)
    context.expect(report, "what the platform asks is not answered")
    context.expect(any("NCCL" in text for text in report), f"no report of NCCL: {report[:5]}")
    context.finish(task_id, 40)


def _ask(port: int, asked: bytes) -> bytes:
    said = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.settimeout(2.5)
            connection.sendall(asked)
            while len(said) < 16_000 and (piece := connection.recv(4096)):
                said += piece
    except OSError as error:
        said += repr(error).encode()
    return said


def _programs() -> list[str]:
    """Returns the paths of `ncclras` in NVIDIA's packages beside torch."""
    found = Path(sysconfig.get_paths()["purelib"], "nvidia").glob("*/bin/ncclras")
    return [str(path) for path in found]
