"""What a training pod sees of files: of the data volume only what its task needs, beside what its environment has."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.kubernetes import volumes
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import Entrypoint, JobSpec, Node
from tests.fakes.kubernetes import resources, rules, schemas
from tests.unit.engines.kubernetes.conftest import job as on_machines
from tests.unit.engines.kubernetes.conftest import rendered
from tests.unit.engines.kubernetes.test_render import document_job, objects, pod

DATA = {"mountPath": "/data", "volume": {"persistentVolumeClaim": {"claimName": "fermi-data"}}}
CONNECTION = {"data_dir": "/srv/fermi", "data": DATA}
JOB = JobSpec(
    "task-x", "ddp", (Node("env-a", "dev-a"),), "env-a", train_data="/data/datasets/v1/train.bin",
    valid_data="/data/datasets/v1/valid.bin", checkpoint_dir="/data/checkpoints/task-x",
)  # fmt: skip


def seen(spec: JobSpec, **connection: Any) -> dict[str, str]:
    """Mount path -> "ro" or "rw"; each is the same way below the volume's root."""
    found = {}
    for mount in volumes.build_data_mounts(spec, {**CONNECTION, **connection}):
        assert mount["mountPath"].endswith(f"/{mount['subPath']}"), mount
        found[mount["mountPath"]] = "ro" if mount.get("readOnly") else "rw"
    return found


def test_a_task_reads_its_dataset_and_writes_its_checkpoints() -> None:
    assert seen(JOB) == {"/data/datasets/v1": "ro", "/data/checkpoints/task-x": "rw"}
    elsewhere = replace(JOB, train_data="/srv/fermi/datasets/v1/t.bin", valid_data="", checkpoint_dir="")
    assert seen(elsewhere, data={"volume": DATA["volume"]}) == {"/srv/fermi/datasets/v1": "ro"}
    assert seen(JOB, data=None) == {}


@pytest.mark.parametrize(("script", "args", "env", "more"), [
    ("/data/workspace/ada/src/train.py", (), {}, {"/data/workspace/ada": "ro"}),
    ("/data/workspace/train.py", (), {}, {"/data/workspace": "ro"}),
    ("/home/ada/train.py", ("--data", "/data/datasets/words.txt"), {}, {"/data/datasets/words.txt": "ro"}),
    ("/home/ada/train.py", ("--data=/data/datasets/v9/x",), {}, {"/data/datasets/v9": "ro"}),
    ("/home/ada/train.py", (), {"TOKENS": "/data/workspace/bob/t"}, {"/data/workspace/bob": "ro"}),
    ("/home/ada/train.py", ("/data/secret_key", "/data/logs/task-y", "/data/checkpoints/task-y"), {}, {}),
    ("/home/ada/train.py", ("/data/datasets/../secret_key", "/data", "/data/", "/database/datasets/x/y"), {}, {}),
])  # fmt: skip
def test_a_script_sees_only_paths_that_it_and_its_arguments_name(
    script: str, args: tuple[str, ...], env: dict[str, str], more: dict[str, str]
) -> None:
    own = replace(JOB, train_data="", valid_data="", entrypoint=Entrypoint(script, args), env=env)
    assert seen(own) == {"/data/checkpoints/task-x": "rw", **more}


def test_a_resume_path_is_read_only_unless_it_is_the_tasks_own() -> None:
    other = replace(JOB, resume_from="/data/checkpoints/task-y/step_5")
    assert seen(other)["/data/checkpoints/task-y"] == "ro", "the folder that no script can exchange for a link"
    assert len(seen(other)) == 3
    assert seen(replace(JOB, resume_from="/data/checkpoints/task-x/step_5")) == seen(JOB)
    assert seen(replace(JOB, resume_from="/data/checkpoints")) == seen(JOB)
    assert seen(replace(JOB, checkpoint_dir="/data/checkpoints")) == {"/data/datasets/v1": "ro"}, "never everybody's"


def test_a_script_invisible_to_pods_is_refused_with_advice(backend: Any) -> None:
    backend.connection |= {"data": DATA}
    for script, fits in (("/data/mine/train.py", False), ("/data/workspace/a/train.py", True), ("train.py", True)):
        found = backend.problems(replace(on_machines(1), entrypoint=Entrypoint(script)))
        assert [(one.field, one.code) for one in found] == [("entrypoint.script", "PATH_NOT_SHARED")] * (not fits)


VOLUMES = {name: {"name": name, "emptyDir": {}} for name in ("shm", "fermi-data", "fermi-job", "fermi-run", "home")}


def beside(*mounts: dict[str, Any], own: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The first pod of a job on environments that have these, validated as the API server would."""
    engine = {"volumes": own or list(VOLUMES.values()), "volumeMounts": list(mounts)}
    spec = document_job(train_data="/data/datasets/v1/t", checkpoint_dir="/data/checkpoints/task-x")
    spec = replace(spec, nodes=tuple(replace(node, engine=engine) for node in spec.nodes))
    made = objects(spec, data=DATA)[2]
    assert not schemas.problems(resources.of_kind("batch/v1", "Job"), made)
    assert not list(rules_of(made))
    return made


def rules_of(obj: dict[str, Any]) -> Any:
    return rules.problems(resources.of_kind("batch/v1", "Job"), obj)


@pytest.mark.parametrize("name", VOLUMES)
def test_a_volume_name_that_conflicts_with_ours_is_changed(name: str) -> None:
    made = beside({"name": name, "mountPath": "/home/ada"})
    (mount,) = [one for one in pod(made)["containers"][0]["volumeMounts"] if one["mountPath"] == "/home/ada"]
    assert mount["name"] == (name if name == "home" else f"dev-{name}")
    assert {"name": mount["name"], "emptyDir": {}} in pod(made)["volumes"]
    assert "fermi.io/not-taken-over" not in made["spec"]["template"]["metadata"]["annotations"]


@pytest.mark.parametrize("path", ["/data", "/data/", "/dev/shm", "/fermi/run", "/fermi/job/", "/data/datasets/v1"])
def test_a_mount_that_conflicts_with_ours_is_dropped_and_previewed(path: str) -> None:
    made = beside({"name": "home", "mountPath": path}, {"name": "home", "mountPath": "/home/ada", "subPath": "ada"})
    mounts = pod(made)["containers"][0]["volumeMounts"]
    assert [one["mountPath"] for one in mounts if one["name"] == "home"] == ["/home/ada"]
    assert made["spec"]["template"]["metadata"]["annotations"]["fermi.io/not-taken-over"] == f"{path} (home)"


def test_an_environments_mount_of_the_whole_data_volume_is_dropped() -> None:
    source = {"name": "all", "persistentVolumeClaim": {"claimName": "fermi-data", "readOnly": True}}
    made = beside(
        {"name": "all", "mountPath": "/mnt/everything"}, {"name": "all", "mountPath": "/home/ada", "subPath": "ada"},
        own=[source],
    )  # fmt: skip
    assert [one["mountPath"] for one in pod(made)["containers"][0]["volumeMounts"] if one["name"] == "all"] == [
        "/home/ada"
    ]
    assert "/mnt/everything (all)" in made["spec"]["template"]["metadata"]["annotations"]["fermi.io/not-taken-over"]


def test_pods_run_as_the_configured_user_or_the_platforms_but_never_as_root() -> None:
    assert volumes.get_user({}) == volumes.get_user({"platform_user": 0}) == 1000
    assert volumes.get_user({"platform_user": 4711}) == 4711
    assert volumes.get_user({"platform_user": 4711, "run_as_user": 2000}) == 2000


def test_the_folder_that_a_pod_writes_to_belongs_to_its_user(tmp_path: Path, backend: Any) -> None:
    """By the platform, because the kubelet would make it as root's."""
    backend.connection |= {"data": {**DATA, "mountPath": str(tmp_path)}, "run_as_user": os.geteuid() + 1}
    spec = replace(on_machines(1), checkpoint_dir=str(tmp_path / "checkpoints/task-x"))
    made = next(one.content for one in rendered(backend, spec).artifacts if one.kind == "Job")
    for _ in range(2):
        volumes.prepare_folders(tmp_path, pod(made))
    folder = (tmp_path / "checkpoints/task-x").stat()
    if os.geteuid() == 0:
        assert (folder.st_uid, folder.st_gid, folder.st_mode & 0o777) == (1, 1, 0o770)
    else:
        assert folder.st_mode & 0o777 == 0o777


def test_a_project_keeps_caches_of_libraries_in_the_volume() -> None:
    assert seen(replace(JOB, project="nlp"))["/data/homes/nlp/.cache"] == "rw"
    assert volumes.find_cache_folder(replace(JOB, project="nlp"), CONNECTION) == "/data/homes/nlp/.cache"
    assert volumes.find_cache_folder(JOB, CONNECTION) == "", "of no project"
    assert volumes.find_cache_folder(replace(JOB, project="nlp"), {}) == "", "without a volume"


def test_a_link_in_place_of_the_cache_gives_nothing_away(tmp_path: Path, backend: Any) -> None:
    """Tasks on this machine own the project's home, and could make one to any folder, which root would give away."""
    backend.connection |= {"data": {**DATA, "mountPath": str(tmp_path)}, "run_as_user": os.geteuid() + 1}
    made = next(
        one.content for one in rendered(backend, replace(on_machines(1), project="nlp")).artifacts if one.kind == "Job"
    )
    (tmp_path / "homes" / "nlp").mkdir(parents=True)
    (tmp_path / "keys").mkdir(mode=0o700)
    before = (tmp_path / "keys").stat()
    (tmp_path / "homes" / "nlp" / ".cache").symlink_to(tmp_path / "keys")
    with pytest.raises(BackendError, match="DISK_UNUSABLE"):
        volumes.prepare_folders(tmp_path, pod(made))
    after = (tmp_path / "keys").stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders away")
def test_the_cache_of_another_user_stays_that_users(tmp_path: Path, backend: Any) -> None:
    backend.connection |= {"data": {**DATA, "mountPath": str(tmp_path)}, "run_as_user": 2000}
    made = next(
        one.content for one in rendered(backend, replace(on_machines(1), project="nlp")).artifacts if one.kind == "Job"
    )
    volumes.prepare_folders(tmp_path, pod(made))
    cache = tmp_path / "homes" / "nlp" / ".cache"
    assert (cache.stat().st_uid, cache.stat().st_mode & 0o777) == (2000, 0o770)
    assert (cache.parent.stat().st_uid, cache.parent.stat().st_mode & 0o022) == (0, 0), "what is above is ours"
    os.chown(cache, 61000, 61000)
    volumes.prepare_folders(tmp_path, pod(made))
    assert cache.stat().st_uid == 61000
