"""What the platform finds of the card and tells of it, and whether CUDA works where its tasks run. The witness is
nvidia-smi, asked beside."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.gpu.check import check
from tests.gpu.context import Context, Ran, Row
from tests.gpu.platform import ENVIRONMENT, FINAL

MIB, GIB = 1 << 20, 1 << 30
OF_A_CONTEXT = 1200 * MIB
"""The most that a CUDA context and its libraries' workspaces take beside what a script holds."""

# Discovery --------------------------------------------------------------------------------------------------------

COMMANDS = (
    "nvidia-smi", "nvidia-smi -L", "nvidia-smi topo -m", "nvidia-smi -q", "nvidia-smi nvlink --status",
    "nvidia-smi dmon -s pucvmet -c 1", "nvidia-smi pmon -c 1", "nvidia-smi --query-compute-apps=pid,used_memory,name "
    "--format=csv", "ls -la /dev/nvidia* /dev/nvidia-caps /dev/dri /dev/shm", "ls -laR /proc/driver/nvidia",
    "cat /proc/driver/nvidia/version /proc/driver/nvidia/params /proc/driver/nvidia/gpus/*/information",
    "ls -la /usr/local /usr/local/nvidia /usr/local/nvidia/lib64 /usr/local/nvidia/bin", "ldconfig -p | grep -iE "
    "'cuda|nvidia|nccl|nvml|cudnn'", "cat /proc/modules | head -40", "uname -a", "cat /etc/os-release | head -4", "id",
    "ulimit -a", "cat /proc/self/limits", "cat /proc/self/cgroup", "cat /proc/self/mountinfo", "cat /proc/cmdline",
    "ls /sys/fs/cgroup", "cat /sys/fs/cgroup/cgroup.controllers /sys/fs/cgroup/memory.max", "cat /proc/meminfo | head",
    "cat /sys/kernel/security/lsm", "sysctl kernel.unprivileged_userns_clone user.max_user_namespaces "
    "kernel.yama.ptrace_scope vm.overcommit_memory kernel.dmesg_restrict kernel.perf_event_paranoid",
    "dmesg | grep -iE 'nvrm|nvidia|landlock' | tail -40", "ls -la /dev/kmsg", "which nvcc gcc cc g++ ninja ptxas "
    "nvidia-modprobe nvidia-persistenced compute-sanitizer cuda-gdb ldconfig; ls /usr/local/cuda*/bin | head -40",
    "lscpu | head -25", "ip -brief address", "ls /sys/class/infiniband", "env | sort | "
    "grep -viE 'token|key|secret|password|auth'",
)  # fmt: skip


@check("what the platform registered, and makes of the card's names and sizes", limit=60)
def discovered(context: Context) -> None:
    from fermi.jobs import gpus
    from fermi.runner import sandbox, seccomp
    from server import host_facts

    print(f"Landlock {sandbox.read_landlock_abi()}, seccomp {seccomp.is_available()}, Python {sys.version}")
    print("what a rank may reach of the system:", json.dumps(sandbox.build_system_paths(), indent=1)[:6000])
    facts = host_facts.collect_facts()
    print("server.host_facts:", json.dumps(facts))
    _agent_facts(context)
    mine = context.platform.get(f"/dev-environments/{ENVIRONMENT}")
    print(f"{ENVIRONMENT}:", json.dumps(mine))
    print("ready:", context.platform.api.get(f"{context.platform.url}/readyz").text[:3000])
    for line in COMMANDS:
        _show(line)
    if not context.machine.cuda:
        context.expect(facts["gpu_count"] == mine["gpuCount"] == 0, f"GPUs: {facts['gpu_count']}, {mine['gpuCount']}")
        context.expect(not mine["emulated"], "this machine counts as emulated")
        return
    name = context.machine.card
    rows = context.smi("name", "uuid", "memory.total", "driver_version", "compute_cap", "index", "pci.bus_id")
    print("nvidia-smi:", rows)
    context.expect(len(rows) == context.machine.cards == mine["gpuCount"], f"{mine['gpuCount']} GPUs of {len(rows)}")
    context.expect(rows[0]["name"] == name, f"torch has {name}, nvidia-smi {rows[0]['name']}")
    short = gpus.shorten_name(rows[0]["name"])
    context.figure("type", mine["gpuType"])
    context.expect(mine["gpuType"] == short, f"it is registered as {mine['gpuType']}, the name is {rows[0]['name']}")
    context.expect(gpus.is_known(short), f"{short} is not in the table of GPUs")
    driver = (mine.get("versions") or {}).get("driver")
    context.expect(driver == rows[0]["driver_version"], f"driver {driver}, not {rows[0]['driver_version']}")
    torch = (mine.get("versions") or {}).get("torch")
    context.expect(torch == context.machine.packages.get("torch"), f"torch {torch}, not {context.machine.packages}")
    known, memory = gpus.find_gpu(mine["gpuType"]), float(rows[0]["memory.total"]) / 1024
    context.figure("memory", memory, "GiB")
    context.figure("memory by the table", known.memory, "GiB", least=0.97 * memory, most=1.03 * memory)
    context.figure("memory by torch", context.machine.memory / GIB, "GiB", least=0.96 * memory, most=memory)
    found = ".".join(map(str, context.machine.capability))
    context.expect(found == rows[0]["compute_cap"], f"capability {found}, nvidia-smi {rows[0]['compute_cap']}")
    context.expect(known.capability == float(found), f"capability {known.capability} by the table, {found} in fact")
    context.expect(
        gpus.find_gpu(rows[0]["name"]) == known, f"{rows[0]['name']} is {gpus.find_gpu(rows[0]['name'])}, not {known}"
    )
    from fermi.telemetry import xids

    bus = tuple(int(part, 16) for part in rows[0]["pci.bus_id"].split(".")[0].split(":"))
    context.expect(
        xids.list_buses(None) == [bus],
        f"the bus is {rows[0]['pci.bus_id']}, Xids are looked for at {xids.list_buses(None)}",
    )
    by_uuid = xids.list_buses(rows[0]["uuid"])
    context.expect(by_uuid == [bus], f"by the UUID {rows[0]['uuid']} Xids are looked for at {by_uuid}")
    listening = xids.XidReader(None).descriptors()
    context.note(f"Xids: {'/dev/kmsg' if listening else 'the kernel log cannot be read'}")


def _agent_facts(context: Context) -> None:
    from fermi.agent import host_facts
    from fermi.agent.settings import Settings

    try:
        names = Settings.__dataclass_fields__
        print("agent settings:", list(names))
        settings: Any = type("Given", (), {
            "emulate": False, "gpus": {}, "node": "node", "gpu_type": "", "zone": "", "address": "",
        })()  # fmt: skip
        told = host_facts.collect_facts(settings, "machine", "127.0.0.1", sys.executable, "/tmp", "")
        chosen = host_facts.choose_gpus(settings, {})
    except Exception as error:
        context.fail(f"fermi.agent.host_facts: {type(error).__name__}: {error}")
        return
    print("fermi.agent.host_facts:", json.dumps(told), chosen)
    context.expect(told["gpuCount"] == context.machine.cards, f"an agent would tell {told['gpuCount']} GPUs")
    if context.machine.cuda:
        context.expect(told["gpuType"] == context.machine.card, f"an agent would tell a {told['gpuType']}")
        context.expect(chosen == {"node-0": 0}, f"an agent would give its workers {chosen}")
        driver = told["versions"].get("driver")
        context.expect(driver == context.machine.driver, f"an agent would tell the driver {driver}")
        if not told["versions"].get("cuda"):
            context.note("an agent tells no version of CUDA: no nvidia-cuda-runtime of the names that it looks for")


def _show(line: str, letters: int = 24_000) -> str:
    """Prints what a line of shell says, for whoever reads the log, and returns it."""
    try:
        done = subprocess.run(
            ["bash", "-c", line], capture_output=True, text=True, errors="replace", timeout=20, check=False
        )
        said = done.stdout + done.stderr
    except (OSError, subprocess.SubprocessError) as error:
        said = str(error)
    print(f"\n$ {line}\n{said[:letters]}", flush=True)
    return said


# CUDA where tasks run ---------------------------------------------------------------------------------------------

PARTS_OFF: dict[str, tuple[dict[str, Any], str]] = {
    "whole": ({}, ""),
    "without view": ({"view": False}, ""),
    "without Landlock": ({"landlock": False}, ""),
    "without seccomp": ({}, "from fermi.runner import seccomp; seccomp.install_filter = lambda: None"),
    "without capabilities dropped": ({}, "from fermi.runner import sandbox; sandbox.drop_capabilities = lambda: None"),
    "as root": ({"user": None}, ""),
    "without view and Landlock": ({"view": False, "landlock": False}, ""),
    "without bounds": ({"bounds": False}, ""),
}
"""What is changed of the order that confines a rank, and what is run in its runner before."""
CONFINED = """
import json, os, sys
{before}
from fermi.runner import bounds, foreground
order = json.loads({order!r})
bounded = None if order.pop("bounds", True) else bounds.build_bounds(0, 0, 0.0, 0.0, 0.0)
sys.exit(foreground.run_ranks(
    [sys.executable, "-u", {script!r}], [(0, {{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}})],
    mark="", pulse=False, confine=order, bounded=bounded,
))
"""


@check(
    "CUDA works inside a confined task: devices, pinned memory, NVRTC, Triton, caches", limit=150, proves=("003-27",)
)
def cuda_in_a_task(context: Context) -> None:
    script = context.job("cuda_facts.py")
    outside: list[Ran] = []
    beside = threading.Thread(
        target=lambda: outside.append(context.python(script, "--compile", seconds=100, env=_home_of(context)))
    )
    beside.start()
    task_id = context.start(script, "--compile")
    task = context.finish(task_id, 110)
    beside.join()
    inner = context.log(task_id)
    print(f"\n--- in the task\n{inner[-60_000:]}\n--- outside\n{outside[0].output[-40_000:]}", flush=True)
    _print_order(context, task_id)
    within, without = _summary(inner), _summary(outside[0].output)
    context.expect(task["status"] == "succeeded", f"the task ended as {task['status']}: {task['reason']}")
    if not context.expect(without, f"even outside of a task the script ended with {outside[0].code}"):
        return
    if not within:
        context.fail(f"in a task the script did not come to its end: {inner[-700:]}")
        _try_without_parts(context, script)
        return
    context.expect(within["cuda"] == context.machine.cuda, f"torch.cuda is available: {within['cuda']} in a task")
    lost = [name for name in without["done"] if name not in within["done"]]
    for name in lost:
        context.fail(f"{name} works outside of a task, and in one: {_step(inner, name).get('error')}")
    for name in without["failed"]:
        said = _step(outside[0].output, name).get("error")
        context.note(f"{name} works neither in a task nor outside: {str(said)[:300]}")
    context.figure("steps that work in a task", len(within["done"]), f"of {len(without['done'])} outside")
    context.note(f"the task ran as user {within['uid']}")
    checked = context.platform.api.post("/clusters/local/check", json={})
    print("how tasks are kept from what is not theirs:", checked.status_code, checked.text[:3000])
    for name in ("context", "pinned", "nvrtc", "triton", "compile"):
        if (told := _step(inner, name)).get("ok"):
            context.figure(f"{name} in a task", told["seconds"], "s")
            context.figure(f"{name} outside", _step(outside[0].output, name).get("seconds", 0.0), "s")
    cache = (_step(inner, "triton").get("found") or {}).get("cache", "")
    home = (_step(inner, "caches").get("found") or {}).get("home", "")
    if cache:
        context.expect(cache.startswith(home), f"Triton keeps its kernels in {cache}, not below {home}")
    if lost:
        _try_without_parts(context, script)


def _home_of(context: Context) -> dict[str, str | None]:
    """For what runs outside: caches as cold as a new task's."""
    home = context.folder / "home"
    home.mkdir(exist_ok=True)
    return {"HOME": str(home), "TORCHINDUCTOR_CACHE_DIR": str(home / "inductor"), "TRITON_HOME": str(home)}


def _print_order(context: Context, task_id: str) -> None:
    """What the runner was told, as far as it is still there."""
    for path in sorted((context.platform.data / "runs").glob(f"{task_id}*/*")):
        if path.is_file() and path.stat().st_size < 100_000:
            print(f"\n--- {path}\n{path.read_text(errors='replace')[:8000]}", flush=True)


def _summary(text: str) -> Row:
    with suppress(AssertionError):
        found: Row = Ran(0, 0.0, text).json("summary")["summary"]
        return found
    return {}


def _step(text: str, name: str) -> Row:
    """What the script said of a step, {} where it did not come to it."""
    for line in text.splitlines():
        if line.startswith("{") and f'"step": "{name}"' in line:
            with suppress(ValueError):
                found: Row = json.loads(line)
                return found
    return {}


def _try_without_parts(context: Context, script: Path) -> None:
    """Says which part of the confinement is at fault, by leaving out one after the other; and whether it is the fork:
    a rank with a variable of Python's is executed."""
    executed = context.start(script, env={"PYTHONUNBUFFERED": "1"})
    user = {"uid": 61000, "gid": 61000, "groups": [], "name": "fermi-tasks"} if os.geteuid() == 0 else None
    toolkit = Path(__file__).resolve().parents[3] / "platform"
    results: dict[str, Ran] = {}
    folder = Path(tempfile.mkdtemp(prefix="gpu-check-", dir="/var/tmp"))  # where each user can pass through
    folder.chmod(0o755)

    def tried(name: str, changes: Mapping[str, Any], before: str) -> None:
        own = folder / name.replace(" ", "-")
        own.mkdir()
        own.chmod(0o777)
        shutil.copy(script, own / script.name)
        order: Row = {
            "own": [str(own)], "home": str(own), "landlock": True, "view": True, "user": user,
            "paths": {str(toolkit): "r", str(own): "rwm"}, **changes,
        }  # fmt: skip
        order = {key: value for key, value in order.items() if value is not None}
        program = CONFINED.format(before=before, order=json.dumps(order), script=str(own / script.name))
        path = {"PYTHONPATH": os.pathsep.join([str(toolkit), os.environ.get("PYTHONPATH", "")])}
        results[name] = context.run(sys.executable, "-c", program, seconds=45, env=path, cwd=own)

    trials = [threading.Thread(target=tried, args=(name, *given)) for name, given in PARTS_OFF.items()]
    for trial in trials:
        trial.start()
    for trial in trials:
        trial.join()
    shutil.rmtree(folder, ignore_errors=True)
    context.finish(executed, 45)
    results["whole, as a task that is not forked"] = Ran(None, 0.0, context.log(executed))
    for name, ran in results.items():
        found = _summary(ran.output)
        said = f"failed: {', '.join(found['failed']) or 'none'}" if found else f"code {ran.code}: {ran.output[-300:]}"
        print(f"\n--- {name}\n{ran.output[-12_000:]}", flush=True)
        context.note(f"confined {name}: {said}")


# Telemetry --------------------------------------------------------------------------------------------------------

COMPARED: dict[str, tuple[str, float, float, float]] = {
    "gpu": ("utilization.gpu", 1.0, 0.15, 10.0), "gpu_memory": ("memory.used", MIB, 0.02, 64.0 * MIB),
    "gpu_memory_total": ("memory.total", MIB, 0.0005, 2.0 * MIB), "power": ("power.draw", 1.0, 0.15, 15.0),
    "temperature": ("temperature.gpu", 1.0, 0.0, 3.0), "sm_clock": ("clocks.sm", 1.0, 0.15, 60.0),
    "memory_clock": ("clocks.mem", 1.0, 0.02, 10.0),
}  # fmt: skip
"""By metric: nvidia-smi's field, what one of it is, and how far apart the two may be: of the value, and anyhow."""


@check("NVML's and nvidia-smi's figures, idle and under load, and what the platform tells of a task",
       limit=130, needs=("cuda", "smi"))  # fmt: skip
def telemetry_idle_and_load(context: Context) -> None:
    from fermi.runner import gpus as runner_gpus
    from fermi.telemetry import gpus
    from fermi.telemetry.proc_files import CounterRates

    refused = _ask_fields(context)
    rates = CounterRates()
    who = gpus.find_gpu_reader(None, rates)
    context.expect(isinstance(who, gpus.NvmlReader), f"GPUs are asked by {type(who).__name__}, not by NVML")
    nvml = gpus.NvmlReader(None, rates)
    began = time.monotonic()
    first = nvml.read_gpus(time.monotonic())
    context.figure("one look by NVML", (time.monotonic() - began) * 1e3, "ms")
    print("first look:", json.dumps(first))
    rates.turn()
    _compare(context, refused, "before the load", lambda: _turned(nvml, rates))
    _dump_nvml()
    missing = {"gpu", "gpu_memory", "gpu_memory_total", "power", "temperature", "sm_clock", "memory_clock",
               "throttled", "pcie_received", "pcie_sent", "gpu_processes"} - first[0].keys()  # fmt: skip
    context.expect(not missing, f"NVML does not tell {', '.join(sorted(missing))}")
    idle = nvml.read_gpus(time.monotonic())[0]
    task_id = context.start(context.job("hold_memory.py"), "--work", "--gib", "6", "--seconds", "30")
    told = _until_printed(context, task_id, "holding", 60)
    pid, at_work = context.pid(task_id), time.monotonic()
    context.expect(told["pid"] == pid, f"the rank is {told['pid']}, the platform tells {pid}")
    time.sleep(3)
    rates.turn()
    loaded = _compare(context, refused, "under load", lambda: _turned(nvml, rates))
    _dump_nvml()
    _show("nvidia-smi; nvidia-smi dmon -s pucvmet -c 2; nvidia-smi pmon -c 1; nvidia-smi -q -d PERFORMANCE,POWER,CLOCK")
    context.figure("utilisation under load", loaded.get("gpu", 0.0), "%", least=60)
    context.figure("power before and under load", f"{idle.get('power')} → {loaded.get('power')}", "W")
    received = max(_turned(nvml, rates).get("pcie_received", 0.0) for _ in range(10))
    context.figure("PCIe received under load, most", received / 1e9, "GB/s", least=0.1)
    held = _check_processes(context, nvml, pid)
    _check_smi(context, refused, task_id)
    _check_sampler(context, pid, held)
    _check_runner(context, runner_gpus.GpuMonitor(), pid)
    context.note(f"looking took {time.monotonic() - at_work:.0f} s of the load's 30")
    now = context.platform.get(f"/training-tasks/{task_id}/telemetry/now")
    print("telemetry/now:", json.dumps(now))
    task = context.finish(task_id, 60)
    context.expect(task["status"] == "succeeded", f"the load ended as {task['status']}: {task['reason']}")
    context.figure("bf16 matmul of the load", context.printed(task_id, "tflops")["tflops"], "TFLOPS")
    _check_api(context, task_id, told, held)


def _turned(nvml: Any, rates: Any) -> dict[str, float]:
    """A look, after which counters begin again."""
    found: dict[str, float] = nvml.read_gpus(time.monotonic())[0]
    rates.turn()
    return found


def _ask_fields(context: Context) -> set[str]:
    """Each field alone: one that this nvidia-smi does not know takes the whole answer away. Returns those."""
    from fermi.runner import gpus as runner_gpus
    from fermi.telemetry import gpus, nvidia_smi
    from fermi.train import preflight_node

    wanted = {"gpu": {*gpus.SMI_FIELDS, *runner_gpus.QUERY_FIELDS, *preflight_node.SMI_GPU_FIELDS, "driver_version",
              "name"}, "compute-apps": {*preflight_node.SMI_PROCESS_FIELDS}}  # fmt: skip
    refused: set[str] = set()
    for of, fields in wanted.items():
        for field in sorted(fields):
            done = subprocess.run(
                nvidia_smi.build_command([field], of), capture_output=True, text=True, timeout=20, check=False
            )
            refused |= {field} if done.returncode else set()
            print(f"--query-{of}={field}: {done.returncode} {(done.stdout + done.stderr).strip()[:200]}", flush=True)
            context.expect(
                not done.returncode, f"nvidia-smi does not know {field}: {(done.stdout + done.stderr)[:200]}"
            )
    _show("nvidia-smi --help-query-gpu | grep -E '^\"(clocks|ecc|power|utili|pcie|temp)'", 9000)
    rows = nvidia_smi.run_query(gpus.SMI_FIELDS)
    context.expect(rows and "uuid" in rows[0], f"nvidia-smi answers all fields together with {rows}")
    print("as read:", rows)
    holders = nvidia_smi.run_query(preflight_node.SMI_PROCESS_FIELDS, target="compute-apps")
    context.expect(holders is not None, "nvidia-smi does not tell the processes")
    return refused


def _compare(context: Context, refused: set[str], when: str,
             look: Callable[[], dict[str, float]]) -> dict[str, float]:  # fmt: skip
    """Between two answers of nvidia-smi; figures move, so that one of five looks is enough. Returns the last look."""
    from fermi.telemetry.gpus import encode_slowdown

    mask = "clocks_throttle_reasons.active"
    fields = [field for field in (*(each[0] for each in COMPARED.values()), mask) if field not in refused]
    metrics = [*(name for name, each in COMPARED.items() if each[0] in fields), *(["throttled"] * (mask in fields))]
    apart: dict[str, str] = dict.fromkeys(metrics, "nvidia-smi tells no number")
    found: dict[str, float] = {}
    for _ in range(5):
        before = context.smi(*fields)[0]
        found = look()
        after = context.smi(*fields)[0]
        print(
            f"{when}: nvidia-smi {json.dumps(before)}, ours {json.dumps(found)}, then {json.dumps(after)}", flush=True
        )
        for metric, (field, unit, share, anyhow) in COMPARED.items():
            if metric in apart:
                with suppress(ValueError):
                    ends = sorted(float(row[field]) * unit for row in (before, after))
                    room = max(share * ends[1], anyhow)
                    apart[metric] = f"{found.get(metric)} by us, {ends[0]:g} to {ends[1]:g} by nvidia-smi's {field}"
                    if metric in found and ends[0] - room <= found[metric] <= ends[1] + room:
                        del apart[metric]
        if "throttled" in apart:
            apart["throttled"] = f"{found.get('throttled')} by us, {before[mask]} by nvidia-smi"
            if found.get("throttled") in {encode_slowdown(row[mask]) for row in (before, after)}:
                del apart["throttled"]
        if not apart:
            break
        time.sleep(0.3)
    for metric, why in apart.items():
        context.fail(f"{when}, {metric}: {why}")
    return found


def _check_processes(context: Context, nvml: Any, pid: int) -> float:
    """The rank among the processes of the card. Returns the bytes that nvidia-smi says it has."""
    rows = context.smi("pid", "used_memory", "process_name", of="compute-apps")
    print("compute-apps:", rows, "NVML:", nvml.memory, "rank:", pid)
    mine = [_held_by(context, pid)]
    if not context.expect(mine[0], f"nvidia-smi does not name the rank, process {pid}, among {rows}"):
        return 0.0
    context.expect(abs(nvml.memory.get(pid, 0) - mine[0]) <= 64 * MIB,
                   f"the rank has {nvml.memory.get(pid, 0) / MIB:.0f} MiB by us, not {mine[0] / MIB:.0f}")  # fmt: skip
    context.figure("memory of the rank", mine[0] / GIB, "GiB", least=6.0, most=6 + OF_A_CONTEXT / GIB + 1)
    return mine[0]


def _check_smi(context: Context, refused: set[str], task_id: str) -> None:
    """The way without NVML."""
    from fermi.telemetry import gpus

    smi, began = gpus.NvidiaSmiReader(None), time.monotonic()

    def look() -> dict[str, float]:
        smi._beside._due = 0.0
        smi.read_gpus(time.monotonic())
        deadline = time.monotonic() + 10
        while smi._beside._process is not None and time.monotonic() < deadline:
            smi._beside._due = time.monotonic() + 60
            smi.read_gpus(time.monotonic())
            time.sleep(0.01)
        return smi._found.get(0, {})

    found = look()
    context.figure("one look by nvidia-smi", (time.monotonic() - began) * 1e3, "ms")
    context.expect(found, f"without NVML nothing is known of the card of {task_id}")
    if found:
        _compare(context, refused, "by nvidia-smi alone", look)


def _check_sampler(context: Context, pid: int, held: float) -> None:
    from fermi.telemetry.sampler import TelemetrySampler

    sampler = TelemetrySampler([str(context.folder)], None)
    sampler.sample({0: pid}, {0: 0})
    time.sleep(1)
    sample = sampler.sample({0: pid}, {0: 0})
    sampler.close()
    print("sample:", json.dumps(sample))
    values = sample["values"]
    context.expect("emulated" not in sample, "the card counts as emulated")
    context.expect(abs(values.get("rank_gpu_memory:0", 0) - held) <= 64 * MIB,
                   f"the rank has {values.get('rank_gpu_memory:0')} B by the sampler, not {held}")  # fmt: skip
    context.expect(values.get("rank_cpu:0", 0) > 1, f"the rank uses {values.get('rank_cpu:0')} % of a processor")
    print("what a rank of the card maps:", _show(f"cat /proc/{pid}/statm /proc/{pid}/status | head -60"))


def _check_runner(context: Context, looked: Any, pid: int) -> None:
    """What a runner says of the GPU of a slow rank."""
    from fermi.runner import gpus as runner_gpus

    _show(f"ls -l /proc/{pid}/fd | grep -i nvidia")
    context.expect(
        runner_gpus.list_open_gpus(pid) == {0}, f"the rank has open the GPUs {runner_gpus.list_open_gpus(pid)}"
    )
    deadline = time.monotonic() + 10
    while not looked.told and time.monotonic() < deadline:
        looked.update(time.monotonic(), [pid])
        time.sleep(0.02)
    told, row = looked.find_figures(pid), context.smi("clocks.sm", "clocks.max.sm", "temperature.gpu")[0]
    print("runner:", looked.told, "nvidia-smi:", row)
    if context.expect(told, f"a runner knows nothing of the rank's GPU: {looked.told}"):
        context.expect(str(told.get("most")) == row["clocks.max.sm"], f"the highest clock: {told} {row}")
        context.expect(
            abs(told.get("temperature", 0) - float(row["temperature.gpu"])) <= 4, f"temperature: {told} {row}"
        )


def _check_api(context: Context, task_id: str, told: Row, held: float) -> None:
    """What the platform kept of the task."""
    metrics = [*COMPARED, "rank_gpu_memory", "rank_cpu", "rank_memory", "throttled", "ecc", "xid", "gpu_processes",
               "pcie_received", "pcie_sent", "nvlink_sent", "cpu", "memory"]  # fmt: skip
    found: Row = {}
    path, deadline = f"/training-tasks/{task_id}/telemetry", time.monotonic() + 30
    while time.monotonic() < deadline:
        found = context.platform.get(path, metric=metrics)
        if {"gpu", "rank_gpu_memory"} <= {
            one["metric"] for one in found["series"] if one["node"] == 0 or one["rank"] == 0
        }:
            break
        time.sleep(0.5)
    print("telemetry of the task:", _shown(found))
    row = context.smi("memory.total")[0]
    context.expect(not found["emulated"], "the task's telemetry counts as emulated")
    of = {one["metric"]: one for one in found["series"] if one["index"] == "0" and one["rank"] == 0}
    bounds: dict[str, tuple[str, float, float]] = {
        "gpu": ("%", 50, 100), "gpu_memory": ("B", 6 * GIB, float(row["memory.total"]) * MIB),
        "gpu_memory_total": ("B", 0.999 * float(row["memory.total"]) * MIB, 1.001 * float(row["memory.total"]) * MIB),
        "power": ("W", 100, 1000), "temperature": ("°C", 20, 95),
        "sm_clock": ("MHz", 200, 3000), "memory_clock": ("MHz", 1000, 4000), "throttled": ("", 0, 15),
        "gpu_processes": ("", 1, 64), "pcie_received": ("B/s", 1e6, 2e11),
        "rank_gpu_memory": ("B", 0.999 * held - 64 * MIB, 1.001 * held + 64 * MIB),
    }  # fmt: skip
    for metric, (unit, least, most) in bounds.items():
        if not context.expect(metric in of, f"the platform tells no {metric} of the rank's GPU"):
            continue
        values = [value for value in (of[metric]["most"] or of[metric]["values"]) if value is not None]
        peak = max(values, default=-1.0)
        context.expect(of[metric]["unit"] == unit, f"{metric} is in {of[metric]['unit']!r}")
        context.expect(least <= peak <= most, f"{metric}: {values} in {unit}, {least:g} to {most:g} was expected")
    context.expect(
        not any(value for value in of.get("ecc", {}).get("values", ()) if value), f"ECC errors: {of.get('ecc')}"
    )
    environment = context.platform.get(
        f"/dev-environments/{ENVIRONMENT}/telemetry", metric=["gpu", "power", "gpu_memory"]
    )
    print("telemetry of this machine:", _shown(environment))
    there = {one["metric"] for one in environment["series"] if one["index"] == "0"}
    context.expect({"gpu", "power", "gpu_memory"} <= there, f"of this machine the platform tells {sorted(there)}")
    print("the script said:", told)


def _shown(found: Row) -> str:
    """Without the moments of which nothing is known."""
    rows = [{**one, "values": [value for value in one["values"] if value is not None]} for one in found["series"]]
    return json.dumps({**found, "series": rows})[:20_000]


def _dump_nvml() -> None:
    """All that NVML says, for the log."""
    nvml: Any = importlib.import_module("pynvml")
    nvml.nvmlInit()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    sensors: dict[str, Sequence[Any]] = {
        "nvmlSystemGetDriverVersion": (), "nvmlSystemGetNVMLVersion": (), "nvmlSystemGetCudaDriverVersion": (),
        "nvmlDeviceGetName": (handle,), "nvmlDeviceGetUUID": (handle,), "nvmlDeviceGetBrand": (handle,),
        "nvmlDeviceGetArchitecture": (handle,), "nvmlDeviceGetMemoryInfo": (handle,),
        "nvmlDeviceGetMemoryInfo ": (handle, nvml.nvmlMemory_v2), "nvmlDeviceGetBAR1MemoryInfo": (handle,),
        "nvmlDeviceGetUtilizationRates": (handle,), "nvmlDeviceGetPowerUsage": (handle,),
        "nvmlDeviceGetEnforcedPowerLimit": (handle,), "nvmlDeviceGetTotalEnergyConsumption": (handle,),
        "nvmlDeviceGetTemperature": (handle, nvml.NVML_TEMPERATURE_GPU), "nvmlDeviceGetPerformanceState": (handle,),
        "nvmlDeviceGetCurrentClocksEventReasons": (handle,), "nvmlDeviceGetCurrentClocksThrottleReasons": (handle,),
        "nvmlDeviceGetSupportedClocksEventReasons": (handle,), "nvmlDeviceGetPersistenceMode": (handle,),
        "nvmlDeviceGetComputeMode": (handle,), "nvmlDeviceGetMigMode": (handle,), "nvmlDeviceGetEccMode": (handle,),
        "nvmlDeviceGetTotalEccErrors": (handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC),
        "nvmlDeviceGetPcieThroughput": (handle, nvml.NVML_PCIE_UTIL_RX_BYTES),
        "nvmlDeviceGetPcieThroughput ": (handle, nvml.NVML_PCIE_UTIL_TX_BYTES),
        "nvmlDeviceGetCurrPcieLinkGeneration": (handle,), "nvmlDeviceGetCurrPcieLinkWidth": (handle,),
        "nvmlDeviceGetPcieReplayCounter": (handle,), "nvmlDeviceGetComputeRunningProcesses": (handle,),
        "nvmlDeviceGetGraphicsRunningProcesses": (handle,), "nvmlDeviceGetMPSComputeRunningProcesses": (handle,),
        "nvmlDeviceGetVirtualizationMode": (handle,), "nvmlDeviceGetSupportedEventTypes": (handle,),
    }  # fmt: skip
    print("--- NVML", nvml.__file__)
    for name, words in sensors.items():
        try:
            print(f"{name.strip()}{words[1:]}: {getattr(nvml, name.strip())(*words)}")
        except Exception as error:
            print(f"{name.strip()}{words[1:]}: {type(error).__name__}: {error}")
    for link in (0, 1, 17):
        with suppress(Exception):
            print(f"NVLink {link}: {nvml.nvmlDeviceGetNvLinkState(handle, link)}")
    for field in ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
                  "NVML_FI_DEV_POWER_INSTANT", "NVML_FI_DEV_POWER_AVERAGE", "NVML_FI_DEV_MEMORY_TEMP"):  # fmt: skip
        with suppress(Exception):
            scope = 0xFFFFFFFF if "NVLINK" in field else 0
            [value] = nvml.nvmlDeviceGetFieldValues(handle, [(getattr(nvml, field), scope)])
            print(
                f"{field}: code {value.nvmlReturn}, type {value.valueType}, {value.value.ullVal}, {value.value.uiVal}"
            )
    sys.stdout.flush()


# Placement --------------------------------------------------------------------------------------------------------


@check("each rank has the card that CUDA_VISIBLE_DEVICES names: by number, by UUID, none",
       limit=90, proves=("000-54", "003-22"))  # fmt: skip
def placement(context: Context) -> None:
    script, cuda = context.job("hold_memory.py"), context.machine.cuda
    uuid = context.smi("uuid")[0]["uuid"] if cuda else ""
    words = ("--gib", "1" if cuda else "0.05", "--seconds", "14" if cuda else "1")
    tasks = {"none": context.start(script, *words, env={"CUDA_VISIBLE_DEVICES": ""})}
    if cuda:
        tasks["registered"] = context.start(script, *words, registered=True)
        tasks["uuid"] = context.start(script, *words, env={"CUDA_VISIBLE_DEVICES": uuid})
        tasks["beginning"] = context.start(script, *words, env={"CUDA_VISIBLE_DEVICES": uuid[:12]})
    ended = {name: context.finish(task_id, 60) for name, task_id in tasks.items()}
    said: dict[str, Row] = {}
    for name, task in ended.items():
        if context.expect(task["status"] == "succeeded", f"{name}: {task['status']}: {task['reason']}"):
            said[name] = context.printed(tasks[name], "holding")
            print(name, json.dumps(said[name]), flush=True)
    if "none" in said:
        none = said["none"]
        context.expect(none["device"] == "cpu", f"with an empty list a rank has {none}")
        context.expect(none["local_rank"] == "0", f"the local rank is {none['local_rank']}")
    for name, visible in (("registered", "0"), ("uuid", uuid), ("beginning", uuid[:12])):
        if name in said:
            one = said[name]
            context.expect(one["device"] == "cuda:0" and one["count"] == 1, f"{name}: {one}")
            context.expect(
                one["uuid"].removeprefix("GPU-") == uuid.removeprefix("GPU-"), f"{name}: {one['uuid']} of {uuid}"
            )
            context.expect(
                one["visible"] == visible, f"{name}: CUDA_VISIBLE_DEVICES={one['visible']!r}, not {visible!r}"
            )
            context.expect(one["current"] == 0, f"{name}: device {one['current']}")
            _check_place(context, name, tasks[name])
    if cuda:
        context.note("a beginning of the UUID names the card, too")


def _check_place(context: Context, name: str, task_id: str) -> None:
    """The telemetry of a task finds its GPU, and the rank's memory on it, however the GPU is named. What a task of less
    than half a minute used is written within half a minute after its end."""
    path, deadline, found = f"/training-tasks/{task_id}/telemetry", time.monotonic() + 40, Row()
    while time.monotonic() < deadline:
        found = context.platform.get(path, metric=["gpu_memory_total", "rank_gpu_memory"])
        of = {one["metric"] for one in found["series"] if one["index"] == "0" and one["rank"] == 0}
        if of == {"gpu_memory_total", "rank_gpu_memory"}:
            return
        time.sleep(0.3)
    context.fail(f"{name}: the task's telemetry has no GPU of the rank: {json.dumps(found)[:1500]}")


# Memory -----------------------------------------------------------------------------------------------------------


@check("kill -9 and stop give the card's memory back within seconds, and a restart finds it free", limit=100)
def killed_rank_frees_memory(context: Context) -> None:
    cuda = context.machine.cuda
    words = ("--gib", "4" if cuda else "0.05", "--seconds", "80")
    task_id = context.start(context.job("hold_memory.py"), *words, maxRestarts=1)
    first = _until_printed(context, task_id, "holding", 60)
    pid = context.pid(task_id)
    context.expect(first["pid"] == pid, f"the rank is {first['pid']}, the platform tells {pid}")
    if cuda:
        held = _held_by(context, pid)
        context.figure("held before kill -9", held / MIB, "MiB", least=4096)
        print("before:", context.smi("memory.used", "memory.free"), flush=True)
    began = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    freed = _until_free(context, pid, began)
    context.figure("memory free after kill -9", freed, "s", most=5)
    second = _until_printed(context, task_id, "holding", 60, attempt=2)
    task = context.platform.task(task_id)
    print("restarted:", json.dumps(task)[:4000], flush=True)
    context.figure("holds it again after", time.monotonic() - began, "s")
    context.expect(task["attempt"] == 2, f"it is in attempt {task['attempt']}: {task['status']} {task['reason']}")
    again = context.pid(task_id)
    context.expect(again == second["pid"] != pid, f"the new rank is {second['pid']}, the platform tells {again}")
    if cuda:
        context.expect(second["free"] >= first["free"] - 20 * GIB,
                       f"free: {first['free'] / GIB:.1f} GiB then {second['free'] / GIB:.1f}")  # fmt: skip
        context.figure("held after the restart", _held_by(context, again) / MIB, "MiB", least=4096)
    began = time.monotonic()
    context.platform.api.post(f"/training-tasks/{task_id}/stop").raise_for_status()
    freed = _until_free(context, again, began)
    context.figure("memory free after a stop", freed, "s", most=12)
    task = context.finish(task_id, 40)
    context.expect(task["status"] == "stopped", f"it ended as {task['status']}: {task['reason']}")
    print("diagnosis:", json.dumps(context.platform.diagnosis(task_id))[:6000])
    for event in context.platform.events(task_id):
        print("event:", event)
    said = " ".join(context.platform.events(task_id))
    context.expect("SIGKILL" in said or "signal 9" in said.lower(), "no event says that the rank was killed")
    _show("nvidia-smi" if cuda else "true")


def _until_printed(context: Context, task_id: str, key: str, seconds: float, attempt: int = 1) -> Row:
    """The line with the key that rank 0 prints. Raises AssertionError where the task ends before."""
    deadline = time.monotonic() + seconds
    while True:
        text = context.platform.log(task_id, 0, attempt)
        if f'"{key}"' in text:
            with suppress(AssertionError):
                return Ran(0, 0.0, text).json(key)
        task = context.platform.task(task_id)
        if task["status"] in FINAL or time.monotonic() > deadline:
            print(f"{task_id}: {json.dumps(task)[:3000]}\n{text[-6000:]}", flush=True)
            raise AssertionError(f"{task_id} is {task['status']} ({task['reason']}) and has not said {key}")
        time.sleep(0.05)


def _held_by(context: Context, pid: int) -> float:
    """Bytes of the card that nvidia-smi says a process has."""
    rows = context.smi("pid", "used_memory", of="compute-apps")
    mine = [row["used_memory"] for row in rows if row["pid"] == str(pid)]
    return sum(float(size) * MIB if size.isdecimal() else 1.0 for size in mine)  # in some containers: N/A


def _until_free(context: Context, pid: int, began: float) -> float:
    """Seconds until the process has gone, and the card's memory with it."""
    deadline = began + 25
    while time.monotonic() < deadline:
        if not _is_there(pid) and not (context.machine.cuda and _held_by(context, pid)):
            return time.monotonic() - began
        time.sleep(0.05)
    context.fail(f"process {pid} has the card's memory still: {context.smi('pid', 'used_memory', of='compute-apps')}"
                 if context.machine.cuda else f"process {pid} is there still")  # fmt: skip
    return time.monotonic() - began


def _is_there(pid: int) -> bool:
    """A dead one that nobody has waited for yet holds no memory."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@check("what an environment's process holds of the card is told, to whom it is in the way, and given back", limit=110)
def environment_holds_memory(context: Context) -> None:
    from fermi.client import Fermi

    cuda, platform = context.machine.cuda, context.platform
    script = context.job("hold_memory.py")
    if cuda:
        asked = {
            "templateId": "template-custom",
            "projectId": "default",
            "name": "second",
            "gpuCount": 1,
            "gpuType": "H100",
        }
        refused = platform.api.post("/dev-environments/make", json=asked)
        print("a second environment with the card:", refused.status_code, refused.text[:1500], flush=True)
        context.expect(refused.status_code in (400, 409) and "GPUS_TAKEN" in refused.text,
                       f"a second environment was given the only card: {refused.status_code}")  # fmt: skip
    ended: list[Any] = []
    with Fermi(platform.url, (platform.data / "token").read_text("utf-8").strip(), lang="en") as fermi:
        words = [sys.executable, "-u", str(script), "--gib", "3" if cuda else "0.2", "--seconds", "70"]
        copy = ["bash", "-c", f"cat > hold_memory.py; exec {' '.join(words[:2])} hold_memory.py {' '.join(words[3:])}"]

        def runs() -> None:
            try:
                ended.append(fermi.environments.run(ENVIRONMENT, copy, stdin=script.read_bytes()))
            except Exception as error:  # the environment was stopped
                ended.append(error)

        running = threading.Thread(target=runs, daemon=True)
        running.start()
        process = _until_in_use(context, 3 * GIB if cuda else 64 * MIB, "gpuBytes" if cuda else "rssBytes", 45, ended)
    if process is None:
        return
    pid = int(process["id"])
    print("in use:", json.dumps(process), flush=True)
    context.expect(process["kind"] == "process" and "hold_memory" in process["name"], f"it is told as {process}")
    if cuda:
        witness = _held_by(context, pid)
        context.figure("held by the environment", process["gpuBytes"] / MIB, "MiB", least=3072)
        context.figure("by nvidia-smi", witness / MIB, "MiB")
        context.expect(abs(witness - process["gpuBytes"]) <= 64 * MIB, f"{process} has {witness} by nvidia-smi")
    body = {**platform.request([ENVIRONMENT]), "entrypoint": {"script": str(script), "args": []}}
    told = platform.send("POST", "/training-tasks/preview", **body)
    print("preview:", json.dumps(told.get("inUse")), json.dumps(told.get("warnings")), flush=True)
    names = [one["name"] for each in told["inUse"] for one in each["processes"]]
    context.expect(any("hold_memory" in name for name in names), f"a training is told of {names}")
    print("its page:", json.dumps(platform.get(f"/dev-environments/{ENVIRONMENT}"))[:4000], flush=True)
    context.expect(_is_there(pid) and not ended, f"its process {pid} ended before it was asked to: {ended}")
    began = time.monotonic()
    stopped = platform.api.post(f"/dev-environments/{ENVIRONMENT}/stop", json={})
    while stopped.status_code == 409 and time.monotonic() - began < 30:  # a task has it
        time.sleep(0.5)
        stopped = platform.api.post(f"/dev-environments/{ENVIRONMENT}/stop", json={})
    try:
        if context.expect(stopped.status_code == 200, f"stop: {stopped.status_code} {stopped.text[:500]}"):
            freed = _until_free(context, pid, time.monotonic())
            context.figure("memory free after the environment's stop", freed, "s", most=20)
    finally:
        _begin_again(context)
    left = platform.send("POST", "/training-tasks/preview", **body)["inUse"]
    context.expect(not left, f"after the stop a training is still told of {left}")


def _until_in_use(context: Context, least: float, field: str, seconds: float, ended: list[Any]) -> Row | None:
    """The process of the environment that holds so much, as a preview tells it."""
    platform, deadline = context.platform, time.monotonic() + seconds
    body, told = platform.request([ENVIRONMENT]), Row()
    while time.monotonic() < deadline and not ended:
        told = platform.send("POST", "/training-tasks/preview", **body)
        for each in told["inUse"]:
            for one in each["processes"]:
                if (one[field] or 0) >= least:
                    return Row(one)
        time.sleep(0.4)
    context.fail(f"no preview says what the environment holds: {json.dumps(told.get('inUse'))}; the command: {ended}")
    for path in sorted((platform.data / "environments").rglob("*.status.json"))[-3:]:
        print(f"--- {path}\n{path.read_text(errors='replace')[:6000]}", flush=True)
    for path in sorted((platform.data / "environments").rglob("*.log"))[-3:]:
        print(f"--- {path}\n{path.read_text(errors='replace')[-4000:]}", flush=True)
    _show("nvidia-smi" if context.machine.cuda else "true")
    return None


def _begin_again(context: Context) -> None:
    """Other checks use this machine's environment, too."""
    platform, deadline = context.platform, time.monotonic() + 40
    while time.monotonic() < deadline:
        state = platform.get(f"/dev-environments/{ENVIRONMENT}")["hosted"]
        if state["state"] == "running":
            return
        if "start" in state["allowedActions"]:
            platform.api.post(f"/dev-environments/{ENVIRONMENT}/start", json={})
        time.sleep(0.4)
    context.fail(f"{ENVIRONMENT} does not run again: {platform.get(f'/dev-environments/{ENVIRONMENT}')['hosted']}")


# JAX and the node test --------------------------------------------------------------------------------------------


@check(
    "JAX finds the card inside a task, with the memory settings",
    limit=100,
    needs=("jax",),
    proves=("001-39", "001-47", "001-49", "001-60"),
)
def jax_placement(context: Context) -> None:
    task_id = context.start(context.job("jax_devices.py"), framework="jax")
    task = context.finish(task_id, 80)
    if task["status"] != "succeeded":
        print(json.dumps(context.platform.diagnosis(task_id))[:3000])
    context.expect(task["status"] == "succeeded", f"{task['status']}: {task['reason']}")
    told = context.printed(task_id, "devices")
    print(json.dumps(told, indent=1), flush=True)
    expected = "gpu" if context.machine.cuda else "cpu"
    context.expect(told["platform"] == expected, f"JAX computes on {told['platform']}: {told['devices']}")
    context.expect(len(told["devices"]) == 1 and told["value"] == 256.0**3, f"{told['devices']}, {told['value']}")
    wanted = {"JAX_PLATFORM_NAME": expected, "JAX_PLATFORMS": "cuda" if context.machine.cuda else "cpu"}
    set_ = {name: told["env"].get(name) for name in wanted}
    context.expect(set_ == wanted, f"the variables are {set_}")
    context.figure("JAX", f"{told['devices'][0]} {told['kind']}")
    context.figure("JAX's first value after", told["seconds"], "s")
    if context.machine.cuda and (stats := told["memory"]):
        share = stats.get("bytes_limit", 0) / context.machine.memory
        asked = float(told["env"].get("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.75"))
        context.figure("memory that JAX may take", share, f"of the card, {asked:g} was asked for",
                       least=0.5 * asked, most=1.1 * asked)  # fmt: skip


@check("the node test measures this node and warns of nothing that is not so", limit=120)
def preflight(context: Context) -> None:
    platform, cuda = context.platform, context.machine.cuda
    environment = platform.environment("preflight", 1, emulated=not cuda)
    for level in ("quick", "full"):
        began = time.monotonic()
        asked = platform.send("POST", "/preflights", environmentIds=[environment], level=level)
        found = _until_tested(context, asked["id"])
        print(f"{level}:", json.dumps(found, indent=1)[:14_000], flush=True)
        context.figure(f"{level} test", time.monotonic() - began, "s")
        if context.expect(
            found["status"] == "done" and found["nodes"], f"{level}: {found['status']} {found.get('reason')}"
        ):
            _check_tested(context, level, found)


def _until_tested(context: Context, key: str) -> Row:
    deadline = time.monotonic() + 55
    while True:
        found: Row = context.platform.get(f"/preflights/{key}")
        if found["status"] not in ("queued", "waiting", "starting", "running") or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _check_tested(context: Context, level: str, found: Row) -> None:
    findings = [*found["nodes"][0]["findings"], *(found.get("together") or {}).get("findings", ())]
    rows = context.smi("memory.used", "memory.total", "driver_version") if context.machine.cuda else []
    for one in findings:
        if one["level"] in ("pass", "unknown"):
            continue
        used = float(rows[0]["memory.used"]) / float(rows[0]["memory.total"]) if rows else 0.0
        if "GPU_MEMORY_HELD" in one["code"] and used > 0.05:
            context.note(f"{level}: {one['message']} (other checks run beside)")
        elif "TOGETHER_SKIPPED" not in one["code"]:
            context.fail(f"{level}: {one['level']}: {one['code']}: {one['message']}")
    values = {one["check"]: one["value"] for one in findings}
    devices, versions = values.get("devices") or {}, values.get("versions") or {}
    if not context.machine.cuda:
        context.expect((devices.get("torch") or {}).get("gpus") == 0, f"{level}: devices are {devices}")
        return
    torch = devices.get("torch") or {}
    context.expect(
        torch.get("gpus") == 1 and torch.get("names") == [context.machine.card], f"{level}: torch has {torch}"
    )
    here = {"driver": rows[0]["driver_version"], "cuda": context.machine.cuda_version, "nccl": context.machine.nccl,
            "torch": context.machine.packages.get("torch")}  # fmt: skip
    for name, expected in here.items():
        said = str(versions.get(name))
        context.expect(
            said.partition("+")[0] == str(expected).partition("+")[0], f"{level}: {name} is {said}, not {expected}"
        )
    memory = values.get("gpuMemory") or [{}]
    context.expect(
        memory[0].get("totalMb") == int(float(rows[0]["memory.total"])), f"{level}: the card's memory is {memory}"
    )
    jax = devices.get("jax")
    if level == "full" and jax:
        context.expect(jax.get("gpus") == 1, f"JAX has {jax}")
    if level == "full":
        together = found.get("together") or {}
        print("together:", together)
        if together.get("allReduceMs") is not None:
            context.figure("all-reduce of one", together["allReduceMs"], "ms", most=20)
