"""What is rendered for DDP."""

from typing import Any

import pytest
import yaml

from fermi.jobs.spec import Late, Plan, resolve
from fermi.planning import plugins
from tests.goldens import job

ddp = plugins.get_framework("ddp")
ALL = ("env-001", "env-003", "env-005")  # 2 + 4 + 8


def config(plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(resolve(plan.files["pytorch_ddp_config.yaml"], {Late.HEAD_HOST: "gn6"}))
    return found


def test_the_document_s_file_counts_processes_and_says_which_ranks_a_node_has() -> None:
    found = config(ddp.plan(job(*ALL, emulated=False, master_port=23456)))
    assert found["distributed"] == {
        "backend": "nccl", "init_method": "tcp://gn6:23456", "world_size": 14, "nnodes": 3,
    }  # fmt: skip
    shape = [(node["name"], node["rank"], node["ranks"], node["ip"], node["gpus"]) for node in found["nodes"]]
    assert shape == [
        ("pytorch-dev-env", 0, "0-1", "192.168.1.10", [0, 1]),
        ("llm-training-env", 1, "2-5", "192.168.2.20", [0, 1, 2, 3]),
        ("nlp-research-lab", 2, "6-13", "192.168.3.30", [0, 1, 2, 3, 4, 5, 6, 7]),
    ]


@pytest.mark.parametrize("value", [True, False])
def test_options_become_arguments_of_the_recipe_and_are_in_the_file_for_other_scripts(value: bool) -> None:
    chosen = {"staticGraph": value, "findUnusedParameters": value, "gradientAsBucketView": value, "bucketCapMb": 50}
    plan = ddp.plan(job(*ALL, options=chosen))
    words = plan.nodes[0].command
    flags = {"--static_graph", "--find_unused_parameters", "--gradient_as_bucket_view"}
    assert flags & set(words) == (flags if value else set())
    assert words[words.index("--bucket_cap_mb") + 1] == "50"
    assert config(plan)["ddp"] == {
        "static_graph": value, "find_unused_parameters": value, "gradient_as_bucket_view": value, "bucket_cap_mb": 50,
    }  # fmt: skip
    assert plan.nodes[0].env["FERMI_DDP_CONFIG"] == (Late.FILES_DIR, "/pytorch_ddp_config.yaml")


def test_the_file_s_options_are_what_ddp_itself_takes() -> None:
    import inspect

    from torch.nn.parallel import DistributedDataParallel

    known = inspect.signature(DistributedDataParallel.__init__).parameters
    given = config(ddp.plan(job("env-001")))["ddp"]
    assert given.keys() <= known.keys()
    assert {name: known[name].default for name in given if name != "bucket_cap_mb"} == {
        name: value for name, value in given.items() if name != "bucket_cap_mb"
    }
