"""Plug-ins that were written by the guides of the release before go on under the former names (`fermi.launch`)."""

import importlib
import warnings
from typing import Any

import pytest

from fermi import launch
from fermi.engines.base import Backend
from fermi.jobs.spec import Entrypoint
from tests.goldens import job

FRAMEWORK = """
from fermi.launch import options, recipes
from fermi.launch.frameworks._plans import gang
from fermi.launch.frameworks.base import Info
from fermi.launch.spec import JobSpec, Late, Plan, Problem, Proposal

INFO = Info(label="Local SGD", description="", model_size=(0, 1_000_000_000))
OPTIONS = options.schema(averageEvery={"type": "integer", "minimum": 1, "title": "Steps between averages"})

def problems(spec):
    return options.problems(spec, OPTIONS) + recipes.own_script_only(spec, INFO.label)

def plan(spec):
    return gang(spec, recipes.command(spec, "", {}), files={}, preload=("torch",), node_env=lambda at: {})
"""
ENGINE = """
from fermi.launch.backends import logfiles, reported
from fermi.launch.backends.base import Backend, not_running
from fermi.launch.causes import ALWAYS, declared
from fermi.launch.spec import NO_SECRETS, Artifact, Cause, Late, Observation, Phase, Rendered, resolve

CAUSES = declared(Cause("SPOOL_BUMPED", retry=True, asked=True, free=ALWAYS))
READERS = logfiles.chunk, reported.read

class Spool(Backend):
    pass
"""


def run_plugin(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        exec(text, found)
    return found


def test_a_framework_written_with_former_names_plans() -> None:
    found = run_plugin(FRAMEWORK)
    spec = job("env-003", entrypoint=Entrypoint("train.py", ()))
    assert found["problems"](spec) == []
    assert len(found["plan"](spec).nodes) == 1


def test_an_engine_written_with_former_names_equals_one_with_present_names() -> None:
    found = run_plugin(ENGINE)
    assert issubclass(found["Spool"], Backend)
    assert list(found["CAUSES"]) == ["SPOOL_BUMPED"]
    assert all(map(callable, found["READERS"]))


def test_each_former_name_leads_to_an_existing_one() -> None:
    for module in launch.MODULES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            importlib.import_module(launch.PREFIX + module)
    for module, names in launch.NAMES.items():
        present = importlib.import_module(f"fermi.{module}")
        assert [name for name in names.values() if not hasattr(present, name)] == []


@pytest.mark.parametrize("name", ["nothing", "backends.nothing"])
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_no_other_name_is_found(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(launch.PREFIX + name)


def test_a_plug_in_with_former_methods_of_a_backend_goes_on() -> None:
    """Methods that the guide named before the release after 0.1.0 are called under their present names."""
    with pytest.warns(FutureWarning, match="forget is delete_attempt now"):

        class Spool(Backend):
            here = True

            def forget(self, handle: Any) -> None:
                handle.append("deleted")

    deleted: list[str] = []
    assert Spool.is_local
    Spool.delete_attempt(None, deleted)  # type: ignore[arg-type]
    assert deleted == ["deleted"]
