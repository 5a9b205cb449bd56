"""What environments have installed: compared, told in a preview, and levelled when somebody asks for it. The
environments are folders of this machine, entered by real processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import AuditEvent
from apps.clusters.models import DevEnvironment, Lease
from apps.common.clock import now
from apps.environments.models import Hosted, Installation, Look
from apps.environments.packages import installation, surveys
from apps.training.services.build import TaskDraft, build_draft
from fermi.engines.inside.session import InsideSession
from fermi.engines.local.engine import LocalBackend
from fermi.jobs.errors import BackendError
from fermi.jobs.run_location import RunLocations
from fermi.jobs.spec import JobSpec, Node, RunLocation
from fermi.planning.request import parse_request
from tests import inside_engines
from tests.api.conftest import Api
from tests.api.test_code import upload_snapshot
from tests.api.test_tasks_create import changed
from tests.inside_engines import Inside
from tests.unit.inside.test_survey import kernelspec

pytestmark = pytest.mark.usefixtures("environments", "dataset", "model")
PACKAGES, LEVEL = "/dev-environments/packages", "/dev-environments/packages/level"
KERNEL = "mine"
BOTH = "env-001,env-003"


class Lab:
    """env-001 and env-003 with an interpreter each, the kernel "mine" of their notebooks."""

    def __init__(self, folder: Path) -> None:
        self.insides = {key: Inside(folder / key) for key in ("env-001", "env-003")}
        self.pythons: dict[str, str] = {}
        self.entered: list[str] = []
        for key, one in self.insides.items():
            self.pythons[key] = inside_engines.make_venv(one.home / "venv")
            kernelspec(one.home / ".local/share/jupyter", KERNEL, self.pythons[key])
            one.variables.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(folder / "wheels"))

    def enter(self, node: Node) -> InsideSession:
        self.entered.append(node.id)
        if node.id not in self.insides:
            raise BackendError("INSIDE_NOT_HERE", permanent=True, environment=node.name)
        return self.insides[node.id].enter()


@pytest.fixture(autouse=True)
def data_dir(settings: Any, tmp_path: Path) -> Path:
    settings.DATA_DIR = tmp_path / "data"
    return tmp_path


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    found = Lab(tmp_path / "lab")

    def ways(backend: LocalBackend, job: JobSpec) -> dict[str, RunLocations]:
        return {node.id: RunLocations(RunLocation(True, "WAY_INSIDE_RUNS")) for node in job.nodes}

    monkeypatch.setattr(LocalBackend, "enter", lambda backend, node: found.enter(node))
    monkeypatch.setattr(LocalBackend, "find_run_locations", ways)
    yield found
    for one in found.insides.values():
        one.end_container()


def run_surveys() -> int:
    """What threads of a worker do; returns how many looks there were."""
    count = 0
    while surveys.run_due_survey():
        count += 1
    return count


def install() -> None:
    while installation.run_due_installation():
        pass


def compare(api: Api, ids: str = BOTH, **query: Any) -> Any:
    """As somebody who asks until it is known."""
    api.get(PACKAGES, ids=ids, python=KERNEL, **query)
    run_surveys()
    return api.get(PACKAGES, ids=ids, python=KERNEL).data


def test_the_first_answer_says_that_a_survey_is_under_way(viewer: Api, lab: Lab) -> None:
    data = viewer.get(PACKAGES, ids=BOTH, python=KERNEL).data
    assert data["looking"]
    assert [(one["environmentId"], one["state"]) for one in data["environments"]] == [
        ("env-001", "looking"), ("env-003", "looking"),
    ]  # fmt: skip
    assert lab.entered == [], "a request enters no environment"


def test_different_and_missing_packages_are_named(viewer: Api, lab: Lab) -> None:
    inside_engines.install_files(lab.pythons["env-001"], inside_engines.metadata("einops", "0.8.0", "einops"))
    inside_engines.install_files(lab.pythons["env-001"], inside_engines.metadata("toy", "1.0", "toy"))
    inside_engines.install_files(lab.pythons["env-003"], inside_engines.metadata("toy", "2.0", "toy"))
    data = compare(viewer)
    assert not data["looking"]
    assert [(one["state"], one["python"]) for one in data["environments"]] == [
        ("known", lab.pythons["env-001"]), ("known", lab.pythons["env-003"]),
    ]  # fmt: skip
    assert data["differences"] == [
        {"kind": "package", "name": "einops", "fatal": False, "values": {"env-001": "0.8.0", "env-003": ""}},
        {"kind": "package", "name": "toy", "fatal": False, "values": {"env-001": "1.0", "env-003": "2.0"}},
    ]
    assert data["lacking"] == [
        {"name": "einops", "version": "0.8.0", "environmentIds": ["env-003"], "requirement": "einops==0.8.0"}
    ]


def test_a_survey_is_cached_and_repeated_on_request(viewer: Api, lab: Lab) -> None:
    compare(viewer)
    viewer.get(PACKAGES, ids=BOTH, python=KERNEL)
    assert run_surveys() == 0
    inside_engines.install_files(lab.pythons["env-003"], inside_engines.metadata("toy", "2.0", "toy"))
    data = viewer.get(PACKAGES, ids=BOTH, python=KERNEL, anew="true").data
    assert data["looking"]
    assert data["environments"][0]["state"] == "known", "what was known is told meanwhile"
    assert run_surveys() == 2
    assert [one["name"] for one in viewer.get(PACKAGES, ids=BOTH, python=KERNEL).data["lacking"]] == ["toy"]


def test_a_restart_of_the_environment_invalidates_its_survey(viewer: Api, lab: Lab) -> None:
    compare(viewer)
    DevEnvironment.objects.filter(pk="env-001").update(engine={"inside": {"life": "another"}})
    first, second = viewer.get(PACKAGES, ids=BOTH, python=KERNEL).data["environments"]
    assert (first["state"], second["state"]) == ("looking", "known")
    assert run_surveys() == 1


def test_an_environment_that_cannot_be_entered_gives_the_reason(viewer: Api, lab: Lab) -> None:
    data = compare(viewer, "env-001,env-002,env-004")
    known, unreachable, stopped = data["environments"]
    assert known["state"] == "known"
    assert (unreachable["state"], unreachable["reason"]["code"]) == ("failed", "INSIDE_NOT_HERE")
    assert (stopped["state"], stopped["reason"]["code"]) == ("failed", "ENVIRONMENT_NOT_RUNNING")
    assert stopped["name"] in stopped["reason"]["message"]


def test_an_unknown_kernel_is_named_with_the_known_ones(viewer: Api, lab: Lab) -> None:
    viewer.get(PACKAGES, ids="env-001", python="other")
    run_surveys()
    (one,) = viewer.get(PACKAGES, ids="env-001", python="other").data["environments"]
    assert (one["state"], one["reason"]["code"]) == ("failed", "INSIDE_KERNEL_UNKNOWN")
    assert KERNEL in one["reason"]["hint"]


def test_only_users_with_terminal_access_have_an_interpreter_executed(viewer: Api, colleague: Api, lab: Lab) -> None:
    path = lab.pythons["env-001"]
    (refused,) = viewer.get(PACKAGES, ids="env-001", python=path).data["environments"]
    assert (refused["state"], refused["reason"]["code"]) == ("failed", "PACKAGES_PYTHON_FORBIDDEN")
    assert run_surveys() == 0
    colleague.get(PACKAGES, ids="env-001", python=path)
    assert run_surveys() == 1


def test_stored_interpreters_per_environment_are_limited(colleague: Api, lab: Lab) -> None:
    for number in range(surveys.MAX_INTERPRETERS + 5):
        colleague.get(PACKAGES, ids="env-001", python=f"kernel{number}")
    assert Look.objects.filter(environment="env-001").count() == surveys.MAX_INTERPRETERS


def test_readers_of_an_environment_may_compare_it_and_others_do_not_see_it(
    stranger: Api, anonymous: Api, lab: Lab
) -> None:
    assert stranger.get(PACKAGES, ids=BOTH).problems == {
        "ids.0": "ENVIRONMENT_UNKNOWN", "ids.1": "ENVIRONMENT_UNKNOWN",
    }  # fmt: skip
    assert anonymous.get(PACKAGES, ids=BOTH).status == 401
    assert Look.objects.count() == 0


def test_environments_per_comparison_are_limited(viewer: Api) -> None:
    assert viewer.get(PACKAGES, ids=",".join(["env-001"] * 65)).problems == {"ids": "ITEMS_AT_MOST"}
    assert viewer.get(PACKAGES).status == 400


def test_requested_packages_are_installed_everywhere_and_audited(colleague: Api, lab: Lab, tmp_path: Path) -> None:
    inside_engines.make_wheel(tmp_path / "lab/wheels", "toy", "1.0", "toy")
    for key, one in lab.insides.items():  # with pip
        lab.pythons[key] = inside_engines.make_venv(one.home / "venv", pip=True)
    compare(colleague)
    begun = colleague.post(LEVEL, {"ids": ["env-001", "env-003"], "packages": ["toy==1.0"], "python": KERNEL})
    assert begun.status == 201
    assert [one["state"] for one in begun.data["items"]] == ["waiting", "waiting"]
    install()
    data = colleague.get(f"{LEVEL}/{begun.data['id']}").data
    assert data["over"]
    for one in data["items"]:
        assert (one["state"], one["exit"]) == ("done", 0)
        assert "Successfully installed toy-1.0" in one["output"]
    asked, ended = (AuditEvent.objects.filter(action=name) for name in ("environment.install", "environment.installed"))
    assert {event.target for event in asked} == {event.target for event in ended} == {"env-001", "env-003"}
    assert {event.actor for event in ended} == {colleague.user}
    assert [event.data["exit"] for event in ended] == [0, 0]
    assert ended[0].data["packages"] == ["toy==1.0"]
    assert run_surveys() == 2, "what they have is looked at anew"
    assert compare(colleague)["lacking"] == []


def test_a_failed_installation_shows_pips_output(colleague: Api, lab: Lab) -> None:
    one = lab.insides["env-001"]
    inside_engines.make_venv(one.home / "venv", pip=True)
    begun = colleague.post(LEVEL, {"ids": ["env-001"], "packages": ["absent"], "python": KERNEL}).data
    install()
    (item,) = colleague.get(f"{LEVEL}/{begun['id']}").data["items"]
    assert (item["state"], item["exit"]) == ("failed", 1)
    assert "No matching distribution found for absent" in item["output"]


def test_an_environment_without_pip_gives_the_reason(colleague: Api, lab: Lab) -> None:
    begun = colleague.post(LEVEL, {"ids": ["env-001"], "packages": ["toy"], "python": KERNEL}).data
    install()
    (item,) = colleague.get(f"{LEVEL}/{begun['id']}").data["items"]
    assert (item["state"], item["exit"], item["reason"]["code"]) == ("failed", None, "INSIDE_NO_PIP")


@pytest.mark.database
def test_an_installation_resumes_after_its_process_died(
    colleague: Api, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    colleague.post(LEVEL, {"ids": ["env-001"], "packages": ["toy"], "python": KERNEL})
    with monkeypatch.context() as patched:
        patched.setattr(installation.session, "open_session", _die)
        with pytest.raises(SystemExit):
            installation.run_due_installation()
    assert installation.run_due_installation() == 0, "it is claimed"
    Installation.objects.update(due_at=Installation.objects.get().created_at)
    assert installation.run_due_installation() == 1


def _die(*_: Any) -> Any:
    raise SystemExit


def test_only_members_install_packages(viewer: Api, stranger: Api, colleague: Api, lab: Lab) -> None:
    asked = {"ids": ["env-001"], "packages": ["toy"]}
    assert viewer.post(LEVEL, asked).status == 403
    assert stranger.post(LEVEL, asked).problems == {"ids.0": "ENVIRONMENT_UNKNOWN"}
    DevEnvironment.objects.filter(pk="env-001").update(shared=True)
    assert stranger.post(LEVEL, asked).status == 404, "it is shared for training, not for changing"
    assert Installation.objects.count() == 0
    begun = colleague.post(LEVEL, asked).data
    DevEnvironment.objects.filter(pk="env-001").update(shared=False)
    assert viewer.get(f"{LEVEL}/{begun['id']}").status == 200
    assert stranger.get(f"{LEVEL}/{begun['id']}").status == 404
    assert viewer.get(f"{LEVEL}/{'x' * 50}").status == 404


def test_nothing_is_installed_while_a_task_runs_or_the_environment_is_stopped(colleague: Api, lab: Lab) -> None:
    Lease.objects.create(environment_id="env-001", holder="task-7")
    asked = {"ids": ["env-001", "env-004"], "packages": ["toy"]}
    assert colleague.post(LEVEL, asked).problems == {"ids.0": "PACKAGES_HELD", "ids.1": "ENVIRONMENT_NOT_RUNNING"}


@pytest.mark.parametrize("wrong", ["--index-url=http://evil", "./here", "toy @ https://evil/x.whl", "-e ."])
def test_options_paths_and_urls_are_refused_as_packages(colleague: Api, lab: Lab, wrong: str) -> None:
    assert colleague.post(LEVEL, {"ids": ["env-001"], "packages": ["toy", wrong]}).problems == {
        "packages.1": "PACKAGE_NAME"
    }


SCRIPT = "import einops\nimport helper\nprint('trained')\n"


def preview(api: Api, **more: Any) -> Any:
    return api.post("/training-tasks/preview", build_request(api, **more)).data


def build_request(api: Api, **more: Any) -> dict[str, Any]:
    code = upload_snapshot(api, {"train.py": SCRIPT.encode(), "helper.py": b"import json\n", **more.pop("files", {})})
    config = {"nodeIds": ["env-001", "env-003"], "masterNode": "env-001", "enabled": True, "python": KERNEL}
    return changed(
        distributedConfig={**config, **more}, datasetId=None, datasetVersionId=None, modelId=None,
        entrypoint={"script": "train.py"}, code={"snapshot": code},
    )  # fmt: skip


def codes(data: Any) -> set[str]:
    return {one["code"] for one in data["warnings"]}


def test_a_module_missing_in_one_notebook_is_named_before_the_start_and_installed(owner: Api, lab: Lab) -> None:
    inside_engines.install_files(lab.pythons["env-001"], inside_engines.metadata("einops", "0.8.0", "einops"))
    first = preview(owner)
    assert first["packages"]["looking"]
    assert "IMPORT_MISSING" not in codes(first)
    assert lab.entered == [], "a preview enters no environment"
    assert run_surveys() == 2
    data = preview(owner)
    (missing,) = data["packages"]["missing"]
    assert missing == {
        "module": "einops", "place": "train.py:1", "environmentIds": ["env-003"], "requirement": "einops==0.8.0",
        "anywhere": True,
    }  # fmt: skip
    assert data["packages"]["level"] == ["einops==0.8.0"]
    warning = next(one for one in data["warnings"] if one["code"] == "IMPORT_MISSING")
    assert "einops" in warning["message"]
    assert "fermi environments level env-001 env-003 --package einops==0.8.0" in warning["hint"]
    inside_engines.install_files(lab.pythons["env-003"], inside_engines.metadata("einops", "0.8.0", "einops"))
    owner.get(PACKAGES, ids=BOTH, python=KERNEL, anew="true")
    run_surveys()
    assert preview(owner)["packages"]["missing"] == []


def test_only_versions_of_imported_packages_are_compared(owner: Api, lab: Lab) -> None:
    for key, version in (("env-001", "0.8.0"), ("env-003", "0.7.0")):
        inside_engines.install_files(lab.pythons[key], inside_engines.metadata("einops", version, "einops"))
        inside_engines.install_files(lab.pythons[key], inside_engines.metadata("unrelated", version, "unrelated"))
    preview(owner)
    run_surveys()
    data = preview(owner)
    assert [one["name"] for one in data["packages"]["differences"]] == ["einops"]
    warning = next(one for one in data["warnings"] if one["code"] == "PACKAGES_DIFFER")
    assert "einops 0.8.0" in warning["message"]


def test_version_differences_that_break_training_are_marked(owner: Api, lab: Lab) -> None:
    for key, version in (("env-001", "2.5.1"), ("env-003", "2.4.0")):
        inside_engines.install_files(lab.pythons[key], inside_engines.metadata("torch", version, "torch"))
        inside_engines.install_files(lab.pythons[key], {"torch/version.py": f"__version__ = {version!r}\n"})
    preview(owner)
    run_surveys()
    warning = next(one for one in preview(owner)["warnings"] if one["code"] == "PACKAGES_DIFFER_FATALLY")
    assert "torch 2.5.1" in warning["message"]


def test_code_with_requirements_needs_no_packages_in_the_environment(owner: Api, lab: Lab) -> None:
    files = {"requirements.txt": b"einops\n"}
    preview(owner, files=files)
    run_surveys()
    assert preview(owner, files=files)["packages"]["missing"] == []


def test_a_draft_that_is_not_opened_again_starts_no_survey(owner: Api, lab: Lab) -> None:
    request = parse_request(build_request(owner))

    def draft() -> TaskDraft:
        return build_draft(owner.user, request, "task-x", start_surveys=False)

    assert [one.looking for one in draft().installed.surveys] == [False, False]
    assert run_surveys() == 0
    inside_engines.install_files(lab.pythons["env-001"], inside_engines.metadata("einops", "0.8.0", "einops"))
    preview(owner)
    run_surveys()
    assert "IMPORT_MISSING" in {one.code for one in draft().warnings}


def test_a_task_that_runs_outside_ignores_packages_of_the_environment(owner: Api, lab: Lab) -> None:
    assert preview(owner, runIn="beside")["packages"] is None
    assert run_surveys() == 0


@pytest.mark.database
def test_each_run_of_a_managed_environment_has_its_own_survey(viewer: Api, lab: Lab, environments: Any) -> None:
    row, _ = Hosted.objects.update_or_create(
        environment_id="env-001", defaults={"spec": {}, "state": "running", "state_since": now(), "run": 1}
    )
    compare(viewer)
    Hosted.objects.filter(pk=row.pk).update(run=2)
    assert viewer.get(PACKAGES, ids="env-001", python=KERNEL).data["environments"][0]["state"] == "looking"
