"""Training on Kubernetes, from submit to nothing left: on the fake cluster, and (marked `cluster`) on a real one."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fermi.jobs.spec import Phase
from fermi.tokenized_data import iter_stdlib_files, tokenize_text
from tests.e2e.kubernetes_lab import Lab, on_a_real_one, on_the_fake, with_engine, with_image

pytestmark = pytest.mark.e2e

REAL = pytest.param(
    "real",
    marks=[
        pytest.mark.cluster,
        pytest.mark.timeout(1800),
        pytest.mark.skipif("FERMI_TEST_KUBECONFIG" not in os.environ, reason="FERMI_TEST_KUBECONFIG names no cluster"),
    ],
)


@pytest.fixture(params=["fake", REAL])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    with (on_the_fake if request.param == "fake" else on_a_real_one)(tmp_path) as lab:
        yield lab


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Lab]:
    with on_the_fake(tmp_path) as lab:
        yield lab


@pytest.fixture(params=["jobs", "jobset"])
def connection(request: pytest.FixtureRequest, lab: Lab) -> dict:
    if request.param == "jobset" and not lab.has("jobset.x-k8s.io"):
        pytest.skip("the cluster has no JobSet")
    return {"jobset": request.param == "jobset"}


def test_nodes_rendezvous_and_no_object_is_left(lab, connection):
    platform = lab.platform(**connection)
    handle = lab.submit(platform, lab.job("meet", (1, 2)))
    lab.until_phase(platform, handle, Phase.SUCCEEDED)
    seen = lab.until_gone(platform, handle)
    assert [rank.exit_code for rank in seen.ranks] == [0, 0, 0]
    assert [lab.log(platform, handle, rank) for rank in range(3)] == [f"rank {rank} of 3: sum 3\n" for rank in range(3)]
    lab.end_attempt(platform, handle)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_two_pods_train_with_ddp(lab):
    platform = lab.platform()
    handle = lab.submit(platform, lab.job("train"))
    lab.until_phase(platform, handle, Phase.SUCCEEDED)
    lab.until_gone(platform, handle)
    first, second = (lab.log(platform, handle, rank).splitlines()[-1] for rank in range(2))
    if "no torch" in first and lab.fake is None:
        pytest.skip("the image has no torch")
    assert first.rpartition('"weight"')[2] == second.rpartition('"weight"')[2]
    assert '"step": 50' in first


def test_a_failed_rank_is_named_and_its_peers_end(lab, connection):
    platform = lab.platform(**connection)
    handle = lab.submit(platform, lab.job("fail"))
    seen = lab.until_phase(platform, handle, Phase.FAILED)
    assert (seen.cause.code, seen.cause.params["rank"], seen.cause.params["exitCode"]) == ("RANK_FAILED", 1, 1)
    assert "ValueError: out of luck" in seen.cause.params["evidence"]
    lab.end_attempt(platform, handle)
    assert "ValueError: out of luck" in lab.log(platform, handle, 1)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_cancelling_asks_first_and_keeps_the_last_output(lab, connection):
    platform = lab.platform(**connection)
    handle = lab.submit(platform, lab.job("wait"))
    lab.until(lambda: all("ready" in lab.log(platform, handle, rank) for rank in range(2)), what="ranks ready")
    platform.backend.cancel(handle, 20.0)
    platform.backend.cancel(handle, 20.0)
    seen = lab.until_gone(platform, handle)
    assert [rank.exit_code for rank in seen.ranks] == [143, 143]
    assert all("leaving" in lab.log(platform, handle, rank) for rank in range(2))
    platform.backend.delete_attempt(handle)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_submitting_again_starts_nothing_twice(lab):
    platforms = [lab.platform(), lab.platform()]
    job = lab.job("wait")
    for platform in (*platforms, *platforms):
        handle = lab.submit(platform, job)
    for platform in platforms:
        lab.until_phase(platform, handle, Phase.RUNNING)
    assert len(lab.pods(handle)) == 2
    lab.end_attempt(platforms[0], handle)


def test_a_cancelled_attempt_never_starts(lab):
    platform = lab.platform()
    job = lab.job("wait")
    handle = lab.submit(platform, job)
    lab.until_gone(platform, handle, grace=0.0)
    lab.submit(platform, job)
    assert not [pod for pod in lab.pods(handle) if pod.status.phase == "Running"]
    lab.end_attempt(platform, handle)


def test_the_next_attempt_starts_without_pods_of_the_last(lab):
    platform = lab.platform()
    job = lab.job("fail")
    first = lab.submit(platform, job)
    lab.until_phase(platform, first, Phase.FAILED)
    lab.end_attempt(platform, first)
    second = lab.submit(platform, replace(lab.job("meet"), task_id=job.task_id, attempt=2))
    lab.until_phase(platform, second, Phase.SUCCEEDED)
    assert {pod.metadata.labels["fermi.io/attempt"] for pod in lab.pods(second)} == {"2"}
    lab.end_attempt(platform, second)


def test_logs_continue_after_a_restart_of_the_platform(lab):
    platform = lab.platform()
    handle = lab.submit(platform, lab.job("lines"))
    lab.until(lambda: "line 200 " in lab.log(platform, handle, 0), what="some lines")
    platform.close()
    again = lab.platform()
    lab.until_phase(again, handle, Phase.SUCCEEDED)
    lab.until_gone(again, handle)
    for rank in range(2):
        expected = [f"line {number} of rank {rank}" for number in range(3000)]
        assert lab.log(again, handle, rank).splitlines() == expected
    lab.end_attempt(again, handle)


def test_an_image_that_cannot_be_pulled_is_the_reason_to_wait(lab):
    platform = lab.platform()
    handle = lab.submit(platform, with_image(lab.job("wait"), "registry.invalid/nobody/nothing:1"))
    waiting = lab.until_waiting(platform, handle, "IMAGE_UNAVAILABLE").waiting
    assert "registry.invalid" in waiting.params["evidence"]
    assert waiting.params["node"] in ("dev-0", "dev-1")
    lab.end_attempt(platform, handle)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_missing_gpus_are_the_reason_to_wait(lab):
    platform = lab.platform()
    job = lab.job("wait", (1,))
    nodes = tuple(replace(node, emulated=False, gpu_count=1000) for node in job.nodes)
    handle = lab.submit(platform, with_engine(replace(job, nodes=nodes), resource="nvidia.com/gpu"))
    assert (
        "Insufficient nvidia.com/gpu"
        in lab.until_waiting(platform, handle, "GPU_INSUFFICIENT").waiting.params["evidence"]
    )
    lab.end_attempt(platform, handle)


def test_an_environment_whose_machine_was_removed_fails_at_once(lab):
    platform = lab.platform()
    handle = lab.submit(platform, with_engine(lab.job("wait"), node="no-such-machine"))
    assert lab.until_phase(platform, handle, Phase.FAILED).cause.code == "NODE_MISSING"
    lab.end_attempt(platform, handle)


def test_a_deleted_pod_is_named(lab):
    platform = lab.platform()
    handle = lab.submit(platform, lab.job("wait"))
    lab.until_phase(platform, handle, Phase.RUNNING)
    (victim,) = [pod for pod in lab.pods(handle) if pod.metadata.labels["fermi.io/node-rank"] == "1"]
    lab.core.delete_namespaced_pod(victim.metadata.name, lab.namespace, grace_period_seconds=1)
    cause = lab.until_phase(platform, handle, Phase.FAILED).cause
    assert cause.params["node"] == "dev-1"
    lab.end_attempt(platform, handle)


def test_a_queue_without_a_name_holds_a_task_back(lab, connection):
    if not lab.has("kueue.x-k8s.io"):
        pytest.skip("the cluster has no Kueue")
    platform = lab.platform(queue="no-such-queue", **connection)
    handle = lab.submit(platform, lab.job("meet"))

    def told() -> bool:
        """By Kueue, some time after it has held the task back."""
        waiting = lab.until_waiting(platform, handle, "QUEUE_WAITING").waiting
        return "no-such-queue" in waiting.params["evidence"]

    lab.until(told, what="which queue there is not")
    assert lab.pods(handle) == []
    lab.end_attempt(platform, handle)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_orphaned_objects_are_found_and_removed(lab):
    platform = lab.platform()
    handle = lab.submit(platform, lab.job("wait"))
    lab.until_phase(platform, handle, Phase.RUNNING)
    again = lab.platform()
    assert again.backend.orphans([handle.name]) == []
    (orphan,) = lab.until(lambda: again.backend.orphans([]), what="the orphan is found")
    assert orphan.name == handle.name
    again.backend.delete_attempt(orphan)
    lab.until(lambda: not lab.left(), what="an empty namespace")


def test_the_gpt_recipe_trains_on_two_pods_with_a_dataset(fake, tmp_path):
    """The trainer is shipped with the job, the data comes from a claim, checkpoints are where the platform looks."""
    data = tokenize_text(iter_stdlib_files(max_bytes=300_000), fake.data_dir / "datasets" / "d")
    fake.fake.add_claim("platform-data", fake.data_dir)
    platform = fake.platform(data={"volume": {"persistentVolumeClaim": {"claimName": "platform-data"}}})
    checkpoints = fake.data_dir / "checkpoints" / "t"
    tiny = {
        "totalSteps": 6, "layers": 1, "heads": 2, "hiddenSize": 16, "sequenceLength": 16, "batchSize": 2,
        "checkpointEvery": 3, "evalEvery": 3, "evalBatches": 2, "logEvery": 1, "learningRate": 0.01,
    }  # fmt: skip
    job = fake.job(
        "", (1, 2), entrypoint=None, hyperparameters=tiny, train_data=str(data.train_path),
        valid_data=str(data.valid_path), checkpoint_dir=str(checkpoints),
    )  # fmt: skip
    handle = fake.submit(platform, job)
    fake.until_phase(platform, handle, Phase.SUCCEEDED)
    fake.until_gone(platform, handle)
    lines = fake.log(platform, handle, 0).splitlines()
    assert [step for step in range(1, 7) if any(line.startswith(f'{{"step": {step},') for line in lines)] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert sorted(path.name for path in checkpoints.iterdir())[-1] == "checkpoint_step_6.pt"
    fake.end_attempt(platform, handle)
    fake.until(lambda: not fake.left(), what="an empty namespace")


def test_kueue_admits_when_there_is_quota(fake):
    fake.fake.add_queue("team")
    fake.fake.deny_quota()
    platform = fake.platform(queue="team")
    handle = fake.submit(platform, fake.job("meet"))

    def gives_reason() -> bool:  # Kueue writes its message a moment after the job is held
        waiting = fake.until_waiting(platform, handle, "QUEUE_WAITING").waiting
        return "insufficient unused quota for nvidia.com/gpu" in waiting.params["evidence"]

    fake.until(gives_reason, what="Kueue's reason")
    fake.fake.admit()
    fake.until_phase(platform, handle, Phase.SUCCEEDED)
    fake.until_gone(platform, handle)


def test_an_idle_task_makes_no_request(fake):
    platform = fake.platform()
    handle = fake.submit(platform, fake.job("wait"))
    fake.until(lambda: all("ready" in fake.log(platform, handle, rank) for rank in range(2)), what="ranks ready")
    fake.until(lambda: platform.backend.observe([handle])[handle.name].phase is Phase.RUNNING)
    before = len(fake.fake.calls())
    for _ in range(500):
        assert platform.backend.observe([handle])[handle.name].phase is Phase.RUNNING
    assert len(fake.fake.calls()) == before
    fake.end_attempt(platform, handle)
