"""Node part of the pre-flight test: variables, interfaces, versions, GPUs and the processes that hold their memory,
disks, shared memory; and torch and JAX, in a child process that may hang or crash. Standard library only."""

from __future__ import annotations

import array
import contextlib
import fcntl
import json
import os
import platform
import select
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from fermi.telemetry import nvidia_smi

Fact = dict  # of str to whatever JSON knows

REPORTED_VARIABLES = (
    "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "LOCAL_RANK", "NODE_RANK", "LOCAL_WORLD_SIZE",
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_IB_DISABLE", "NCCL_IB_HCA", "CUDA_VISIBLE_DEVICES",
    "JAX_PLATFORMS", "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_MEM_FRACTION",
)  # fmt: skip
REPORTED_PACKAGES = ("torch", "jax", "jaxlib", "numpy")
SMI_SECONDS = 15
SIOCGIFADDR = 0x8915


def collect_node_facts(packages: Iterable[str] = ()) -> Fact:
    """Return the fact `node`. `packages`: further ones whose versions to report."""
    gpus, driver = list_gpus()
    return {
        "host": socket.gethostname(),
        "env": {name: os.environ[name] for name in REPORTED_VARIABLES if os.environ.get(name)},
        "interfaces": list_interfaces(),
        "versions": {**_list_versions(packages), **({"driver": driver} if driver else {})},
        "gpus": gpus,
        "disks": _list_disks(),
        "shm": _read_space("/dev/shm"),
    }


def _list_versions(packages: Iterable[str]) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in [*REPORTED_PACKAGES, *packages]:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name) or ""
    for distribution in ("nvidia-nccl-cu12", "nvidia-nccl-cu13"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["nccl"] = metadata.version(distribution)
    return found


def _list_disks() -> list[Fact]:
    """Return the disks that training writes to. Read-only ones are left out: where a task sees only its own folders,
    their parents are on a file system of a few MB (`fermi.runner.mounts`)."""
    paths = [os.getcwd(), "/tmp", os.environ.get("FERMI_CHECKPOINT_DIR") or os.getcwd()]
    found: dict[int, Fact] = {}
    for path in paths:
        while not os.path.exists(path):
            path = os.path.dirname(path)
        space = None if _is_read_only(path) else _read_space(path)
        if space:
            found.setdefault(os.stat(path).st_dev, {"path": path, **space})
    return list(found.values())


def _is_read_only(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def _read_space(path: str) -> Fact | None:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return {"freeMb": usage.free >> 20, "totalMb": usage.total >> 20}


# --- Network ----------------------------------------------------------------------------------------------------------


def list_interfaces() -> dict[str, list[str]]:
    """Return the addresses by interface, of those that have some."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = array.array("B", struct.pack("256s", name[:15].encode()))
            with contextlib.suppress(OSError):
                fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
                found.setdefault(name, []).append(socket.inet_ntoa(bytes(request)[20:24]))
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="utf-8") as file:
        for line in file:
            digits, *_, name = line.split()
            address = socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits))
            if not address.startswith("fe80:"):
                found.setdefault(name, []).append(address)
    return found


def find_interface_to(address: str) -> str | None:
    """Return the interface by which an address is reached, None where there is no route. By a datagram socket: a route
    is chosen, nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            own = probe.getsockname()[0]
    except OSError:
        return None
    return next((name for name, addresses in list_interfaces().items() if own in addresses), None)


def find_in_hosts_file(name: str) -> str:
    """Return the line of /etc/hosts that has a name, as `/etc/hosts:3`; "" if none does."""
    with contextlib.suppress(OSError), open("/etc/hosts", encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            words = line.partition("#")[0].split()
            if name in words[1:]:
                return f"/etc/hosts:{number}"
    return ""


# --- GPUs as the driver sees them -------------------------------------------------------------------------------------


SMI_GPU_FIELDS = ("index", "uuid", "memory.total", "memory.used", "driver_version", "name")
SMI_PROCESS_FIELDS = ("gpu_uuid", "pid", "used_memory", "process_name")


def list_gpus() -> tuple[list[Fact], str]:
    """Return the GPUs that this node may use, with the processes that hold their memory, and the driver's version."""
    gpus = nvidia_smi.run_query(SMI_GPU_FIELDS, seconds=SMI_SECONDS)
    if gpus is None:
        return [], ""
    holders = nvidia_smi.run_query(SMI_PROCESS_FIELDS, target="compute-apps", seconds=SMI_SECONDS) or []
    return combine_smi_rows(gpus, holders, os.environ.get("CUDA_VISIBLE_DEVICES"))


def combine_smi_rows(
    gpus: list[nvidia_smi.SmiRow], holders: list[nvidia_smi.SmiRow], visible: str | None
) -> tuple[list[Fact], str]:
    """Return GPUs and driver version from rows of nvidia-smi. `visible`: CUDA_VISIBLE_DEVICES; None = all."""
    found = []
    for place in nvidia_smi.list_visible_gpus(visible, [row.get("uuid", "") for row in gpus]):
        row = gpus[place]
        total, used = nvidia_smi.get_int(row, "memory.total") or 0, nvidia_smi.get_int(row, "memory.used") or 0
        processes = [
            {"pid": nvidia_smi.get_int(one, "pid") or 0, "name": os.path.basename(one.get("process_name", "")),
             "memoryMb": nvidia_smi.get_int(one, "used_memory") or 0}
            for one in holders
            if one.get("gpu_uuid") == row.get("uuid") and nvidia_smi.get_int(one, "pid") != os.getpid()
        ]  # fmt: skip
        found.append({"index": nvidia_smi.get_int(row, "index") or 0, "name": row.get("name", ""), "totalMb": total,
                      "freeMb": max(0, total - used), "processes": processes})  # fmt: skip
    return found, gpus[0].get("driver_version", "") if gpus else ""


# --- torch and JAX ----------------------------------------------------------------------------------------------------


class StackProbe:
    """A child process that imports torch and JAX, reports their devices, and runs collectives with other nodes. Forked
    before there are threads; where the parent has imported torch already, that costs nothing."""

    def __init__(self, names: list[str], quiet: bool = False) -> None:
        self.names = names
        self.orders, ours = os.pipe()
        theirs, self.answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(ours)
            os.close(theirs)
            os.dup2(os.open(os.devnull, os.O_WRONLY) if quiet else 2, 1)  # what libraries print is no fact
            if quiet:
                os.dup2(1, 2)
            with contextlib.suppress(BaseException):
                _run_child(names, self.orders, self.answers)
            os._exit(0)
        os.close(self.orders)
        os.close(self.answers)
        self.orders, self.answers = ours, theirs
        self.found: Fact | None = None
        self.rest = b""

    def __enter__(self) -> StackProbe:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            os.waitpid(self.pid, 0)

    def devices(self, seconds: float) -> Fact:
        """Return `torch` and `jax`: None where it is not installed, with `error` where it fails."""
        if self.found is None:
            answer = self._receive(seconds)
            stuck = "ended while it was imported" if answer == {} else f"no answer within {seconds:.0f} s"
            self.found = answer or {**dict.fromkeys(_INSPECTORS), self.names[0]: {"error": stuck, "gpus": 0}}
        return self.found

    def together(self, order: Fact, seconds: float) -> Fact:
        try:
            os.write(self.orders, json.dumps(order).encode() + b"\n")
        except OSError:
            return {"error": "the process with torch has ended"}
        answer = self._receive(seconds)
        return answer or {"error": "the process with torch ended" if answer == {} else f"no end within {seconds:.0f} s"}

    def _receive(self, seconds: float) -> Fact | None:
        """Return the child's next answer; {} where it has ended, None where it does not answer in time."""
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            if not select.select([self.answers], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = os.read(self.answers, 1 << 16)
            if not data:
                return {}
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\n")
        found: Fact = json.loads(line)
        return found


def _run_child(names: list[str], orders: int, answers: int) -> None:
    """The child's life."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    began = time.monotonic()
    found: Fact = {name: _INSPECTORS[name]() if name in names else None for name in _INSPECTORS}
    found |= {name: _read_version(name) for name in names if name not in _INSPECTORS}
    found["seconds"] = round(time.monotonic() - began, 2)
    os.write(answers, json.dumps(found).encode() + b"\n")
    with os.fdopen(orders) as lines:
        for line in lines:
            try:
                said = _run_collectives(json.loads(line))
            except BaseException as error:
                said = {"error": f"{type(error).__name__}: {_first_line(error)}"}
            os.write(answers, json.dumps(said).encode() + b"\n")


def _inspect_torch() -> Fact | None:
    if not _is_installed("torch"):
        return None
    try:
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        nccl = torch.cuda.nccl.version() if gpus else None
        return {
            "version": torch.__version__,
            "cuda": torch.version.cuda,
            "nccl": ".".join(map(str, nccl)) if isinstance(nccl, tuple) else nccl,
            "gpus": gpus,
            "names": [torch.cuda.get_device_name(index) for index in range(gpus)],
        }
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {_first_line(error)}", "gpus": 0}


def _inspect_jax() -> Fact | None:
    if not _is_installed("jax"):
        return None
    try:
        import jax

        devices = jax.local_devices()
        gpus = [device for device in devices if device.platform in ("gpu", "cuda", "rocm")]
        return {"version": jax.__version__, "platform": devices[0].platform, "count": len(devices), "gpus": len(gpus)}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {_first_line(error)}", "gpus": 0}


_INSPECTORS = {"torch": _inspect_torch, "jax": _inspect_jax}


def _read_version(name: str) -> Fact | None:
    """Return the version of a package for which there is no inspector."""
    return {"version": metadata.version(name)} if _is_installed(name) else None


def _is_installed(name: str) -> bool:
    try:
        return name in sys.modules or bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


def _run_collectives(order: Fact) -> Fact:
    """Run an all-reduce and a barrier over all nodes and return the shortest of three times, in ms."""
    import datetime

    import torch
    import torch.distributed as dist

    on_gpu = order["backend"] == "nccl"
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK") or 0)) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        order["backend"],
        init_method=f"tcp://{_bracket_host(order['head'])}:{order['port']}",
        rank=order["rank"],
        world_size=order["world"],
        timeout=datetime.timedelta(seconds=30),
    )
    numbers = torch.ones(int(order["megabytes"] * (1 << 18)), device=device)
    dist.all_reduce(numbers)  # the first one makes the connections
    if numbers[0].item() != order["world"]:
        raise RuntimeError(f"the sum over {order['world']} nodes is {numbers[0].item()}")
    said = {
        "backend": order["backend"],
        "megabytes": order["megabytes"],
        "allReduceMs": _measure_ms(lambda: dist.all_reduce(numbers), on_gpu),
        "barrierMs": _measure_ms(dist.barrier, on_gpu),
    }
    dist.destroy_process_group()
    return said


def _measure_ms(work: Any, on_gpu: bool) -> float:
    import torch

    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        work()
        if on_gpu:
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) * 1e3)
    return round(best, 3)


def _bracket_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
