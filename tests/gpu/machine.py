"""What there is on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata

PACKAGES = (
    "torch", "triton", "jax", "jaxlib", "deepspeed", "megatron-core", "accelerate", "lightning", "pytorch-lightning",
    "transformers", "nvidia-ml-py", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
)  # fmt: skip

ASK_TORCH = """
import json, torch
there = torch.cuda.is_available()
print(json.dumps({
    "cuda": there,
    "cuda_version": torch.version.cuda or "",
    "card": torch.cuda.get_device_name(0) if there else "",
    "cards": torch.cuda.device_count() if there else 0,
    "capability": list(torch.cuda.get_device_capability(0)) if there else [],
    "memory": torch.cuda.get_device_properties(0).total_memory if there else 0,
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if there else "",
}))
"""


@dataclass(frozen=True)
class Machine:
    """`memory`: bytes of the first card. `driver`: the version, empty where there is none."""

    cores: int
    cuda: bool = False
    cuda_version: str = ""
    card: str = ""
    cards: int = 0
    capability: tuple[int, ...] = ()
    memory: int = 0
    nccl: str = ""
    driver: str = ""
    python: str = ""
    kernel: str = ""
    user: int = 0
    packages: dict[str, str] = field(default_factory=dict)
    torch_error: str = ""

    def lacks(self, needs: tuple[str, ...]) -> str:
        """Returns why a check cannot be made, empty where it can. `needs`: `cuda`, `cards` (more than one), `root`,
        `smi` (nvidia-smi), or the name of a module that must be importable."""
        for need in needs:
            match need:
                case "cuda" if not self.cuda:
                    return "no CUDA here" + (f": {self.torch_error}" if self.torch_error else "")
                case "cards" if self.cards < 2:
                    return "it takes several cards"
                case "root" if self.user:
                    return "it needs root"
                case "smi" if not shutil.which("nvidia-smi"):
                    return "there is no nvidia-smi"
                case "cuda" | "cards" | "root" | "smi":
                    continue
                case _ if not importlib.util.find_spec(need):
                    return f"{need} is not installed"
        return ""


def inspect_machine() -> Machine:
    """Returns what this machine has. PyTorch is asked in a process of its own, so that none of ours opens the card."""
    found = subprocess.run([sys.executable, "-c", ASK_TORCH], capture_output=True, text=True, check=False)
    told = json.loads(found.stdout) if found.returncode == 0 else {"torch_error": found.stderr.strip()[-300:]}
    if "capability" in told:
        told["capability"] = tuple(told["capability"])
    return Machine(
        cores=len(os.sched_getaffinity(0)), driver=_driver(), python=sys.version.split()[0],
        kernel=os.uname().release, user=os.geteuid(), packages=_packages(), **told,
    )  # fmt: skip


def read(text: str) -> Machine:
    """Returns the machine that `write` wrote."""
    told = json.loads(text)
    return Machine(**{**told, "capability": tuple(told["capability"])})


def write(machine: Machine) -> str:
    return json.dumps(asdict(machine))


def _driver() -> str:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.split("\n")[0]
    except (OSError, subprocess.SubprocessError):
        return ""


def _packages() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
