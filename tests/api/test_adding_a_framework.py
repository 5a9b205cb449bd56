"""docs/adding-a-framework.md is true: its example, one file and one line, is offered, checked, previewed, recommended,
rendered for every engine and by hand, and trains."""

import json
import re
import sys
from collections.abc import Iterator
from importlib import invalidate_caches
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.training.core.engine_access import get_backend
from fermi import export
from fermi.jobs.spec import Entrypoint, JobSpec, Node, Phase
from fermi.planning import plugins, validate
from fermi.planning.recommend import recommend_frameworks
from tests import goldens
from tests.api.conftest import Api
from tests.api.test_tasks_create import changed
from tests.contract.conftest import Engine
from tests.platform_process import free_port

NAME = "local-sgd"
SCRIPT = """
    import json, os
    import torch, torch.distributed as dist
    every = json.load(open(os.environ["LOCAL_SGD_CONFIG"]))["average_every"]
    dist.init_process_group("gloo")
    weight = torch.zeros(1)
    for step in range(1, 2 * every + 1):
        weight += dist.get_rank()
        if step % every == 0:
            dist.all_reduce(weight)
            weight /= dist.get_world_size()
            print(json.dumps({"step": step, "weight": weight.item()}), flush=True)
    dist.destroy_process_group()
"""


@pytest.fixture
def added(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example, as the page prints it, in a folder that is not ours; and its line in the registry."""
    page = (root / "docs" / "adding-a-framework.md").read_text()
    [module] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "local_sgd_outside.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path / "outside"))
    invalidate_caches()
    monkeypatch.setitem(plugins.FRAMEWORKS, NAME, "local_sgd_outside")
    yield
    sys.modules.pop("local_sgd_outside", None)


OWN_SCRIPT = goldens.job("env-001", "env-003", framework=NAME, entrypoint=Entrypoint("train.py"))


def request(**options: Any) -> dict[str, Any]:
    return changed(
        distributedConfig__framework=NAME,
        distributedConfig__strategy={},
        distributedConfig__options=options,
        entrypoint={"script": "train.py"},
        hyperparameters={},
    )


@pytest.mark.usefixtures("added", "environments", "dataset", "model")
def test_the_api_offers_checks_and_previews_it(colleague: Api, cluster: Cluster) -> None:
    workspace = get_backend(cluster).workspace
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "train.py").touch()
    [offered] = [item for item in colleague.get("/frameworks").data["items"] if item["value"] == NAME]
    assert offered["label"] == "Local SGD"
    assert offered["options"]["properties"]["averageEvery"]["minimum"] == 1
    assert offered["options"]["properties"]["averageEvery"]["title"] == "Steps between averages"

    refused = colleague.post("/training-tasks", request(averageEvery=0))
    assert refused.problems == {"distributedConfig.options.averageEvery": "OPTION_INVALID"}
    without = {**request(), "entrypoint": None}
    assert colleague.post("/training-tasks", without).problems == {"entrypoint.script": "RECIPE_NOT_OFFERED"}

    preview = colleague.post("/training-tasks/preview", request()).data
    assert preview["problems"] == []
    assert {file["name"]: json.loads(file["content"]) for file in preview["files"]} == {
        "local_sgd.json": {"average_every": 16}
    }
    assert [rank["rank"] for rank in preview["ranks"]] == list(range(14))
    created = colleague.post("/training-tasks", request(averageEvery=2)).data
    assert created["distributedInfo"]["framework"] == NAME


@pytest.mark.usefixtures("added")
def test_it_is_recommended_for_suitable_models_and_rejected_with_a_reason_for_others() -> None:
    node = Node("env-0", "n0", gpu_type="A100", gpu_count=4)

    def reasons(parameters: int, **changes: Any) -> list[str]:
        job = JobSpec("task-seventh", "", (node,), "env-0", model_parameters=parameters, **changes)
        good, bad = recommend_frameworks(job)
        assert next(iter(good)).framework != NAME, "what the project brings itself goes before, where both suit alike"
        return next([reason.code for reason in one.reasons] for one in [*good, *bad] if one.framework == NAME)

    own = Entrypoint("train.py")
    assert reasons(10**8, entrypoint=own) == ["RECOMMENDED_BY_SIZE"]
    assert reasons(10**8) == ["RECIPE_NOT_OFFERED"]
    assert reasons(2 * 10**10, entrypoint=own) == ["REJECTED_BY_SIZE", "REJECTED_BY_MEMORY"]


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("target", export.TARGETS)
def test_it_is_exported_for_every_target(target: str) -> None:
    job = goldens.with_images(OWN_SCRIPT)
    assert export.find_problems(job, target) == []
    files = export.render_files(job, target, "en")
    assert NAME in files["README.md"]
    assert any("average_every" in text for text in files.values())


@pytest.mark.usefixtures("added")
@pytest.mark.parametrize("engine", plugins.BACKENDS)
def test_it_is_rendered_for_every_engine(engine: str) -> None:
    rendered = goldens.on_engine(OWN_SCRIPT, engine)
    assert "LOCAL_SGD_CONFIG" in json.dumps(rendered.to_json())


@pytest.mark.usefixtures("added")
def test_it_trains_on_uneven_nodes(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(dedent(SCRIPT))
    connection = {"data_dir": str(tmp_path / "data"), "warm": False, "workspace": str(tmp_path)}
    engine = Engine(plugins.get_backend("local", connection), tmp_path)
    nodes = tuple(Node(f"env-{i}", f"n{i}", gpu_type="A100", gpu_count=n, emulated=True) for i, n in enumerate((1, 2)))
    job = JobSpec("task-seventh", NAME, nodes, "env-0", entrypoint=Entrypoint(str(script)), attempt=1,
                  master_port=free_port(), options={"averageEvery": 3})  # fmt: skip
    assert validate.find_problems(job) == engine.backend.problems(job) == []
    try:
        handle = engine.submit(job)
        assert engine.until(handle, Phase.SUCCEEDED, Phase.FAILED).phase is Phase.SUCCEEDED, engine.log(handle, 0)
        weights = [json.loads(line)["weight"] for line in engine.log(handle, 2).splitlines() if line.startswith("{")]
        assert weights == [
            3.0,
            6.0,
        ]  # each step adds 0, 1 and 2 on ranks 0, 1 and 2: one on average
    finally:
        engine.close()
