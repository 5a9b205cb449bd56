"""What is known of GPU types, and what a mixture of them can do together: the weakest decides.

Memory in GiB, as on the vendors' data sheets (marketing gigabytes); `bfloat16` from compute capability 8.0 (Ampere) on;
`tflops` with 16-bit inputs, float32 sums and no sparsity, of the SXM module where there is one (0 = not known). From
the data sheets of NVIDIA (half of what these say "with sparsity") and of AMD Instinct, whose types have the capability
that can as much.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

from fermi.jobs.spec import Node

Precision = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU type: memory in GiB, compute capability, dense 16-bit TFLOPS (0 = unknown)."""

    memory: int
    capability: float
    tflops: float = 0.0

    @property
    def bfloat16(self) -> bool:
        return self.capability >= 8.0


GPUS: dict[str, Gpu] = {
    "P100": Gpu(16, 6.0, 21),
    "V100": Gpu(32, 7.0, 125),
    "T4": Gpu(16, 7.5, 65),
    "A10": Gpu(24, 8.6, 125),
    "A30": Gpu(24, 8.0, 165),
    "A40": Gpu(48, 8.6, 150),
    "A800": Gpu(80, 8.0, 312),
    "A100": Gpu(80, 8.0, 312),
    "L4": Gpu(24, 8.9, 121),
    "L40": Gpu(48, 8.9, 181),
    "L40S": Gpu(48, 8.9, 362),
    "RTX3090": Gpu(24, 8.6, 71),
    "RTX4090": Gpu(24, 8.9, 165),
    "H20": Gpu(96, 9.0, 148),
    "H800": Gpu(80, 9.0, 989),
    "H100": Gpu(80, 9.0, 989),
    "H200": Gpu(141, 9.0, 989),
    "B200": Gpu(180, 10.0, 2250),
    "GB200": Gpu(186, 10.0, 2500),
    "MI250X": Gpu(128, 9.0, 383),
    "MI300X": Gpu(192, 9.0, 1307),
    "MI325X": Gpu(256, 9.0, 1307),
}
UNKNOWN_GPU = Gpu(16, 7.0)
"""Stands for a type that is not in the table: a small old GPU, because what runs on it runs on any."""

_NAME = re.compile(r"^(?:NVIDIA |Tesla |GeForce |Quadro )*((?:RTX |GTX )?[A-Z]*\d+\w*)")
_SIZE = re.compile(r"(\d+) ?G(?:i?B)?\b", re.IGNORECASE)


def is_known(name: str) -> bool:
    return any(key in _normalize_name(name) for key in GPUS)


def find_gpu(name: str) -> Gpu:
    """Return the GPU of a name such as `A100`, `NVIDIA A100-SXM4-40GB` or `Tesla V100`; a memory size in the name wins
    over the table's. An unknown name gives UNKNOWN_GPU."""
    plain = _normalize_name(name)
    known = next((GPUS[key] for key in sorted(GPUS, key=len, reverse=True) if key in plain), UNKNOWN_GPU)
    size = _SIZE.search(name)
    return replace(known, memory=int(size[1])) if size else known


def find_tflops(name: str) -> float | None:
    """Return the TFLOPS of a GPU for comparing GPUs with each other, or None for one that is not in the table."""
    return find_gpu(name).tflops or None


def _normalize_name(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "", name.upper())


def find_weakest(nodes: Iterable[Node]) -> Gpu:
    """Return the least memory and the oldest capability among `nodes`, be they of one GPU or of two. Emulated GPUs
    count as what they stand for; a node without GPUs does not count."""
    found = [find_gpu(node.gpu_type) for node in nodes if node.gpu_count]
    if not found:
        return UNKNOWN_GPU
    return Gpu(min(g.memory for g in found), min(g.capability for g in found))


def choose_precision(nodes: Iterable[Node], requested: str = "auto") -> Precision:
    """Return the data type to train with. `auto`: bfloat16 where every GPU has it, float16 if any is older, float32
    where any rank runs on a CPU."""
    if requested != "auto":
        return cast(Precision, requested)
    nodes = list(nodes)
    if not all(node.has_cuda for node in nodes):
        return "float32"
    return "bfloat16" if find_weakest(nodes).bfloat16 else "float16"


def shorten_name(name: str) -> str:
    """Return a short name: `NVIDIA A100-SXM4-80GB` → `A100`, `NVIDIA-GeForce-RTX-4090` → `RTX 4090`; an unusual name as
    it is. At most 40 characters."""
    found = _NAME.match(name.replace("-", " "))
    return (found[1] if found else name)[:40]
