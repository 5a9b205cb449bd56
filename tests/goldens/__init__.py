"""Whole plans and previews, kept as files and compared whole: `python -m tests.goldens` writes them anew.

Look at the difference before committing it: these files are what users see and what engines are sent.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from fermi import export
from fermi.engines.environments import EnvironmentPort, EnvironmentSpec
from fermi.engines.kubernetes import environment_objects
from fermi.jobs.spec import Entrypoint, JobSpec, Node, Rendered
from fermi.planning import plugins

HERE = Path(__file__).parent

ENVIRONMENTS = {
    "env-001": Node("env-001", "pytorch-dev-env", ip="192.168.1.10", zone="北京可用区A", gpu_type="A100", gpu_count=2,
                    emulated=True, cpu_cores=16, memory_gb=128),
    "env-002": Node("env-002", "cv-experiment-env", ip="192.168.1.11", zone="北京可用区A", gpu_type="V100", gpu_count=2,
                    emulated=True, cpu_cores=16, memory_gb=128),
    "env-003": Node("env-003", "llm-training-env", ip="192.168.2.20", zone="深圳可用区C", gpu_type="A100", gpu_count=4,
                    emulated=True, cpu_cores=32, memory_gb=256),
    "env-005": Node("env-005", "nlp-research-lab", ip="192.168.3.30", zone="上海可用区A", gpu_type="A100", gpu_count=8,
                    emulated=True, cpu_cores=64, memory_gb=512),
}  # fmt: skip


def job(*environments: str, framework: str = "pytorch-ddp", emulated: bool = True, **changes: Any) -> JobSpec:
    """A job over the document's environments, the first of them the master; `network`: facts of some, by their ids."""
    known = changes.pop("network", {})
    values = {
        "hyperparameters": {"batchSize": 8, "totalSteps": 1000, "learningRate": 1e-4},
        "train_data": "/data/train.bin",
        "valid_data": "/data/val.bin",
        "checkpoint_dir": "/checkpoints/task-golden",
        "attempt": 1,
        **changes,
    }
    nodes = tuple(replace(ENVIRONMENTS[key], emulated=emulated, network=known.get(key, {})) for key in environments)
    return JobSpec("task-golden", framework, nodes, environments[0], **values)


def gpt3(**changes: Any) -> JobSpec:
    """The document's GPT-3 with 175B parameters: eight nodes of eight A100 with 80 GB, Megatron-LM's own script."""
    nodes = tuple(
        Node(f"env-{n}", f"gpt3-node-{n}", ip=f"192.168.9.{n}", zone="北京可用区A", gpu_type="A100-SXM4-80GB",
             gpu_count=8, cpu_cores=128, memory_gb=2048)
        for n in range(1, 9)
    )  # fmt: skip
    values = {
        "entrypoint": Entrypoint("pretrain_gpt.py", ("--data-path", "/data/pile_text_document", "--tokenizer-type",
                                                     "GPT2BPETokenizer", "--vocab-file", "/data/gpt2-vocab.json",
                                                     "--merge-file", "/data/gpt2-merges.txt")),
        "hyperparameters": {"layers": 96, "hiddenSize": 12288, "heads": 96, "sequenceLength": 2048,
                            "totalSteps": 500_000, "learningRate": 6e-5, "weightDecay": 0.1},
        "strategy": {"tensorParallel": 8, "pipelineParallel": 4, "dataParallel": 2},
        "options": {"globalBatchSize": 1536, "microBatchSize": 1},
        "checkpoint_dir": "/checkpoints/task-golden",
        "attempt": 1,
    }  # fmt: skip
    framework = changes.pop("framework", "megatron-lm")
    return JobSpec("task-golden", framework, nodes, "env-1", **{**values, **changes})


def rendered(spec: JobSpec) -> dict[str, Any]:
    """What the local engine would be sent for it."""
    connection = {"data_dir": "/fermi", "python": "/venv/bin/python", "warm": False}
    plan = plugins.get_framework(spec.framework).plan(spec)
    return plugins.get_backend("local", connection).render(spec, plan).to_json()


def on_kubernetes(spec: JobSpec, **connection: Any) -> dict[str, Any]:
    """What a cluster would be sent for it. Our own modules, which change for other reasons, are named and left out."""
    nodes = tuple(replace(node, image="training:2.4", engine={"node": f"gpu-{node.id}"}) for node in spec.nodes)
    spec = replace(spec, nodes=nodes, project="research")
    volume = {"persistentVolumeClaim": {"claimName": "fermi"}}
    spec = replace(
        spec, train_data="/fermi/datasets/version-7/train.bin", valid_data="/fermi/datasets/version-7/valid.bin",
        checkpoint_dir="/fermi/checkpoints/task-golden",
    )  # fmt: skip
    backend = plugins.get_backend("kubernetes", {"data_dir": "/fermi", "data": {"volume": volume}, **connection})
    found = backend.render(spec, plugins.get_framework(spec.framework).plan(spec)).to_json()
    return _without_modules(found)


def by_hand(spec: JobSpec, target: str) -> dict[str, str]:
    """The folder that people start it from, without our own modules."""
    files = export.render_files(spec, target, "en")
    return {path: text for path, text in files.items() if not path.startswith("lib/")}


def pinned(spec: JobSpec) -> JobSpec:
    """With environments that are nodes of a Slurm cluster."""
    return replace(spec, nodes=tuple(replace(node, engine={"node": f"gpu-{node.id}"}) for node in spec.nodes))


def on_slurm(spec: JobSpec, **connection: Any) -> dict[str, Any]:
    backend = plugins.get_backend("slurm", {"folder": "/shared/fermi", "partition": "gpu", **connection})
    return backend.render(spec, plugins.get_framework(spec.framework).plan(spec)).to_json()


def environment_on_kubernetes() -> dict[str, Any]:
    """Without the keeper's own modules."""
    spec = EnvironmentSpec(
        "env-golden", "notes", "project-one", 3, "jupyter", "pytorch:2.13", gpu_type="A100", gpu_count=2, cpu_cores=8,
        memory_gb=64, shared_memory_gb=16, disk_gb=100, zone="zone-a", ports=(EnvironmentPort("tensorboard", 6006),),
        env={"WANDB_MODE": "offline"}, secret_env={"HF_TOKEN": "hub"},
    )  # fmt: skip
    options = {"deviceClass": "gpu.nvidia.com", "gpuProducts": {"A100": "NVIDIA-A100-SXM4-80GB"}}
    rendered = environment_objects.render(spec, {"namespace": "fermi", "environments": options}).to_json()
    return _without_modules(rendered)


def _without_modules(rendered: dict[str, Any]) -> dict[str, Any]:
    """What was rendered for a cluster, without the texts, the names and the hash of our own modules."""
    made = next(one["content"] for one in rendered["artifacts"] if one["content"].get("immutable"))
    content = made["metadata"]["labels"]["fermi.io/modules"]
    made["data"] = {}
    shown = json.loads(json.dumps(rendered).replace(content, "0123456789abcdef"))
    for one in _volumes(shown):
        modules = one["projected"]["sources"][1]["configMap"]
        modules["items"] = [item for item in modules["items"] if not item["key"].startswith("fermi__")]
    found: dict[str, Any] = shown
    return found


def _volumes(within: Any) -> Iterator[dict[str, Any]]:
    """Those that are projected, however deep."""
    if isinstance(within, list):
        for one in within:
            yield from _volumes(one)
    elif isinstance(within, dict):
        if "projected" in within:
            yield within
        for one in within.values():
            yield from _volumes(one)


ENGINES: dict[str, dict[str, Any]] = {
    "local": {"data_dir": "/fermi", "python": "/venv/bin/python"},
    "kubernetes": {"data_dir": "/fermi", "data": {"volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}}},
    "slurm": {"folder": "/shared/fermi"},
}


def with_images(spec: JobSpec) -> JobSpec:
    """With environments that pods can be made of."""
    return replace(spec, nodes=tuple(replace(node, image="training:1") for node in spec.nodes))


def on_engine(spec: JobSpec, engine: str) -> Rendered:
    """What each engine would be sent for it, with a connection that it takes."""
    spec = with_images(pinned(spec) if engine == "slurm" else spec)
    plan = plugins.get_framework(spec.framework).plan(spec)
    return plugins.get_backend(engine, ENGINES.get(engine, {"data_dir": "/fermi"})).render(spec, plan)


GOLDENS: dict[str, Callable[[], Any]] = {
    "ddp-1-node": lambda: rendered(job("env-001")),
    "ddp-2-2-mixed-gpus-on-cuda": lambda: rendered(job("env-002", "env-001", emulated=False)),
    "ddp-2-4-8": lambda: rendered(job("env-001", "env-003", "env-005")),
    "by-hand-shell-2-4": lambda: by_hand(job("env-001", "env-003"), "shell"),
    "by-hand-torchrun-2-2-on-cuda": lambda: by_hand(job("env-001", "env-002", emulated=False), "torchrun"),
    "by-hand-compose-2-4-jax": lambda: by_hand(job("env-001", "env-003", framework="jax", emulated=False), "compose"),
    "ddp-2-4-infiniband-on-cuda": lambda: rendered(
        job(
            "env-001", "env-003", emulated=False, options={"timeoutSeconds": 90}, env={"NCCL_DEBUG": "INFO"},
            network={
                "env-001": {"interface": "eth0", "infiniband": ["mlx5_0"]},
                "env-003": {"interface": "bond1", "infiniband": ["mlx5_0:1", "mlx5_2:1"]},
            },
        )
    ),
    "ddp-options-and-env": lambda: rendered(
        job("env-003", options={"staticGraph": True, "bucketCapMb": 50}, env={"NCCL_DEBUG": "INFO"}, master_port=29600)
    ),
    "kubernetes-ddp-2-4-8": lambda: on_kubernetes(job("env-001", "env-003", "env-005")),
    "kubernetes-jax-2-4-8-on-cuda": lambda: on_kubernetes(
        job("env-001", "env-003", "env-005", framework="jax", emulated=False)
    ),
    "kubernetes-jobset-queue-2-4-8": lambda: on_kubernetes(
        job("env-001", "env-003", "env-005", emulated=False), jobset=True, queue="gpus"
    ),
    "kubernetes-environment-on-a-claim": environment_on_kubernetes,
    "slurm-ddp-2-4-8-on-cuda": lambda: on_slurm(
        pinned(job("env-001", "env-003", "env-005", emulated=False)),
        account="ml", qos="high", time_limit="2-00:00:00", modules=["cuda/12.4"], conda="torch",
    ),
    "slurm-jax-2-2-anywhere": lambda: on_slurm(job("env-001", "env-002", framework="jax")),
    "slurm-ddp-pyxis-on-cuda": lambda: on_slurm(
        pinned(job("env-002", "env-001", emulated=False)),
        container={"runtime": "pyxis", "image": "nvcr.io#nvidia/pytorch:24.10-py3", "mounts": ["/datasets"]},
    ),
    "fsdp-1-node": lambda: rendered(job("env-003", framework="pytorch-fsdp")),
    "fsdp-2-2-full-mixed-gpus-on-cuda": lambda: rendered(
        job(
            "env-002",
            "env-001",
            framework="pytorch-fsdp",
            emulated=False,
            options={"cpuOffload": True, "activationCheckpointing": True, "reshardAfterForward": False},
        )
    ),
    "fsdp-2-4-8": lambda: rendered(job("env-001", "env-003", "env-005", framework="pytorch-fsdp")),
    "horovod-2-4-8": lambda: rendered(job("env-001", "env-003", "env-005", framework="horovod")),
    "horovod-options-on-cuda": lambda: rendered(
        job(
            "env-003", "env-001", framework="horovod", emulated=False,
            options={"compression": "fp16", "fusionThresholdMb": 64, "timeline": True, "hosts": "gn6:4,gn7:2"},
        )
    ),
    "megatron-gpt3-175b": lambda: rendered(gpt3()),
    "megatron-deepspeed-gpt3-175b": lambda: rendered(gpt3(framework="megatron-deepspeed")),
    "megatron-deepspeed-zero-3": lambda: rendered(
        gpt3(
            framework="megatron-deepspeed", strategy={"tensorParallel": 8, "pipelineParallel": 1},
            options={"globalBatchSize": 512, "zeroStage": 3, "config": {"zero_optimization": {"overlap_comm": True}}},
        )
    ),
    "megatron-2-4-8-proposed": lambda: rendered(
        job("env-001", "env-003", "env-005", framework="megatron-lm", emulated=False)
    ),
    "megatron-split": lambda: rendered(
        job(
            "env-003", framework="megatron-lm", emulated=False,
            hyperparameters={"layers": 4, "totalSteps": 1000, "learningRateScaling": "sqrt"},
            strategy={"tensorParallel": 2, "pipelineParallel": 2, "virtualPipeline": 2},
            options={"globalBatchSize": 32, "microBatchSize": 4, "recompute": "full", "precision": "float16"},
        )
    ),
    "jax-2-4-8": lambda: rendered(job("env-001", "env-003", "env-005", framework="jax")),
    "jax-2-2-in-shards": lambda: rendered(
        job(
            "env-001", "env-002", framework="jax", emulated=False, env={"JAX_PLATFORM_NAME": "gpu"},
            strategy={"fsdpParallel": 2}, options={"remat": True, "prefetch": 4, "batchIsGlobal": True},
        )
    ),
    "jax-4-on-cuda": lambda: rendered(
        job("env-003", framework="jax", emulated=False, options={"preallocate": True, "memoryFraction": 0.8})
    ),
    "deepspeed-2-4-8": lambda: rendered(
        job(
            "env-001", "env-003", "env-005", framework="deepspeed", hyperparameters={},
            strategy={"dataParallel": 2, "pipelineParallel": 4, "tensorParallel": 8},
        )
    ),
    "deepspeed-2-2-mixed-gpus-on-cuda": lambda: rendered(
        job("env-002", "env-001", framework="deepspeed", emulated=False, options={"trainBatchSize": 64})
    ),
    "deepspeed-tensor-2-on-cuda": lambda: rendered(
        job("env-003", framework="deepspeed", emulated=False, strategy={"tensorParallel": 2})
    ),
    "deepspeed-tensor-2-pipeline-2-data-2": lambda: rendered(
        job(
            "env-005", framework="deepspeed", hyperparameters={"layers": 4},
            strategy={"tensorParallel": 2, "pipelineParallel": 2},
        )
    ),
    "deepspeed-options": lambda: rendered(
        job(
            "env-003", framework="deepspeed", emulated=False,
            options={
                "zeroStage": 3, "trainBatchSize": 64, "gradientAccumulationSteps": 4, "offloadParameters": "cpu",
                "scheduler": "WarmupCosineLR", "compiledKernels": True,
                "config": {"bf16": {"check_grad_overflow": False}, "zero_optimization": {"overlap_comm": True}},
            },
        )
    ),
}  # fmt: skip


def text(name: str) -> str:
    return json.dumps(GOLDENS[name](), indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def write() -> None:
    for name in GOLDENS:
        (HERE / f"{name}.json").write_text(text(name))
