"""The document's use cases: what each asks for is what the platform would run."""

from dataclasses import replace
from typing import Any

import pytest

from fermi.jobs import json_shape, recipes
from fermi.jobs.spec import Node
from fermi.messages.languages import LANGUAGES
from fermi.planning import scenarios, validate
from fermi.planning.plugins import get_framework
from fermi.planning.request import TaskRequest, build_job
from fermi.planning.templates import load_templates


def nodes(*gpus: int, gpu_type: str = "A100-SXM4-80GB", emulated: bool = False) -> list[Node]:
    return [
        Node(f"env-{n}", f"node-{n}", ip=f"192.168.1.{n}", zone="北京可用区A", gpu_type=gpu_type, gpu_count=count,
             cpu_cores=count * 8, memory_gb=count * 64, emulated=emulated)
        for n, count in enumerate(gpus)
    ]  # fmt: skip


def spec(request: dict[str, Any], there: list[Node]) -> Any:
    asked, wrong = json_shape.read_object(TaskRequest, request)
    assert wrong == []
    return build_job(asked, task_id="t", framework=asked.distributed.framework, nodes=there, master=there[0].id,
               master_port=29500, checkpoint_dir="", resume_from="")  # fmt: skip


@pytest.mark.parametrize(
    ("name", "gpus", "parameters"),
    [("llama2-7b", [2], 7e9), ("bert-large", [2, 2], 340e6), ("gpt3-175b", [8] * 8, 175e9)],
)
def test_a_use_case_has_the_documents_nodes_and_size_and_is_valid(
    name: str, gpus: list[int], parameters: float
) -> None:
    template = load_templates()[name]
    chosen, missing = template.full.choose(nodes(*gpus, 4))
    assert ([node.gpu_count for node in chosen], missing) == (gpus, [])
    made = spec(template.full.request(name, chosen), chosen)
    assert validate.find_problems(made) == []
    assert recipes.count_gpt_parameters(made.hyperparameters) == pytest.approx(parameters, rel=0.1)
    assert get_framework(made.framework).plan(made).world_size == sum(gpus)
    small, missing = template.small.choose(nodes(*gpus, 2, emulated=True, gpu_type="V100"))
    if len(small) == template.small.nodes:
        assert validate.find_problems(spec(template.small.request(name, small), small)) == []


def test_gpt3_is_split_as_in_the_document() -> None:
    full = load_templates()["gpt3-175b"].full
    assert full.strategy == {"tensorParallel": 8, "pipelineParallel": 4, "dataParallel": 2}


def test_missing_environments_are_named_and_available_ones_chosen() -> None:
    bert = load_templates()["bert-large"].full
    near = [*nodes(2), *nodes(2, gpu_type="V100")[:1]]
    near[1] = replace(near[1], id="env-v", name="node-v")
    chosen, missing = bert.choose(near)
    assert [node.id for node in chosen] == ["env-0", "env-v"]
    assert [one.code for one in missing] == ["TEMPLATE_OTHER_GPUS"]
    far = [near[0], replace(near[0], id="env-far", zone="深圳可用区C")]
    assert [one.code for one in bert.choose(far)[1]] == ["TEMPLATE_ZONES_DIFFER"]
    chosen, missing = load_templates()["gpt3-175b"].full.choose(nodes(8, 4))
    assert (len(chosen), missing[0].code, missing[0].params["lacks"]) == (1, "TEMPLATE_LACKS_NODES", 7)
    assert bert.choose([])[1][0].params["lacks"] == 2


@pytest.mark.parametrize("lang", LANGUAGES)
def test_use_cases_are_described_in_each_language(lang: str) -> None:
    for template in load_templates().values():
        said = template.localize(lang)
        assert set(said) == {"title", "need", "setting", "advantages", "notes"}
        assert all(said.values())


@pytest.mark.parametrize(
    ("count", "gpus", "code"),
    [
        (1, 1, "SCENE_SMALL"), (1, 2, "SCENE_SMALL"), (1, 4, "SCENE_MEDIUM"), (1, 8, "SCENE_MEDIUM"),
        (2, 8, "SCENE_LARGE"), (3, 14, "SCENE_LARGE"), (4, 32, "SCENE_HUGE"), (8, 64, "SCENE_GPT"),
        (1, 3, "SCENE_SMALL"), (2, 4, "SCENE_LARGE"), (16, 40, "SCENE_HUGE"), (1, 64, "SCENE_MEDIUM"),
    ],
)  # fmt: skip
def test_every_number_of_nodes_has_its_row_of_the_documents_table(count: int, gpus: int, code: str) -> None:
    assert scenarios.list_fitting_scenarios(count, gpus)[-1].code == code
