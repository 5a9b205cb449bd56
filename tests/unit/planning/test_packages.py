"""Where environments differ in what they have installed, and what levels them."""

import json
from typing import Any

import pytest

from fermi.planning import packages
from fermi.planning.imports import Imports
from fermi.planning.packages import InstalledPackages, VersionDifference, parse_packages


def make_packages(
    version: str = "3.11.9", torch: dict[str, str] | None = None, imports: dict[str, str | None] | None = None,
    **distributions: Any,
) -> InstalledPackages:  # fmt: skip
    """`imports`: by module, the distribution that has it ("": one of Python's own), None: it is missing."""
    found = {
        name.replace("_", "-"): {"version": one} if isinstance(one, str) else one for name, one in distributions.items()
    }
    modules = {
        name: {"found": one is not None, "distribution": one or ""} for name, one in (imports or {}).items()
    }  # fmt: skip
    return parse_packages(
        {"python": "/p", "version": version, "torch": torch or {}, "distributions": found, "imports": modules}
    )


def test_an_environments_report_round_trips() -> None:
    one = make_packages(torch={"version": "2.5.1+cu124", "nccl": "2.21.5"}, imports={"toy": "Toy_Kit", "no": None},
               Toy_Kit={"version": "1.0", "origin": "editable"})  # fmt: skip
    assert parse_packages(json.loads(json.dumps(one.to_json()))) == one
    assert one.distributions["toy-kit"].origin == "editable"
    assert one.imports["toy"].distribution == "toy-kit"


@pytest.mark.parametrize("wrong", [None, [], {}, {"version": 3}, {"version": "x" * 300}, {"version": ""}, "text"])
def test_a_malformed_report_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="no interpreter"):
        parse_packages(wrong)


def test_malformed_parts_are_dropped_and_long_ones_cut() -> None:
    many = {f"package{n}": {"version": "1"} for n in range(packages.MAX_DISTRIBUTIONS + 100)}
    said = {
        "version": "3.11.2", "python": 5, "torch": ["x"], "distributions": {**many, "x": "1"},
        "imports": {"a": {"found": "yes"}, "b": {"found": True}, 3: {}},
    }  # fmt: skip
    found = parse_packages(said)
    assert len(found.distributions) == packages.MAX_DISTRIBUTIONS
    assert (found.python, found.torch, set(found.imports)) == ("", {}, {"b"})
    odd = parse_packages(
        {"version": "3.11.2", "distributions": {"a\nb": {"version": "1"}, "c": {"version": {}}, "d": 7}}
    )
    assert odd.distributions == {}


def test_one_environment_differs_from_nothing() -> None:
    assert packages.find_differences({"a": make_packages(toy="1")}) == []
    assert packages.find_differences({}) == []


def test_differences_that_break_training_come_first() -> None:
    a = make_packages("3.11.9", {"version": "2.5.1+cu124", "cuda": "12.4", "nccl": "2.21.5"}, toy="1.0", same="1")
    b = make_packages(
        "3.12.1", {"version": "2.4.0+cu121", "cuda": "12.1", "nccl": "2.20.5"}, toy="1.1", same="1", more="2"
    )
    assert packages.find_differences({"a": a, "b": b}) == [
        VersionDifference("torch", "torch", {"a": "2.5.1+cu124", "b": "2.4.0+cu121"}, fatal=True),
        VersionDifference("nccl", "NCCL", {"a": "2.21.5", "b": "2.20.5"}, fatal=True),
        VersionDifference("python", "Python", {"a": "3.11.9", "b": "3.12.1"}, fatal=True),
        VersionDifference("cuda", "CUDA", {"a": "12.4", "b": "12.1"}),
        VersionDifference("package", "more", {"a": "", "b": "2"}),
        VersionDifference("package", "toy", {"a": "1.0", "b": "1.1"}),
    ]


def test_patch_versions_of_python_and_torch_are_harmless() -> None:
    a, b = make_packages("3.11.9", {"version": "2.5.0"}), make_packages("3.11.2", {"version": "2.5.1"})
    assert [(one.name, one.fatal) for one in packages.find_differences({"a": a, "b": b})] == [
        ("torch", False),
        ("Python", False),
    ]


def test_any_other_version_of_nccl_breaks_training() -> None:
    a = make_packages(torch={"version": "2.7.0", "nccl": "2.26.2"})
    b = make_packages(torch={"version": "2.7.0", "nccl": "2.26.5"})
    (one,) = packages.find_differences({"a": a, "b": b})
    assert (one.name, one.fatal) == ("NCCL", True)


def test_unknown_nccl_does_not_differ() -> None:
    a, b = (
        make_packages(torch={"version": "2.7.0", "nccl": "2.26.2", "cuda": "12.6"}),
        make_packages(torch={"version": "2.7.0"}),
    )
    assert packages.find_differences({"a": a, "b": b}) == []


def test_an_environment_without_torch_differs_fatally() -> None:
    (one,) = packages.find_differences({"a": make_packages(torch={"version": "2.7.0"}), "b": make_packages()})
    assert (one.name, one.values, one.fatal) == ("torch", {"a": "2.7.0", "b": ""}, True)


NEEDED = Imports({"einops": "train.py:3"})


def test_a_module_missing_elsewhere_is_named_with_its_package() -> None:
    has, lacks = make_packages(imports={"einops": "einops"}, einops="0.8.0"), make_packages(imports={"einops": None})
    (one,) = packages.find_missing_modules({"a": has, "b": lacks, "c": lacks}, NEEDED)
    assert (one.module, one.place, one.environments) == ("einops", "train.py:3", ["b", "c"])
    assert (one.requirement, one.anywhere) == ("einops==0.8.0", True)


@pytest.mark.parametrize(
    "distribution",
    [
        {"name": "Einops", "version": {"version": "0.8", "origin": "editable"}},
        {"name": "Einops", "version": {"version": "0.8+mine"}},
        {"name": "torchvision", "version": {"version": "0.20"}},
        {"name": "nvidia_toy_cu12", "version": {"version": "1"}},
    ],
)
def test_packages_without_an_index_or_of_the_driver_are_not_installed(distribution: dict[str, Any]) -> None:
    has = make_packages(imports={"einops": distribution["name"]}, **{distribution["name"]: distribution["version"]})
    (one,) = packages.find_missing_modules({"a": has, "b": make_packages(imports={"einops": None})}, NEEDED)
    assert (one.requirement, one.anywhere) == ("", True)


def test_a_module_missing_everywhere_is_installed_only_under_a_known_name() -> None:
    both = {
        "a": make_packages(imports={"yaml": None, "ours": None}),
        "b": make_packages(imports={"yaml": None, "ours": None}),
    }
    found = packages.find_missing_modules(both, Imports({"yaml": "t.py:1", "ours": "t.py:2"}))
    assert [(one.module, one.requirement, one.anywhere) for one in found] == [
        ("yaml", "PyYAML", False),
        ("ours", "", False),
    ]


def test_a_module_missing_everywhere_may_be_a_file_of_the_code() -> None:
    both = {"a": make_packages(imports={"ours": None}), "b": make_packages(imports={"ours": None})}
    assert packages.find_missing_modules(both, Imports({"ours": "t.py:1"}, frozenset({"ours"}))) == []


def test_modules_not_looked_for_are_not_missing() -> None:
    assert (
        packages.find_missing_modules({"a": make_packages(imports={"einops": ""}), "b": make_packages()}, NEEDED) == []
    )


def test_missing_packages_are_installed_in_the_first_found_version() -> None:
    looks = {"a": make_packages(toy="1"), "b": make_packages(toy="2", pip="24", kit="3"), "c": make_packages()}
    found = [(one.name, one.requirement, one.environments) for one in packages.find_missing_distributions(looks)]
    assert found == [("kit", "kit==3", ["a", "c"]), ("pip", "", ["a", "c"]), ("toy", "toy==1", ["c"])]


def test_only_imported_packages_are_relevant() -> None:
    a = make_packages("3.11.1", imports={"einops": "einops"}, einops="0.8.0", other="1")
    b = make_packages("3.11.2", imports={"einops": "einops"}, einops="0.7.0", other="2")
    looks = {"a": a, "b": b}
    found = packages.filter_relevant(packages.find_differences(looks), looks, NEEDED)
    assert [one.name for one in found] == ["einops"]
    looks["b"] = make_packages("3.11.2", imports={"einops": None})
    assert packages.filter_relevant(packages.find_differences(looks), looks, NEEDED) == [], "it is missing there"


def test_requirements_are_names_and_versions_only() -> None:
    assert packages.find_invalid_requirement(["einops==0.8.0", "torch"]) == ""
    assert packages.find_invalid_requirement(["einops", "-r x"]) == "-r x"
