"""Tries, step by step, all that training asks of a GPU, and prints a line of JSON for each step: it works as a task of
the platform and without. Arguments: `--compile` tries Triton and torch.compile, too."""

import ctypes
import glob
import json
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

FAILED: list[str] = []
DONE: list[str] = []
SKIPPED: list[str] = []

KERNEL = """
import triton
import triton.language as tl


@triton.jit
def add_one(pointer, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(pointer + at, mask=at < count)
    tl.store(pointer + at, value + 1.0, mask=at < count)
"""
SOURCE = r"""
extern "C" __global__ void twice(float* values, int count) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count) values[at] *= 2.0f;
}
"""


def step(name: str, work: Callable[[], Any]) -> None:
    began = time.time()
    try:
        told: dict[str, Any] = {"ok": True, "found": work()}
        DONE.append(name)
    except BaseException as error:
        told = {
            "ok": False,
            "error": f"{type(error).__name__}: {error}"[:1500],
            "trace": traceback.format_exc()[-2500:],
        }
        FAILED.append(name)
    print(json.dumps({"step": name, "seconds": round(time.time() - began, 3), **told}, default=str), flush=True)


def read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def identity() -> Any:
    status = read("/proc/self/status").splitlines()
    told = ("Uid", "Gid", "Groups", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "VmLck")
    return {
        "status": [line for line in status if line.split(":")[0] in told],
        "limits": read("/proc/self/limits").splitlines(),
        "cgroup": read("/proc/self/cgroup").splitlines(),
        "cwd": os.getcwd(),
        "python": sys.executable,
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in ("mnt", "pid", "user", "ipc", "net")},
    }


def variables() -> Any:
    begins = ("CUDA", "NVIDIA", "NCCL", "TORCH", "TRITON", "PYTORCH", "LD_", "XDG", "TMP", "HOME", "PATH", "PYTHON",
              "LOCAL_", "RANK", "WORLD", "MASTER", "FERMI_NODE", "OMP_", "USER", "XLA", "JAX")  # fmt: skip
    return {name: value[:600] for name, value in sorted(os.environ.items()) if name.startswith(begins)}


def devices() -> Any:
    """Whether each can be opened, and why not."""
    found = {}
    for path in sorted(
        glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*") + ["/dev/shm", *glob.glob("/proc/driver/nvidia")]
    ):
        about = os.stat(path)
        told = f"mode {about.st_mode:o} uid {about.st_uid} gid {about.st_gid} rdev {about.st_rdev:#x}"
        if not os.path.isdir(path):
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
                told += " opens"
            except OSError as error:
                told += f" {error}"
        found[path] = told
    for path in ("/proc/driver/nvidia/params", "/proc/driver/nvidia/version", "/proc/devices", "/proc/modules"):
        try:
            found[path] = read(path)[:1500]
        except OSError as error:
            found[path] = str(error)
    return found


def driver() -> Any:
    """By the driver's own library, before anything of torch has touched it."""
    library = ctypes.CDLL("libcuda.so.1")
    code, count, version = library.cuInit(0), ctypes.c_int(-1), ctypes.c_int(-1)
    name = ctypes.c_char_p()
    library.cuGetErrorName(code, ctypes.byref(name))
    library.cuDeviceGetCount(ctypes.byref(count))
    library.cuDriverGetVersion(ctypes.byref(version))
    told = {"cuInit": code, "name": str(name.value), "count": count.value, "version": version.value}
    if code:
        raise RuntimeError(str(told))
    return told


def opened() -> Any:
    files = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            files.add(os.readlink(f"/proc/self/fd/{name}"))
        except OSError:
            continue
    maps = read("/proc/self/maps").splitlines()
    words = ("cuda", "nvidia", "nccl", "cudnn", "cublas", "nvrtc", "triton")
    mapped = {line.split()[-1] for line in maps if len(line.split()) > 5 and any(w in line.lower() for w in words)}
    return {"files": sorted(files), "mapped": sorted(mapped), "nvidia": [f for f in sorted(files) if "nvidia" in f]}


def shared_memory() -> Any:
    import torch
    import torch.multiprocessing as multiprocessing

    space = os.statvfs("/dev/shm")
    path = f"/dev/shm/check-{os.getpid()}"
    with open(path, "wb") as file:
        file.write(b"x" * (64 << 20))
    os.unlink(path)
    tensor = torch.zeros(1 << 20).share_memory_()
    return {"MiB": space.f_blocks * space.f_frsize >> 20, "shared": tensor.is_shared(),
            "how": multiprocessing.get_sharing_strategy()}  # fmt: skip


def main() -> None:
    for name, work in (("identity", identity), ("variables", variables), ("devices", devices)):
        step(name, work)
    if os.path.exists("/dev/nvidiactl"):
        step("driver", driver)
    began = time.time()
    import torch

    print(json.dumps({"imported": round(time.time() - began, 3), "torch": torch.__version__}), flush=True)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", 0) if cuda else torch.device("cpu")

    def context() -> Any:
        torch.zeros(1, device=device)
        return {"device": str(device), "count": torch.cuda.device_count(), **(about() if cuda else {})}

    def about() -> dict[str, Any]:
        torch.cuda.synchronize()
        known = torch.cuda.get_device_properties(0)
        return {"name": known.name, "uuid": str(known.uuid), "memory": known.total_memory,
                "capability": torch.cuda.get_device_capability(0), "free": torch.cuda.mem_get_info()}  # fmt: skip

    def multiply() -> Any:
        dtype = torch.bfloat16 if cuda else torch.float32
        one = torch.full((512, 512), 0.5, device=device, dtype=dtype)
        value = (one @ one)[0, 0].item()
        assert value == 128.0, value
        return value

    def convolve() -> Any:
        layer = torch.nn.Conv2d(3, 8, 3).to(device)
        out = layer(torch.ones(2, 3, 32, 32, device=device)).sum()
        out.backward()
        return {"cudnn": torch.backends.cudnn.version(), "value": out.item()}

    def pinned() -> Any:
        """cudaHostAlloc, and cudaHostRegister of memory that is there already."""
        soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        held = torch.arange(64 << 20, dtype=torch.float32).pin_memory()
        assert held.is_pinned()
        there = held.to(device, non_blocking=True)
        torch.cuda.synchronize()
        assert there[-1].item() == held[-1].item()
        plain, runtime = torch.zeros(16 << 20), torch.cuda.cudart()
        code = runtime.cudaHostRegister(plain.data_ptr(), plain.numel() * 4, 0)
        runtime.cudaHostUnregister(plain.data_ptr())
        assert int(code) == 0, code
        return {"MiB": held.numel() * 4 >> 20, "memlock": [soft, hard]}

    def loader() -> Any:
        rows = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(32, 2))
        loaded = torch.utils.data.DataLoader(rows, batch_size=8, num_workers=2, pin_memory=cuda)
        got = [batch[0] for batch in loaded]
        assert sum(batch.sum().item() for batch in got) == 2016.0
        return {"batches": len(got), "pinned": got[0].is_pinned()}

    def runtime_compiled() -> Any:
        """By NVRTC; torch's own for CUDA sources."""
        kernel = torch.cuda._compile_kernel(SOURCE, "twice")
        values = torch.ones(1000, device=device)
        kernel(grid=(4, 1, 1), block=(256, 1, 1), args=(values, 1000))
        torch.cuda.synchronize()
        assert values.sum().item() == 2000.0
        return "NVRTC compiled and ran"

    def fused() -> Any:
        """torch's own use of NVRTC."""
        values = torch.cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x * x + x; }")(
            torch.full((16,), 2.0, device=device)
        )
        assert values[0].item() == 6.0
        return "jiterator compiled and ran"

    def graphed() -> Any:
        values, graph = torch.zeros(4, device=device), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            values.add_(1.0)
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        return values[0].item()

    def large() -> Any:
        """Address space is reserved in large pieces: a limit of it would show here."""
        held = torch.empty(2 << 30, dtype=torch.uint8, device=device)
        return {"GiB": held.numel() / 2**30, "reserved": torch.cuda.memory_reserved()}

    def reported() -> Any:
        """What NVML and nvidia-smi say in here."""
        done = subprocess.run(
            ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=20, check=False,
        )  # fmt: skip
        found: dict[str, Any] = {"smi": done.returncode, "said": done.stdout + done.stderr, "pid": os.getpid()}
        found |= {"utilisation": torch.cuda.utilization(0), "used": torch.cuda.device_memory_used(0)}
        return found

    def caches() -> Any:
        home = os.path.expanduser("~")
        found: dict[str, Any] = {"home": home, "tmp": os.environ.get("TMPDIR")}
        for path in (f"{home}/.nv/ComputeCache", f"{home}/.triton", f"{home}/.cache/torchinductor"):
            os.makedirs(path, exist_ok=True)
            with open(f"{path}/check", "w", encoding="utf-8") as file:
                file.write("x")
            os.unlink(f"{path}/check")
            found[path] = sum(len(names) for _, _, names in os.walk(path))
        return found

    def triton_kernel() -> Any:
        """As somebody's own module has one. Where Triton keeps what it compiled, is told."""
        already = "triton" in sys.modules
        path = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"kernel_{os.getpid()}.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(KERNEL)
        sys.path.insert(0, os.path.dirname(path))
        kernel = __import__(f"kernel_{os.getpid()}").add_one
        from triton import knobs  # type: ignore[import-not-found,unused-ignore]

        values = torch.zeros(1000, device=device)
        kernel[(4,)](values, 1000, BLOCK=256)
        torch.cuda.synchronize()
        assert values.sum().item() == 1000.0
        return {"cache": knobs.cache.dir, "imported before": already}

    def compiled() -> Any:
        model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).to(device)
        fast = torch.compile(model)
        fast(torch.ones(8, 64, device=device)).sum().backward()
        torch.cuda.synchronize()
        return {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}

    step("context", context)
    if not cuda:
        print(json.dumps({"why": str(getattr(torch.cuda, "_last_error", "")), "cuda": torch.version.cuda}), flush=True)
    step("matmul", multiply)
    step("shm", shared_memory)
    step("loader", loader)
    step("conv", convolve)
    if cuda:
        for name, work in (("pinned", pinned), ("nvrtc", runtime_compiled), ("jiterator", fused), ("graph", graphed),
                           ("large", large), ("reported", reported)):  # fmt: skip
            step(name, work)
    else:
        SKIPPED.extend(["pinned", "nvrtc", "jiterator", "graph", "large", "reported"])
    step("caches", caches)
    step("opened", opened)
    if "--compile" in sys.argv and cuda:
        step("triton", triton_kernel)
        step("compile", compiled)
    said = {"cuda": cuda, "failed": FAILED, "done": DONE, "skipped": SKIPPED, "uid": os.getuid(), "pid": os.getpid()}
    print(json.dumps({"summary": said}), flush=True)


if __name__ == "__main__":
    main()
