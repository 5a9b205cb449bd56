"""MLflow's REST API: artifacts in a task's outputs, logged models, and the registry."""

from pathlib import Path

import pytest
from django.conf import settings

from apps.training.models import Task
from apps.training.public import make_run_token
from fermi.jobs.user_paths import OUTPUTS_FOLDER
from tests.api.test_mlflow_runs import Mlflow, make_task, ranks, task

__all__ = ["make_task", "ranks", "task"]

pytestmark = [pytest.mark.usefixtures("environments", "dataset", "model"), pytest.mark.database]
FILES = "mlflow-artifacts/artifacts"


def find_outputs(task: Task) -> Path:
    return Path(settings.DATA_DIR, OUTPUTS_FOLDER, task.pk)


def upload_artifact(ranks: Mlflow, path: str, content: bytes) -> None:
    answer = ranks.send("PUT", f"{FILES}/{path}", content)
    assert answer.status == 200, answer.body


def test_artifacts_are_files_in_the_outputs_of_the_task(ranks, task, colleague, stranger):
    run = ranks.post("runs/create", experiment_id="0")["run"]["info"]
    root = run["artifact_uri"].removeprefix("mlflow-artifacts:/")
    upload_artifact(ranks, f"{root}/texts/a.txt", b"hello")
    upload_artifact(ranks, f"{root}/b.bin", b"\0" * 100_000)
    upload_artifact(ranks, f"{root}/texts/a.txt", b"hello again")
    assert (find_outputs(task) / "mlflow-artifacts" / task.pk / "texts" / "a.txt").read_bytes() == b"hello again"
    own = Mlflow(colleague.token)
    assert own.send("GET", f"{FILES}/{root}/texts/a.txt").body == b"hello again"
    listed = own.send("GET", FILES, path=root).body["files"]
    assert listed == [{"path": "texts", "is_dir": True}, {"path": "b.bin", "is_dir": False, "file_size": 100_000}]
    found = own.get("artifacts/list", run_id=task.pk, path="texts")
    assert found["files"] == [{"path": "texts/a.txt", "is_dir": False, "file_size": 11}]
    assert own.refuse("PUT", f"{FILES}/{root}/c.txt", b"x") == (403, "PERMISSION_DENIED")
    assert Mlflow(stranger.token).refuse("GET", f"{FILES}/{root}/b.bin")[0] == 404
    assert Mlflow("").refuse("GET", f"{FILES}/{root}/b.bin")[0] == 401


def test_links_that_ranks_leave_lead_nowhere(ranks, task, tmp_path):
    run = ranks.post("runs/create", experiment_id="0")["run"]["info"]
    root = run["artifact_uri"].removeprefix("mlflow-artifacts:/")
    upload_artifact(ranks, f"{root}/first.txt", b"1")
    inside = find_outputs(task) / "mlflow-artifacts" / task.pk
    (inside / "away").symlink_to(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (inside / "file").symlink_to(secret)
    assert ranks.refuse("PUT", f"{FILES}/{root}/away/x.txt", b"x")[0] == 409
    assert list(tmp_path.iterdir()) == [secret]
    assert ranks.refuse("GET", f"{FILES}/{root}/file")[0] == 404
    upload_artifact(ranks, f"{root}/file", b"mine")
    assert secret.read_text() == "secret"


@pytest.mark.parametrize("path", ["../x", "{task}/{task}/../../../x", "{task}", "nowhere/x/y", "{task}/other-run/x"])
def test_paths_outside_of_a_run_are_refused(ranks, task, path):
    status, _ = ranks.refuse("PUT", f"{FILES}/{path.format(task=task.pk)}", b"x")
    assert status in (400, 403, 404)


def test_ranks_store_no_artifact_of_another_task(ranks, make_task):
    other = make_task("other")
    Mlflow(make_run_token(other.pk, 1)).post("runs/create", experiment_id="0")
    assert ranks.refuse("PUT", f"{FILES}/{other.pk}/{other.pk}/x.txt", b"x") == (403, "PERMISSION_DENIED")


def test_outputs_of_a_task_that_logged_nothing_are_its_artifacts(colleague, task):
    (find_outputs(task) / "sub").mkdir(parents=True)
    (find_outputs(task) / "sub" / "model.pt").write_bytes(b"weights")
    own = Mlflow(colleague.token)
    uri = own.get("runs/get", run_id=task.pk)["run"]["info"]["artifact_uri"]
    root = uri.removeprefix("mlflow-artifacts:/")
    assert own.send("GET", f"{FILES}/{root}/sub/model.pt").body == b"weights"
    assert own.get("artifacts/list", run_id=task.pk)["files"] == [{"path": "sub", "is_dir": True}]


def test_a_logged_model_is_found_and_registered(ranks, task, colleague, viewer, stranger):
    ranks.post("runs/create", experiment_id="0")
    made = ranks.post("logged-models", experiment_id="0", name="net", source_run_id=task.pk)["model"]["info"]
    root = made["artifact_uri"].removeprefix("mlflow-artifacts:/")
    upload_artifact(ranks, f"{root}/MLmodel", b"flavors: {}")
    done = ranks.send("PATCH", f"mlflow/logged-models/{made['model_id']}", {"status": "LOGGED_MODEL_READY"})
    assert done.body["model"]["info"]["status"] == "LOGGED_MODEL_READY"
    ranks.post("runs/outputs", run_id=task.pk, models=[{"model_id": made["model_id"], "step": 3}])
    run = ranks.get("runs/get", run_id=task.pk)["run"]
    assert run["outputs"]["model_outputs"] == [{"model_id": made["model_id"], "step": 3}]
    listed = ranks.get(f"logged-models/{made['model_id']}/artifacts/directories")["files"]
    assert [file["path"] for file in listed] == ["MLmodel"]
    found = Mlflow(colleague.token).post("logged-models/search", experiment_ids=[task.project_id])["models"]
    assert [one["info"]["model_id"] for one in found] == [made["model_id"]]

    ranks.post("registered-models/create", name="best net")
    assert ranks.refuse("POST", "mlflow/registered-models/create", {"name": "best net"}) == (
        400,
        "RESOURCE_ALREADY_EXISTS",
    )
    version = ranks.post(
        "model-versions/create", name="best net", source=f"models:/{made['model_id']}", model_id=made["model_id"]
    )["model_version"]
    assert (version["version"], version["run_id"]) == ("1", task.pk)
    own = Mlflow(colleague.token)
    own.post("registered-models/alias", name="best net", alias="champion", version="1")
    assert own.get("registered-models/alias", name="best net", alias="champion")["model_version"]["version"] == "1"
    assert own.get("model-versions/search", filter="name='best net'")["model_versions"][0]["aliases"] == ["champion"]
    body = {"name": "best net", "alias": "a", "version": "1"}
    assert Mlflow(viewer.token).refuse("POST", "mlflow/registered-models/alias", body)[0] == 403
    assert Mlflow(stranger.token).refuse("GET", "mlflow/registered-models/get", name="best net")[0] == 404
    assert ranks.refuse("GET", "mlflow/model-versions/get", name="best net", version="9")[0] == 404
