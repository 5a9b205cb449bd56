"""Time from a job to everything that would be sent for it, and the same through the API."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench.table import Figure, FigureTarget
from bench.timing import measure_in_turns, measure_seconds
from fermi.frameworks.base import Framework
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from fermi.planning import plugins

GPUS = 8
SIZES = {"layers": 8, "heads": 8, "hiddenSize": 512, "sequenceLength": 1024}
"""Of a model, where a framework has no recipe to know them from."""
CONNECTION = {"data_dir": "/data", "python": "/venv/bin/python", "warm": False}


def make_job(ranks: int, framework: str = "pytorch-ddp") -> JobSpec:
    nodes = tuple(
        Node(
            f"env-{i:04}", f"gn{i:04}", ip=f"10.0.{i // 256}.{i % 256}", gpu_type="A100", gpu_count=GPUS, emulated=True
        )
        for i in range(ranks // GPUS)
    )
    hyperparameters = {"batchSize": 8, "totalSteps": 1000, "learningRate": 1e-4}
    return JobSpec(
        "task-bench", framework, nodes, nodes[0].id, hyperparameters=hyperparameters, train_data="/data/train.bin",
        valid_data="/data/val.bin", checkpoint_dir="/checkpoints",
    )  # fmt: skip


def measure() -> Iterator[Figure]:
    framework, backend = plugins.get_framework("pytorch-ddp"), plugins.get_backend("local", CONNECTION)
    per_rank = 0.0
    for ranks in (8, 512, 4096):
        spec = make_job(ranks)

        def plan(spec: JobSpec = spec) -> object:
            return framework.problems(spec), framework.plan(spec)

        def whole(spec: JobSpec = spec) -> object:
            return framework.problems(spec), backend.render(spec, framework.plan(spec)).to_json()

        took = measure_in_turns(7, plan=partial(measure_seconds, plan), whole=partial(measure_seconds, whole))
        per_rank = per_rank or took["whole"] / ranks
        yield Figure(f"plan of {ranks:,} ranks", took["plan"] * 1e3, "ms")
        yield Figure(
            f"plan and rendering of {ranks:,} ranks", took["whole"] * 1e3, "ms", per_rank * ranks * 1e3,
            "at the rate of 8", FigureTarget(50) if ranks == 512 else None,
        )  # fmt: skip

    for name in plugins.FRAMEWORKS:
        spec, framework = make_job(4096, name), plugins.get_framework(name)
        if any(problem.code == "RECIPE_NOT_OFFERED" for problem in framework.problems(spec)):
            spec = replace(spec, entrypoint=Entrypoint("train.py"), hyperparameters={**spec.hyperparameters, **SIZES})

        def planned(spec: JobSpec = spec, framework: Framework = framework) -> object:
            if found := framework.problems(spec):
                raise AssertionError(f"{spec.framework} refuses the bench's job: {found}")
            return framework.warnings(spec), framework.plan(spec)

        took = measure_in_turns(5, plan=partial(measure_seconds, planned))
        yield Figure(f"plan of 4,096 ranks, {name}", took["plan"] * 1e3, "ms", target=FigureTarget(500))
