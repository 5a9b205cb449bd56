"""What differs between two runs, and in which order."""

from dataclasses import replace
from typing import Any

import pytest

from fermi import messages
from fermi.runs import differences
from fermi.runs.differences import ChangedFile, Difference, RunFacts, RunNode, list_differences

NODE = RunNode(
    "dev-a", "H100", 8, {"python": "3.11.4", "driver": "550.54.15", "cuda": "12.1"},
    {"torch": "2.3.1", "tqdm": "4.66.0"}, {"NCCL_DEBUG": "1", "HF_TOKEN": ""},
)  # fmt: skip
RUN = RunFacts(
    "task-a", "first", "pytorch-ddp", "wiki v1", "gpt", "a" * 64, commit="c" * 40,
    parameters={"lr": "0.001", "seed": "1", "log_every": "10"}, batch=64, ranks=8, images=("torch:2.3",),
    nodes=(NODE,), attempts=1, seconds={"queued": 5.0, "training": 90.0, "starting": 10.0},
)  # fmt: skip


def compare(*files: str, **changed: Any) -> list[Difference]:
    return list_differences(RUN, replace(RUN, id="task-b", **changed), [ChangedFile(one, "changed") for one in files])


def node(**changed: Any) -> tuple[RunNode]:
    return (replace(NODE, **changed),)


def test_runs_of_the_same_things_do_not_differ() -> None:
    assert compare() == []
    assert compare(parameters={"lr": "1e-3", "seed": "1", "log_every": "10.0"}) == []


def test_what_is_computed_comes_before_what_it_is_computed_with_and_that_before_what_happened() -> None:
    found = compare(
        "train.py", data="wiki v2", snapshot="b" * 64, commit="d" * 40, attempts=3, lost_steps=20,
        parameters={"lr": "0.01", "seed": "2", "log_every": "20"},
        nodes=node(name="dev-b", packages={"torch": "2.4.0", "tqdm": "4.66.1"}, machine={"driver": "535.1"}),
        seconds={"training": 50.0, "starting": 50.0},
    )  # fmt: skip
    assert [(one.kind, one.name) for one in found] == [
        ("data", ""), ("code", ""), ("parameter", "lr"), ("package", "torch"), ("restarts", ""), ("seed", "seed"),
        ("machine", "driver"), ("parameter", "log_every"), ("package", "tqdm"), ("revision", ""), ("nodes", ""),
        ("time", "starting"), ("time", "training"),
    ]  # fmt: skip
    assert all(0 < one.weight <= 100 for one in found)


def test_code_that_no_run_executes_matters_little() -> None:
    [code] = compare("README.md", "docs/a.rst", snapshot="b" * 64)
    [other] = compare("README.md", "train.py", snapshot="b" * 64)
    assert code.weight < 20 < other.weight
    assert other.params["files"] == "README.md, train.py"


def test_code_of_a_snapshot_and_code_of_nodes_differ_without_files() -> None:
    [found] = compare(snapshot="")
    assert (found.code, found.left, found.right) == ("DIFFERENCE_CODE_SOURCE", "a" * 12, "")


def test_a_script_that_is_in_no_snapshot_is_compared_by_its_hash() -> None:
    runs = [replace(RUN, snapshot="", script=("train.py", digest * 64)) for digest in "ab"]
    assert [(one.kind, one.name) for one in list_differences(runs[0], runs[1])] == [("script", "train.py")]
    assert list_differences(runs[0], runs[0]) == []


def test_a_node_with_another_version_is_named() -> None:
    three = [replace(NODE, name=f"n{n}", packages={"torch": "2.4.0" if n == 2 else "2.3.1"}) for n in range(3)]
    two = [replace(one, packages={"torch": "2.3.1"}) for one in three]
    [found] = list_differences(replace(RUN, nodes=tuple(two)), replace(RUN, nodes=tuple(three)))
    assert (found.left, found.right) == ("2.3.1", "2.3.1, 2.4.0 (n2)")


@pytest.mark.parametrize(
    ("name", "before", "after", "expected"),
    [("torch", "2.3.1", "3.0.0", 78), ("torch", "2.3.1", "2.4.0", 65), ("torch", "2.3.1", "2.3.2", 50),
     ("tqdm", "4.66.0", "5.0.0", 53), ("tqdm", "4.66.0", "4.66.1", 25)],
)  # fmt: skip
def test_packages_weigh_by_what_they_do_and_how_far_they_jump(
    name: str, before: str, after: str, expected: int
) -> None:
    runs = [replace(RUN, nodes=node(packages={name: version})) for version in (before, after)]
    assert [one.weight for one in list_differences(runs[0], runs[1])] == [expected]


def test_packages_are_not_compared_where_a_run_has_not_reported_them() -> None:
    right = replace(RUN, nodes=node(packages=None, variables=None))
    assert list_differences(RUN, right) == []
    assert [(one.code, one.params) for one in differences.list_gaps(RUN, right)] == [
        ("DIFFERENCE_PACKAGES_UNKNOWN", {"run": "first"})
    ]


def test_variables_have_their_names_and_no_values() -> None:
    found = compare(nodes=node(variables={"NCCL_DEBUG": "2", "HF_TOKEN": "", "NEW": "3"}))
    assert [(one.name, one.code, one.left, one.right) for one in found] == [
        ("NCCL_DEBUG", "DIFFERENCE_VARIABLE", "", ""), ("NEW", "DIFFERENCE_VARIABLE_RIGHT", "", ""),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["seed", "random_seed", "data_seed", "train.seed", "Seed", "data.random_seed"])
def test_seeds_are_known_by_their_names(name: str) -> None:
    assert differences.is_seed(name)
    assert not differences.is_seed("seedling_count")


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_difference_has_a_text(lang: str) -> None:
    found = compare(
        "train.py", data="wiki v2", snapshot="b" * 64, commit="d" * 40, attempts=3, lost_steps=20, model="llama",
        framework="jax", batch=128, ranks=16, images=("torch:2.4",), settings={"backend": "gloo"},
        parameters={"lr": "0.01", "seed": "2"},
        nodes=node(name="dev-b", gpus=4, packages={"torch": "2.4.0"}, variables={"NEW": "3", "NCCL_DEBUG": "7"},
                   machine={"python": "3.12", "driver": "535.1", "cuda": "12.4"}),
        seconds={"training": 50.0, "starting": 50.0},
    )  # fmt: skip
    codes = {one.code for one in found} | {one.code for one in differences.list_gaps(RunFacts("a", "a"), RUN)}
    assert len(codes) >= 24
    for one in found:
        message, _ = messages.render_text(one.code, lang, **one.params)
        assert message
