import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import click
import pytest

from fermi.cli import fields, input_files
from fermi.cli.name_resolution import NameResolver
from fermi.cli.request import RequestFlags, build_request, make_entrypoint
from fermi.client import Fermi
from tests.fakes.api import FakeApi, page
from tests.unit.cli.api_responses import dataset, environment, model, version

ENVIRONMENTS = [environment(1, "pytorch-dev-env"), environment(3, "llm-training-env"), environment(5, "twin")]


@pytest.fixture
def names(api: FakeApi) -> NameResolver:
    api.on("GET", "/dev-environments", page([*ENVIRONMENTS, environment(6, "twin")]))
    api.on("GET", "/datasets", page([dataset(1, "stdlib", version(1), version(2), version(3, "preparing"))]))
    api.on("GET", "/models", page([model(1, "tiny-gpt")]))
    return NameResolver(Fermi())


OWN = {field.name for field in dataclasses.fields(RequestFlags)}
FIELDS = {"name": "taskName", "env": "env"} | {
    re.sub("[A-Z]", lambda capital: f"_{capital[0].lower()}", field.name): field.name for field in fields.list_fields()
}


def words(table: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={entry if isinstance(entry, str) else json.dumps(entry)}" for key, entry in table.items())


def built(names: NameResolver, file: dict[str, Any] | None = None, **flags: Any) -> dict[str, Any]:
    """A table's flag is given as KEY=VALUE, once for each."""
    own = {name: flags.pop(name) for name in OWN & flags.keys()}
    given = {FIELDS[name]: words(value) if isinstance(value, dict) else value for name, value in flags.items()}
    return build_request(file or {}, RequestFlags(**own, fields=given), names)


def test_one_environment_needs_no_distributed_configuration(names: NameResolver) -> None:
    request = built(names, name="first", environments=("env-001",))
    assert request == {
        "launchMode": "existing",
        "taskName": "first",
        "environmentIds": ["env-001"],
        "datasetId": "dataset-001",
        "datasetVersionId": "version-002",
        "modelId": "model-001",
    }


def test_several_environments_are_distributed_and_the_first_is_the_master(
    names: NameResolver, capsys: pytest.CaptureFixture[str]
) -> None:
    request = built(names, environments=("llm-training-env", "env-001"))
    assert request["distributedConfig"] == {
        "enabled": True, "nodeIds": ["env-003", "env-001"], "masterNode": "env-003",
    }  # fmt: skip
    assert "environmentIds" not in request
    assert "env-003" in capsys.readouterr().err


def test_spares_are_named_like_environments_and_flags_override(names: NameResolver) -> None:
    file = {"spareEnvironmentIds": ["pytorch-dev-env"]}
    assert built(names, file, environments=("env-006",))["spareEnvironmentIds"] == ["env-001"]
    assert built(names, file, spares=("llm-training-env", "env-005"))["spareEnvironmentIds"] == ["env-003", "env-005"]


def test_secret_variables_extend_those_of_the_file(names):
    file = {"secretEnv": {"A": "one", "B": "two"}}
    assert built(names, file, secret_env={"B": "three"})["secretEnv"] == {"A": "one", "B": "three"}
    assert "secretEnv" not in built(names, {})


def test_run_location_and_interpreter_are_flags(names: NameResolver) -> None:
    request = built(names, environments=("env-001",), run_in="environment", python="/opt/conda/bin/python")
    config = request["distributedConfig"]
    assert (config["runIn"], config["python"]) == ("environment", "/opt/conda/bin/python")


def test_one_environment_with_a_framework_is_distributed(names: NameResolver) -> None:
    request = built(names, environments=("pytorch-dev-env",), framework="ddp", strategy={"dataParallel": 2})
    assert request["distributedConfig"] == {
        "enabled": True, "framework": "ddp", "strategy": {"dataParallel": 2},
        "nodeIds": ["env-001"], "masterNode": "env-001",
    }  # fmt: skip


def test_a_selection_in_one_word_replaces_environments(names: NameResolver) -> None:
    request = built(
        names,
        {"distributedConfig": {"select": {"nodes": 2, "sameZone": True}}},
        select=("nodes=3,gpusPerNode=4,gpuTypes=A100,gpuTypes=H100", "labels.rack=1,exclude=llm-training-env"),
        preemptible=True,
    )
    assert request["distributedConfig"] == {
        "enabled": True,
        "select": {"nodes": 3, "sameZone": True, "gpusPerNode": 4, "gpuTypes": ["A100", "H100"],
                   "labels": {"rack": "1"}, "exclude": ["env-003"]},
    }  # fmt: skip
    assert request["preemptible"] is True
    assert "environmentIds" not in request
    asked = built(names, select=('gpuTypes=["A100","H100"],totalGpus=14',))
    assert asked["distributedConfig"]["select"] == {"gpuTypes": ["A100", "H100"], "totalGpus": 14}
    assert "preemptible" not in asked


def test_flags_override_the_file_and_extend_its_tables(names: NameResolver) -> None:
    file = {
        "taskName": "from file",
        "maxRestarts": 1,
        "environmentIds": ["env-001"],
        "hyperparameters": {"batchSize": 4, "dtype": "auto"},
        "distributedConfig": {"nodeIds": ["env-001", "env-003"], "masterNode": "env-003", "strategy": {"a": 1, "b": 1}},
    }
    request = built(
        names, file, name="from flag", hyperparameters={"batchSize": 8}, env={"A": "1"}, max_restarts=0,
        strategy={"b": 2}, master="pytorch-dev-env",
    )  # fmt: skip
    assert (request["taskName"], request["maxRestarts"], request["env"]) == ("from flag", 0, {"A": "1"})
    assert request["hyperparameters"] == {"batchSize": 8, "dtype": "auto"}
    assert request["distributedConfig"]["strategy"] == {"a": 1, "b": 2}
    assert request["distributedConfig"]["masterNode"] == "env-001"
    assert file["hyperparameters"] == {"batchSize": 4, "dtype": "auto"}


def test_values_of_the_file_without_a_flag_stay(names: NameResolver) -> None:
    file = {"taskName": "t", "datasetId": "stdlib", "datasetVersionId": "v1", "modelId": "tiny-gpt", "somethingNew": 1}
    request = built(names, file)
    assert request == {
        "launchMode": "existing", "taskName": "t", "datasetId": "dataset-001", "datasetVersionId": "version-001",
        "modelId": "model-001", "somethingNew": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "entrypoint"),
    [
        ({"script": "train.py", "args": ("--a",)}, {"script": "train.py", "args": ["--a"]}),
        ({"module": "pkg.train", "args": ("--a",)}, {"module": "pkg.train", "args": ["--a"]}),
        ({"script": "-m", "args": ("pkg.train", "--a")}, {"module": "pkg.train", "args": ["--a"]}),
    ],
)
def test_a_script_or_module_takes_the_following_arguments(names: NameResolver, flags: Any, entrypoint: Any) -> None:
    assert built(names, name="t", environments=("env-001",), **flags)["entrypoint"] == entrypoint


@pytest.mark.parametrize("flags", [{"args": ("--a",)}, {"script": "a.py", "module": "a"}])
def test_arguments_belong_to_one_script_or_module(names: NameResolver, flags: Any) -> None:
    with pytest.raises(click.UsageError, match="--module"):
        built(names, name="t", environments=("env-001",), **flags)


def test_a_file_for_one_environment_stays_one(names: NameResolver) -> None:
    file = {"environmentIds": ["pytorch-dev-env"], "distributedConfig": {"enabled": False}}
    request = built(names, file)
    assert request["environmentIds"] == ["env-001"]
    assert request["distributedConfig"] == {"enabled": False}
    assert built(names, file, framework="ddp")["distributedConfig"]["nodeIds"] == ["env-001"]


@pytest.mark.parametrize(
    ("file", "flags"),
    [
        ({"environmentIds": "env-001"}, {}),
        ({"distributedConfig": "ddp"}, {}),
        ({"distributedConfig": {"nodeIds": {}, "framework": "ddp"}, "environmentIds": "env-001"}, {}),
        ({"hyperparameters": ["batchSize"]}, {"hyperparameters": {"batchSize": 8}}),
    ],
)
def test_a_malformed_file_is_refused(names: NameResolver, file: dict[str, Any], flags: dict[str, Any]) -> None:
    with pytest.raises(click.UsageError, match="must be a"):
        built(names, file, **flags)


def test_a_dataset_flag_names_a_version_after_a_colon(names: NameResolver) -> None:
    assert built(names, dataset="stdlib:v1")["datasetVersionId"] == "version-001"
    assert built(names, dataset="dataset-001:version-003")["datasetVersionId"] == "version-003"
    file = {"datasetId": "dataset-001", "datasetVersionId": "version-001"}
    assert built(names, file, dataset="stdlib")["datasetVersionId"] == "version-002"


def test_none_clears_dataset_and_model_of_a_file(names: NameResolver) -> None:
    file = {"datasetId": "dataset-001", "datasetVersionId": "version-001", "modelId": "model-001"}
    for given in ({}, file):
        request = built(names, given, dataset="none", model="none", script="train.py")
        assert (request["datasetId"], request["datasetVersionId"], request["modelId"]) == (None, None, None)


def test_unknown_names_are_sent_to_the_platform(names: NameResolver) -> None:
    request = built(names, environments=("nowhere",), dataset="nothing:v9", model="nothing")
    assert request["environmentIds"] == ["nowhere"]
    assert (request["datasetId"], request["datasetVersionId"], request["modelId"]) == ("nothing", "v9", "nothing")


def test_an_ambiguous_environment_name_is_refused_with_the_ids(names: NameResolver) -> None:
    with pytest.raises(click.UsageError, match="env-005, env-006"):
        built(names, environments=("twin",))


def test_an_ambiguous_choice_is_not_made(names: NameResolver, api: FakeApi) -> None:
    api.on("GET", "/models", page([model(1, "tiny-gpt"), model(2, "gpt")]))
    with pytest.raises(click.UsageError, match=r"--model: model-001 \(tiny-gpt\), model-002 \(gpt\)"):
        built(names)


def test_a_dataset_in_preparation_is_accepted(
    names: NameResolver, api: FakeApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.on("GET", "/datasets", page([dataset(1, "stdlib", version(1, "failed"), version(2, "preparing"))]))
    assert built(names)["datasetVersionId"] == "version-002"
    assert "waits" in capsys.readouterr().err


def test_a_dataset_whose_preparation_failed_is_not_chosen(names: NameResolver, api: FakeApi) -> None:
    api.on("GET", "/datasets", page([dataset(1, "stdlib", version(1, "failed"))]))
    with pytest.raises(click.UsageError):
        built(names, dataset="stdlib")
    with pytest.raises(click.UsageError):
        built(names)


def test_a_script_takes_the_arguments_after_the_double_dash(names: NameResolver) -> None:
    request = built(names, script="train.py", args=("--epochs", "3"))
    assert request["entrypoint"] == {"script": "train.py", "args": ["--epochs", "3"]}
    with pytest.raises(click.UsageError, match="--script"):
        built(names, args=("--epochs",))


def test_values_are_parsed_as_json_where_possible() -> None:
    pairs = ["a=8", "b=1e-4", "c=true", "d=auto", "e=", "f=x=y", "g=[1, 2]", "h=NaN", "i=null"]
    assert input_files.parse_values(pairs, "--hp") == {
        "a": 8, "b": 0.0001, "c": True, "d": "auto", "e": "", "f": "x=y", "g": [1, 2], "h": "NaN", "i": None,
    }  # fmt: skip
    assert input_files.parse_settings(["A=8"], "--set-env") == {"A": "8"}
    for wrong in ("a", "=1"):
        with pytest.raises(click.BadParameter):
            input_files.parse_settings([wrong], "--set-env")


def test_yaml_equals_json(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text("a: 1e-4\nb: on\nc: 2026-01-01\nd: true\ne: null\nf: 012\ng: -3\nh: 0.5\ni: ~\nj: 1:30\n")
    assert input_files.read_request(str(file)) == {
        "a": 0.0001, "b": "on", "c": "2026-01-01", "d": True, "e": None, "f": "012", "g": -3, "h": 0.5, "i": None,
        "j": "1:30",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a: [", "- a", "", "\x00"])
def test_a_file_without_a_request_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(text)
    with pytest.raises(click.UsageError, match=r"task\.yaml"):
        input_files.read_request(str(file))
    with pytest.raises(click.UsageError, match="nowhere"):
        input_files.read_request(str(tmp_path / "nowhere"))


def test_a_script_that_reads_neither_dataset_nor_model_gets_none(names: NameResolver) -> None:
    nothing = {"datasetId": None, "datasetVersionId": None, "modelId": None}
    file = {**nothing, "entrypoint": {"script": "train.py"}, "environmentIds": ["env-001"]}
    request = built(names, file)
    assert {name: request[name] for name in nothing} == nothing
    assert built(names, file, dataset="stdlib", model="tiny-gpt")["modelId"] == "model-001"


def test_a_node_range_is_one_or_two_numbers(names: NameResolver) -> None:
    both = ("env-001", "env-003", "env-005")
    found = built(names, environments=both, elastic="2:3")["distributedConfig"]
    assert found["elastic"] == {"minNodes": 2, "maxNodes": 3}
    file = {"distributedConfig": {"elastic": {"maxNodes": 3}}}
    assert built(names, file, environments=both, elastic="1")["distributedConfig"]["elastic"] == {"minNodes": 1}
    for wrong in ("2:3:4", "two", "2:", ":3", "²"):
        with pytest.raises(click.UsageError, match="2:4"):
            built(names, environments=both, elastic=wrong)


def test_a_command_is_what_stands_behind_the_dashes() -> None:
    words = ("torchrun", "--nproc_per_node=2", "train.py")
    found = make_entrypoint(None, None, words, command=True, processes="node", file={})
    assert found == {"command": [*words], "processes": "node"}
    file = {"entrypoint": {"script": "launch.py", "args": ["1"]}}
    assert make_entrypoint(None, None, (), processes="node", file=file) == {**file["entrypoint"], "processes": "node"}
    assert make_entrypoint(None, None, (), file=file) is None
    for given in (("a.py", None, words), (None, None, ())):
        with pytest.raises(click.UsageError, match="--command"):
            make_entrypoint(*given, command=True, file={})


def test_a_launch_command_is_read_as_what_it_means(names: NameResolver, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("A=b", "deepspeed", "--num_gpus", "2", "--no_local_rank", "train.py", "--text", "a b")
    request = built(names, environments=("env-001",), env={"A": "mine"}, args=words)
    assert request["entrypoint"] == {"script": "train.py", "args": ["--text", "a b"]}
    assert request["env"] == {"A": "mine"}
    assert request["distributedConfig"]["framework"] == "deepspeed"
    assert request["distributedConfig"]["nodeIds"] == ["env-001"]
    printed = capsys.readouterr().err
    assert "python train.py --text 'a b'" in printed
    assert "--num_gpus 2" in printed
    assert "--command" in printed


def test_the_restarts_of_a_launch_command_give_way_to_the_option(names: NameResolver) -> None:
    words = ("torchrun", "--max_restarts", "5", "-m", "pkg.train")
    assert built(names, environments=("env-001",), args=words)["maxRestarts"] == 5
    request = built(names, environments=("env-001",), args=words, max_restarts=1)
    assert (request["maxRestarts"], request["entrypoint"]["module"]) == (1, "pkg.train")


def test_a_launch_command_reads_the_script_beside_it(
    names: NameResolver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import torch.multiprocessing as mp\nmp.spawn(f)\n", "utf-8")
    request = built(names, environments=("env-001",), args=("python", "train.py"))
    assert request["entrypoint"] == {"script": "train.py", "args": [], "processes": "node"}
    request = built(names, environments=("env-001",), args=("python", "train.py"), processes="gpu")
    assert request["entrypoint"]["processes"] == "gpu"


def test_a_command_that_is_given_as_a_command_runs_as_it_is(names: NameResolver) -> None:
    words = ("torchrun", "--nproc_per_node", "2", "train.py")
    request = built(names, environments=("env-001",), args=words, command=True)
    assert request["entrypoint"] == {"command": [*words]}


def test_words_that_start_nothing_are_refused(names: NameResolver) -> None:
    with pytest.raises(click.UsageError, match="starts no training"):
        built(names, environments=("env-001",), args=("pip", "install", "torch"))


def test_how_a_script_resumes_is_given_as_words(names: NameResolver) -> None:
    made = built(names, environments=("env-001",), script="train.py", resume_with="--resume_from '{path}' --at={step}")
    assert made["entrypoint"]["resume"] == {"args": ["--resume_from", "{path}", "--at={step}"]}
    made = built(names, environments=("env-001",), script="train.py", resume_with="self")
    assert made["entrypoint"]["resume"] == {"itself": True}
    for flags in ({"resume_with": "--resume"}, {"script": "train.py", "resume_with": "'unclosed"}):
        with pytest.raises(click.UsageError):
            built(names, environments=("env-001",), **flags)
