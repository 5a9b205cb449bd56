"""What a command finds that starts the ranks of its node itself."""

from dataclasses import replace

import pytest

from fermi.jobs.spec import Entrypoint, Late, Plan
from fermi.planning import plugins, validate
from tests.goldens import job

COMMAND = Entrypoint(command=("bash", "run.sh"), processes="node")
RANK_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "ROLE_RANK"}


def plan(framework: str = "ddp") -> Plan:
    spec = job("env-001", "env-003", framework=framework, entrypoint=COMMAND)
    assert validate.find_problems(spec) == []
    return plugins.get_framework(framework).plan(spec)


@pytest.mark.parametrize("framework", ["ddp", "fsdp", "deepspeed", "horovod", "jax"])
def test_the_launcher_is_not_a_rank_whatever_the_framework(framework: str) -> None:
    made = plan(framework)
    for node in made.nodes:
        assert not RANK_VARIABLES & node.env.keys()
        assert [process.env for process in node.processes] == [{}] * len(node.processes)
        assert node.command == ("bash", "run.sh")
    assert [process.rank for node in made.nodes for process in node.processes] == [*range(made.world_size)]


def test_it_knows_its_place_as_torchrun_and_shell_scripts_call_it() -> None:
    first, second = plan().nodes
    assert [first.env["NODE_RANK"], second.env["NODE_RANK"]] == ["0", "1"]
    assert {name: second.env[name] for name in ("NNODES", "NPROC_PER_NODE", "FERMI_WORLD_SIZE")} == {
        "NNODES": "2", "NPROC_PER_NODE": str(len(second.processes)),
        "FERMI_WORLD_SIZE": str(len(first.processes) + len(second.processes)),
    }  # fmt: skip
    for name in ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT"):
        assert second.env[f"PET_{name}"] == second.env[name]
    assert second.env["MASTER_ADDR"] is Late.HEAD_HOST
    assert second.env["FERMI_PYTHON"] is Late.PYTHON


def test_files_for_launchers_name_every_node() -> None:
    made = plan()
    assert made.files["hostfile"] == (
        Late.HEAD_HOST, f" slots={len(made.nodes[0].processes)}\n",
        made.nodes[1].node.address, f" slots={len(made.nodes[1].processes)}\n",
    )  # fmt: skip
    assert "machine_rank: 1\n" in str(made.files["accelerate-1.yaml"][0])
    assert "num_machines: 2\n" in str(made.files["accelerate-1.yaml"][0])


def test_a_task_that_starts_a_process_per_gpu_has_none_of_it() -> None:
    made = plugins.get_framework("ddp").plan(job("env-001", entrypoint=Entrypoint("train.py")))
    assert not [name for name in made.nodes[0].env if name.startswith("PET_")]
    assert "hostfile" not in made.files


def test_the_hostfile_has_two_names_for_two_nodes_of_one_host() -> None:
    spec = job("env-001", "env-003", entrypoint=COMMAND)
    nodes = [replace(node, ip="10.0.0.7") for node in spec.nodes]
    made = plugins.get_framework("ddp").plan(replace(spec, nodes=tuple(nodes)))
    lines = "".join("10.0.0.7" if part is Late.HEAD_HOST else str(part) for part in made.files["hostfile"]).splitlines()
    assert [line.split()[0] for line in lines] == ["10.0.0.7", nodes[1].name]


@pytest.mark.parametrize("entrypoint", [COMMAND, Entrypoint("train.py")])
def test_accelerate_is_told_that_ranks_without_gpus_train_together(entrypoint: Entrypoint) -> None:
    spec = job("env-001", "env-003", entrypoint=entrypoint)
    together = plugins.get_framework("ddp").plan(spec)
    on_gpus = plugins.get_framework("ddp").plan(
        replace(spec, nodes=tuple(replace(node, emulated=False) for node in spec.nodes))
    )
    assert [node.env.get("ACCELERATE_USE_CPU") for node in together.nodes] == ["true", "true"]
    assert [node.env.get("ACCELERATE_USE_CPU") for node in on_gpus.nodes] == [None, None]
