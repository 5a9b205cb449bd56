"""Lists what differs between two runs, the likeliest cause of another result first. Pure.

    what the run computes    data 100, code 95, model 92, framework 86, batch 88, parameters 90 to 25
    what it computes with    ranks 72, GPUs 65, packages 78 to 20, CUDA 55, Python 50, variables 45 or 20, image 40,
                             driver 30
    what happened            restarts 50, seed 40, machines 15 to 10, time 8

The weights are an order and no probability: nothing here knows which difference has which effect.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_DIFFERENCES = 500
MAX_VALUE_LENGTH, MAX_LISTED_FILES, MAX_LISTED_NODES = 200, 5, 8
MIN_TIME_SHARE = 0.10
"""Shares of the time that a run held its environments count as different from so much on."""

DATA, CODE, SCRIPT, REVISION, MODEL, PARAMETER, SEED, BATCH = (
    "data", "code", "script", "revision", "model", "parameter", "seed", "batch",
)  # fmt: skip
FRAMEWORK, SETTING, RANKS, GPUS, PACKAGE, IMAGE, MACHINE, VARIABLE = (
    "framework", "setting", "ranks", "gpus", "package", "image", "machine", "variable",
)  # fmt: skip
NODES, RESTARTS, TIME = "nodes", "restarts", "time"
KINDS = (
    DATA, CODE, SCRIPT, REVISION, MODEL, PARAMETER, SEED, BATCH, FRAMEWORK, SETTING, RANKS, GPUS, PACKAGE, IMAGE,
    MACHINE, VARIABLE, NODES, RESTARTS, TIME,
)  # fmt: skip

_SEED = re.compile(r"(?:.*[._-])?(?:random_?|data_?|numpy_?|torch_?)?seed", re.IGNORECASE)
_SHAPING = re.compile(
    r"lr|.*learning_?rate.*|.*optim.*|.*batch.*|.*schedul.*|.*warm_?up.*|.*decay.*|.*momentum.*|.*beta.*|.*dropout.*"
    r"|.*loss.*|.*clip.*|.*accumul.*|.*epoch.*|.*steps?|.*hidden.*|.*layers?|.*heads?|.*dim|.*size|.*length|.*dtype.*"
    r"|.*precision.*|.*augment.*|.*model.*|.*data.*|.*vocab.*|.*init.*|.*temperature|.*alpha|.*gamma",
    re.IGNORECASE,
)
_COSMETIC = re.compile(
    r".*(?:log|output|save|checkpoint|run_?name|wandb|mlflow|tensorboard|report|verbose|eval_?every|keep_|progress|tag"
    r"|note|dir|folder|path|num_?workers|port)\w*",
    re.IGNORECASE,
)
_LIBRARIES = re.compile(
    r"torch.*|jax.*|flax|optax|tensorflow|keras|transformers|accelerate|deepspeed|megatron.*|apex|flash-attn.*|xformers"
    r"|triton|bitsandbytes|peft|trl|timm|lightning|pytorch-lightning|horovod|numpy|scipy|scikit-learn|datasets"
    r"|tokenizers|sentencepiece|webdataset|safetensors|transformer-engine.*|nvidia-.*|cupy.*"
)
_SHAPING_VARIABLE = re.compile(
    r"(?:NCCL|CUDA|CUBLAS|CUDNN|TORCH|PYTORCH|XLA|JAX|TF|OMP|MKL|PYTHON|HF|NVIDIA|NVTE|TRITON)_?.*"
)
_DOCUMENT = re.compile(r".*\.(?:md|rst|txt|gitignore|png|jpg|svg|pdf)|(?:.*/)?(?:LICENSE|README|\.git\w*|Makefile)")
_WEIGHTS = {
    DATA: 100, CODE: 95, SCRIPT: 94, MODEL: 92, BATCH: 88, FRAMEWORK: 86, SETTING: 70, RANKS: 72, GPUS: 65,
    RESTARTS: 50, SEED: 40, IMAGE: 40, REVISION: 15, NODES: 15, TIME: 8,
}  # fmt: skip
_DOCUMENT_WEIGHT, _COSMETIC_WEIGHT, _SHAPING_WEIGHT, _PARAMETER_WEIGHT = 18, 25, 90, 75
_CODES = {
    DATA: "DIFFERENCE_DATA", SCRIPT: "DIFFERENCE_SCRIPT", REVISION: "DIFFERENCE_REVISION", MODEL: "DIFFERENCE_MODEL",
    PARAMETER: "DIFFERENCE_PARAMETER", SEED: "DIFFERENCE_SEED", BATCH: "DIFFERENCE_BATCH",
    FRAMEWORK: "DIFFERENCE_FRAMEWORK", SETTING: "DIFFERENCE_SETTING", RANKS: "DIFFERENCE_RANKS",
    GPUS: "DIFFERENCE_GPUS", PACKAGE: "DIFFERENCE_PACKAGE", IMAGE: "DIFFERENCE_IMAGE",
    VARIABLE: "DIFFERENCE_VARIABLE", NODES: "DIFFERENCE_NODES", RESTARTS: "DIFFERENCE_RESTARTS",
}  # fmt: skip
_MACHINE_CODES = {
    "cuda": "DIFFERENCE_CUDA", "rocm": "DIFFERENCE_ROCM", "python": "DIFFERENCE_PYTHON", "driver": "DIFFERENCE_DRIVER",
    "cpu": "DIFFERENCE_CPU", "kernel": "DIFFERENCE_KERNEL", "cores": "DIFFERENCE_CORES",
}  # fmt: skip
_TIME_CODES = {
    "starting": "DIFFERENCE_TIME_STARTING", "training": "DIFFERENCE_TIME_TRAINING", "saving": "DIFFERENCE_TIME_SAVING",
    "lost": "DIFFERENCE_TIME_LOST", "redone": "DIFFERENCE_TIME_REDONE", "idle": "DIFFERENCE_TIME_IDLE",
    "hung": "DIFFERENCE_TIME_HUNG",
}  # fmt: skip
_MACHINE_WEIGHTS = {"cuda": 55, "rocm": 55, "python": 50, "driver": 30, "cpu": 12, "kernel": 10, "cores": 9}


@dataclass(frozen=True, slots=True)
class RunNode:
    """A node of a run. `machine`: python, cuda, rocm, driver, cpu, cores, kernel, as far as the node reported them;
    `packages`: version by name; `variables`: hash by name, empty for a secret."""

    name: str
    gpu_type: str = ""
    gpus: int = 0
    machine: Mapping[str, str] = field(default_factory=dict)
    packages: Mapping[str, str] | None = None
    variables: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run. `snapshot`: of its code; `script`: path and SHA-256 of a script that is in none;
    `commit`: of Git; `batch`: of an optimizer step over all ranks; `settings`: of the request, by the API's names;
    `images`: of its environments; `lost_steps`: steps that were made more than once; `seconds`: by part of its time
    (`fermi.scheduler.ledger.PART_NAMES`), with `queued`."""

    id: str
    name: str
    framework: str = ""
    data: str = ""
    model: str = ""
    snapshot: str = ""
    script: tuple[str, str] = ("", "")
    commit: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    batch: int | None = None
    ranks: int = 0
    images: tuple[str, ...] = ()
    nodes: tuple[RunNode, ...] = ()
    attempts: int = 0
    lost_steps: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file of the code that differs. `change`: added, removed or changed, from the left run to the right one."""

    path: str
    change: str


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that differs. `left`, `right`: as texts, empty where a run has none; `weight`: 0 to 100, see the
    module; `code`: of the text that says it, filled from `params`."""

    kind: str
    name: str
    left: str
    right: str
    weight: int
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComparisonGap:
    """What could not be compared, and why: a code with its text, and its params."""

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)


def list_differences(left: RunFacts, right: RunFacts, files: Sequence[ChangedFile] = ()) -> list[Difference]:
    """Return all differences, by weight. `files`: those that differ between the snapshots of both."""
    found = [
        *_compare_code(left, right, files),
        *_compare_one(DATA, "", left.data, right.data),
        *_compare_one(MODEL, "", left.model, right.model),
        *_compare_one(FRAMEWORK, "", left.framework, right.framework),
        *_compare_one(BATCH, "", _format_count(left.batch), _format_count(right.batch)),
        *_compare_one(RANKS, "", _format_count(left.ranks), _format_count(right.ranks)),
        *_compare_one(GPUS, "", _format_gpus(left.nodes), _format_gpus(right.nodes)),
        *_compare_one(IMAGE, "", ", ".join(left.images), ", ".join(right.images)),
        *_compare_parameters(left.parameters, right.parameters),
        *_compare_settings(left.settings, right.settings),
        *_compare_packages(left.nodes, right.nodes),
        *_compare_machines(left.nodes, right.nodes),
        *_compare_variables(left.nodes, right.nodes),
        *_compare_one(NODES, "", _list_names(left.nodes), _list_names(right.nodes)),
        *_compare_restarts(left, right),
        *_compare_time(left.seconds, right.seconds),
    ]
    return sorted(found, key=lambda one: (-one.weight, KINDS.index(one.kind), one.name))


def list_gaps(left: RunFacts, right: RunFacts) -> list[ComparisonGap]:
    """Return what could not be compared: facts that a run's nodes did not report."""
    gaps = []
    for run in (left, right):
        if not any(node.packages is not None for node in run.nodes):
            gaps.append(ComparisonGap("DIFFERENCE_PACKAGES_UNKNOWN", {"run": run.name}))
        if not run.snapshot and not run.script[1]:
            gaps.append(ComparisonGap("DIFFERENCE_CODE_UNKNOWN", {"run": run.name}))
    return gaps


def is_seed(name: str) -> bool:
    """Return whether a parameter of this name sets a seed."""
    return _SEED.fullmatch(name.rpartition(".")[2]) is not None


def are_equal(left: str, right: str) -> bool:
    """Return whether two values are the same, as numbers where both are some: 1e-3 is 0.001."""
    if left == right:
        return True
    try:
        numbers = float(left), float(right)
    except ValueError:
        return False
    return numbers[0] == numbers[1] or all(map(math.isnan, numbers))


def _differ(
    kind: str, name: str, values: Iterable[str], weight: int, code: str = "", params: Mapping[str, Any] | None = None
) -> Difference:
    left, right = values
    shown = {"left": left or "–", "right": right or "–", **({"name": name} if name else {}), **(params or {})}
    return Difference(kind, name, left, right, weight, code or _CODES[kind], shown)


def _compare_one(kind: str, name: str, left: str, right: str) -> Iterator[Difference]:
    left, right = left[:MAX_VALUE_LENGTH], right[:MAX_VALUE_LENGTH]
    if left != right:
        yield _differ(kind, name, (left, right), _WEIGHTS[kind])


def _compare_code(left: RunFacts, right: RunFacts, files: Sequence[ChangedFile]) -> Iterator[Difference]:
    if left.snapshot != right.snapshot:
        matters = not files or any(not _DOCUMENT.fullmatch(one.path) for one in files)
        listed = ", ".join(one.path for one in files[:MAX_LISTED_FILES])
        more = len(files) - MAX_LISTED_FILES
        params = {"count": len(files), "files": f"{listed}, +{more}" if more > 0 else listed or "–"}
        shown = left.snapshot[:12], right.snapshot[:12]
        code = "DIFFERENCE_CODE" if left.snapshot and right.snapshot else "DIFFERENCE_CODE_SOURCE"
        yield _differ(CODE, "", shown, _WEIGHTS[CODE] if matters else _DOCUMENT_WEIGHT, code, params)
    elif left.script[1] != right.script[1] and all((left.script[1], right.script[1])):
        name = right.script[0]
        yield _differ(SCRIPT, name, (left.script[1][:12], right.script[1][:12]), _WEIGHTS[SCRIPT])
    if left.commit and right.commit and left.commit != right.commit:
        yield _differ(REVISION, "", (left.commit[:12], right.commit[:12]), _WEIGHTS[REVISION])


def _compare_parameters(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(left.keys() | right.keys()):
        values = [run.get(name, "")[:MAX_VALUE_LENGTH] for run in (left, right)]
        if are_equal(*values):
            continue
        if is_seed(name):
            yield _differ(SEED, name, values, _WEIGHTS[SEED])
            continue
        short = name.rpartition(".")[2]
        weight = _COSMETIC_WEIGHT if _COSMETIC.fullmatch(short) else _PARAMETER_WEIGHT
        yield _differ(PARAMETER, name, values, _SHAPING_WEIGHT if _SHAPING.fullmatch(short) and weight > 25 else weight)


def _compare_settings(left: Mapping[str, str], right: Mapping[str, str]) -> Iterator[Difference]:
    for name in sorted(left.keys() | right.keys()):
        values = [run.get(name, "")[:MAX_VALUE_LENGTH] for run in (left, right)]
        if not are_equal(*values):
            yield _differ(SETTING, name, values, _WEIGHTS[SETTING])


def _merge(nodes: Iterable[RunNode], values: Iterable[Mapping[str, str] | None]) -> dict[str, dict[str, list[str]]]:
    """Return the nodes that have a value, by name and value."""
    merged: dict[str, dict[str, list[str]]] = {}
    for node, known in zip(nodes, values, strict=True):
        for name, value in (known or {}).items():
            merged.setdefault(name, {}).setdefault(value, []).append(node.name)
    return merged


def _format_values(values: Mapping[str, Sequence[str]]) -> str:
    """Return `2.3.1`, or `2.3.0 (node-b), 2.3.1` where nodes differ: those that fewer nodes have are named."""
    if len(values) < 2:
        return next(iter(values), "")
    common = max(values, key=lambda value: (len(values[value]), value))
    parts = [value if value == common else f"{value} ({_join(values[value])})" for value in sorted(values)]
    return ", ".join(parts)[:MAX_VALUE_LENGTH]


def _join(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED_NODES
    return ", ".join(names[:MAX_LISTED_NODES]) + (f", +{more}" if more > 0 else "")


def _compare_packages(left: Sequence[RunNode], right: Sequence[RunNode]) -> Iterator[Difference]:
    if not all(any(node.packages is not None for node in run) for run in (left, right)):
        return
    merged = [_merge(run, (node.packages for node in run)) for run in (left, right)]
    for name in sorted(merged[0].keys() | merged[1].keys()):
        versions = [run.get(name, {}) for run in merged]
        if versions[0].keys() == versions[1].keys():
            continue
        shown = [_format_values(one) for one in versions]
        yield _differ(PACKAGE, name, shown, _weigh_package(name, *versions))


def _weigh_package(name: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> int:
    """Return the weight: more for what computes, and for a jump of the version's first or second number."""
    base = 45 if _LIBRARIES.fullmatch(name) else 20
    if not left or not right:
        return base + 5
    numbers = [{tuple(re.findall(r"\d+", version)[:2]) for version in run} for run in (left, right)]
    majors = [{one[:1] for one in run} for run in numbers]
    return base + (33 if majors[0] != majors[1] else 20 if numbers[0] != numbers[1] else 5)


def _compare_machines(left: Sequence[RunNode], right: Sequence[RunNode]) -> Iterator[Difference]:
    merged = [_merge(run, (node.machine for node in run)) for run in (left, right)]
    for name, weight in _MACHINE_WEIGHTS.items():
        values = [run.get(name, {}) for run in merged]
        if all(values) and values[0].keys() != values[1].keys():
            yield _differ(MACHINE, name, map(_format_values, values), weight, _MACHINE_CODES[name])


def _compare_variables(left: Sequence[RunNode], right: Sequence[RunNode]) -> Iterator[Difference]:
    """Compare variables by hashes. Of two secrets it is not known whether they differ."""
    if not all(any(node.variables is not None for node in run) for run in (left, right)):
        return
    merged = [_merge(run, (node.variables for node in run)) for run in (left, right)]
    for name in sorted(merged[0].keys() | merged[1].keys()):
        values = [run.get(name, {}).keys() for run in merged]
        if values[0] == values[1] or (all(values) and any("" in one for one in values)):
            continue
        weight = 45 if _SHAPING_VARIABLE.fullmatch(name) else 20
        if all(values):
            yield _differ(VARIABLE, name, ("", ""), weight)
        else:
            code = "DIFFERENCE_VARIABLE_LEFT" if values[0] else "DIFFERENCE_VARIABLE_RIGHT"
            yield _differ(VARIABLE, name, ("", ""), weight, code)


def _compare_restarts(left: RunFacts, right: RunFacts) -> Iterator[Difference]:
    restarts = [max(0, run.attempts - 1) for run in (left, right)]
    if restarts[0] == restarts[1] and left.lost_steps == right.lost_steps:
        return
    weight = _WEIGHTS[RESTARTS] if restarts[0] != restarts[1] else _WEIGHTS[RESTARTS] // 2
    lost = {"leftSteps": left.lost_steps, "rightSteps": right.lost_steps}
    yield _differ(RESTARTS, "", map(str, restarts), weight, params=lost)


def _compare_time(left: Mapping[str, float], right: Mapping[str, float]) -> Iterator[Difference]:
    """Compare the shares of what the runs held; waiting in the queue in minutes is no share of it."""
    totals = [sum(seconds for part, seconds in run.items() if part != "queued") for run in (left, right)]
    if not all(total > 0 for total in totals):
        return
    for part in _TIME_CODES:
        shares = [run.get(part, 0.0) / total for run, total in zip((left, right), totals, strict=True)]
        if abs(shares[0] - shares[1]) >= MIN_TIME_SHARE:
            shown = (f"{share:.0%}" for share in shares)
            yield _differ(TIME, part, shown, _WEIGHTS[TIME], _TIME_CODES[part])


def _format_count(count: int | None) -> str:
    return str(count) if count else ""


def _format_gpus(nodes: Iterable[RunNode]) -> str:
    counts: dict[str, int] = {}
    for node in nodes:
        if node.gpus:
            counts[node.gpu_type or "GPU"] = counts.get(node.gpu_type or "GPU", 0) + node.gpus
    return ", ".join(f"{count} × {kind}" for kind, count in sorted(counts.items()))


def _list_names(nodes: Iterable[RunNode]) -> str:
    return _join(sorted(node.name for node in nodes))
