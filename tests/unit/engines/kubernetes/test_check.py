"""`fermi clusters check` on a Kubernetes that lacks one thing after the other."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.kubernetes import client as clients
from fermi.engines.kubernetes import entry_check, probe, volumes
from fermi.engines.kubernetes.permissions import ENVIRONMENT_RULES, RULES
from fermi.messages import render_text
from fermi.planning import checks, plugins
from tests.fakes.kubernetes import FakeCluster, Waits
from tests.fakes.kubernetes.kubelet.containers import SHIM
from tests.fakes.kubernetes.resources import PODS
from tests.polling import until

Check = Callable[..., dict[str, CheckResult]]


@pytest.fixture
def check(kubernetes: FakeCluster) -> Check:
    """Findings by code; the last of several with one code. Each is sayable, and what is not right says what to do."""

    def run(**more: Any) -> dict[str, CheckResult]:
        connection = {"kubeconfig": str(kubernetes.kubeconfig), "namespace": kubernetes.namespace, **more}
        refused = {problem.code for problem in checks.find_connection_problems("kubernetes", connection)}
        assert refused <= {"QUEUE_NEEDS_JOBSET"}, "as stored before that was refused"
        found = plugins.get_check("kubernetes").findings(connection)
        for one in found:
            for lang in ("zh", "en"):
                message, hint = render_text(one.code, lang, **one.params)
                assert message
                assert hint or one.level is CheckLevel.PASS
        return {one.code: one for one in found}

    return run


def levels(found: dict[str, CheckResult]) -> dict[str, str]:
    return {code: one.level.value for code, one in found.items()}


def test_a_cluster_with_everything_passes(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a", gpus=8)
    kubernetes.add_node("node-b", gpus=4)
    kubernetes.add_node("node-c")
    found = check()
    assert set(levels(found).values()) == {"pass"}
    assert found.keys() >= {"KUBERNETES_REACHABLE", "KUBERNETES_VERSION", "PERMISSIONS_GRANTED", "GPUS_FOUND"}
    assert found["GPUS_FOUND"].params == {"gpus": "nvidia.com/gpu × 12", "nodes": 3}


def test_an_unreachable_cluster_gives_the_reason(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.stop_api()
    found = check()
    assert levels(found) == {"KUBERNETES_UNREACHABLE": "fail"}
    assert found["KUBERNETES_UNREACHABLE"].params["why"]


def test_a_missing_kubeconfig_is_reported(check: Check) -> None:
    assert levels(check(kubeconfig="/no/such/file")) == {"ENGINE_NOT_CONFIGURED": "fail"}


@pytest.mark.parametrize("key", ["certificate-authority", "tokenFile", "client-certificate"])
def test_a_missing_file_of_a_kubeconfig_is_named(kubernetes: FakeCluster, check: Check, key: str) -> None:
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    cluster["server"] = "https://127.0.0.1:1"
    user.pop("token")
    (cluster if key.endswith("authority") else user).update({key: "/no/such/file", "client-key": "/no/such/file"})
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert "/no/such/file" in check()["ENGINE_NOT_CONFIGURED"].params["why"]


def test_rejected_credentials_are_reported(kubernetes: FakeCluster, check: Check) -> None:
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "expired"
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert levels(check()) == {"KUBERNETES_UNAUTHORIZED": "fail"}


def test_a_kubeconfig_without_credentials_is_reported(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.anonymous = True
    kubernetes.write_kubeconfig()
    assert levels(check()) == {"KUBERNETES_NO_CREDENTIALS": "fail"}


def test_an_address_without_tls_is_reported(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.speaks_https = True
    assert levels(check()) == {"KUBERNETES_NOT_HTTPS": "fail"}


@pytest.mark.parametrize("token", ["ad\tmin", "令牌"])
def test_a_token_that_no_request_can_carry_is_reported(kubernetes: FakeCluster, check: Check, token: str) -> None:
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = token
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert levels(check()) == {"CREDENTIALS_UNSENDABLE": "fail"}


def test_a_newline_after_a_token_is_ignored(kubernetes: FakeCluster, check: Check) -> None:
    """`echo secret > token` ends with one."""
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"]["token"] += "\n"
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert "KUBERNETES_REACHABLE" in check()


def test_an_old_version_fails(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.kubernetes_version = "1.29.4"
    assert levels(check())["KUBERNETES_TOO_OLD"] == "fail"


def test_a_missing_namespace_fails_with_the_command_that_creates_it(check: Check) -> None:
    missing = check(namespace="nowhere")["NAMESPACE_MISSING"]
    assert (missing.level, missing.remedy) == (CheckLevel.FAIL, "kubectl create namespace nowhere")


def test_a_namespace_that_cannot_be_read_is_judged_by_its_permissions(kubernetes: FakeCluster, check: Check) -> None:
    """With the documented rights, which live in the namespace: without it, the API server answers 403 to everything in
    it, because it looks at rights before it looks for the object."""
    kubernetes.access.deny("get", "namespaces")
    assert not check().keys() & {"NAMESPACE_MISSING", "NAMESPACE_UNSEEN"}
    assert not kubernetes.names("configmaps") or "fermi-check" not in kubernetes.names("configmaps")
    assert levels(check(namespace="nowhere"))["NAMESPACE_MISSING"] == "fail", "rights in all namespaces"
    kubernetes.access.deny("*", "*", "nowhere")
    assert levels(check(namespace="nowhere"))["NAMESPACE_UNSEEN"] == "fail"


class Volume:
    """A claim called `data` whose volume is `folder`; `data_dir` is the platform's."""

    def __init__(self, cluster: FakeCluster, check: Check, scratch: Path) -> None:
        self.cluster, self.run, self.data_dir = cluster, check, scratch / "data"
        self.data_dir.mkdir(exist_ok=True)
        cluster.add_node("node-a")

    def check(self, folder: Path | None = None, **more: Any) -> dict[str, CheckResult]:
        if folder:
            self.cluster.add_claim("data", folder)
            self.cluster.add_dev_pod("dev", "node-a", labels={"fermi.io/dev-environment": "true"})
            until(lambda: self.cluster.pods("dev")[0]["spec"].get("nodeName"), what="the dev pod is placed")
        data = {"mountPath": "/data", "volume": {"persistentVolumeClaim": {"claimName": "data"}}}
        checked = checks.find_connection_problems("kubernetes", {"data": data})
        assert not checked
        found = self.run(**{"data": data, "python": sys.executable, **more})
        assert list(self.data_dir.glob("*/fermi-probe-*")) == [], "it leaves nothing behind"
        until(lambda: not self.cluster.pods("fermi-probe-*"), what="no pod either")
        return found


@pytest.fixture
def volume(kubernetes: FakeCluster, tmp_path: Path) -> Volume:
    return volume_of(kubernetes, tmp_path)


def volume_of(kubernetes: FakeCluster, scratch: Path) -> Volume:
    def run(**more: Any) -> dict[str, CheckResult]:
        connection = {
            "kubeconfig": str(kubernetes.kubeconfig), "namespace": kubernetes.namespace,
            "data_dir": str(scratch / "data"), **more,
        }  # fmt: skip
        asked = clients.KubernetesClient(connection)
        try:
            found = list(probe.check_volume(asked, connection))
        finally:
            asked.close()
        for one in found:
            for lang in ("zh", "en"):
                message, hint = render_text(one.code, lang, **one.params)
                assert message
                assert hint or one.level is CheckLevel.PASS
        return {one.code: one for one in found}

    return Volume(kubernetes, run, scratch)


def test_a_pod_that_reads_and_writes_through_the_volume_passes(volume: Volume) -> None:
    user = os.geteuid() or 1000
    assert volume.check(volume.data_dir, platform_user=os.geteuid())["VOLUME_USABLE"].params["user"] == user


def test_a_volume_other_than_the_data_directory_fails(volume: Volume, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    assert levels(volume.check(other)) == {"VOLUME_OTHER": "fail"}


def test_a_volume_is_not_tested_without_an_environment(volume: Volume) -> None:
    assert levels(volume.check()) == {"VOLUME_UNTESTED": "warn"}


def test_a_probe_pod_that_does_not_start_gives_the_reason(volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_SECONDS", 1.0)
    volume.cluster.script("fermi-probe-*", Waits("ImagePullBackOff", "Back-off pulling image"))
    found = volume.check(volume.data_dir)["VOLUME_UNTESTED"]
    assert "ImagePullBackOff" in found.params["why"]


def test_secret_keys_in_the_volume_are_reported(volume: Volume, tmp_path: Path) -> None:
    (volume.data_dir / "secret_key").write_text("x")
    (tmp_path / "elsewhere").write_text("x")
    private = [str(volume.data_dir / "secret_key"), str(volume.data_dir / "gone"), str(tmp_path / "elsewhere")]
    found = volume.check(volume.data_dir, private=private)["VOLUME_HOLDS_SECRETS"]
    assert (found.level, found.params["files"]) == (CheckLevel.WARN, "secret_key")


@pytest.mark.parametrize(("umask", "handed_over", "code"), [
    (0o022, True, "VOLUME_USABLE"), (0o077, True, "VOLUME_UNREADABLE"), (0o022, False, "VOLUME_UNWRITABLE"),
])  # fmt: skip
def test_the_probe_script_finds_denied_paths(
    monkeypatch: pytest.MonkeyPatch, umask: int, handed_over: bool, code: str
) -> None:
    """As a process of user 1000 in real folders of root's: of mode 0700 or 0755, and one that a server which takes root
    for nobody does not let us hand over."""
    if os.geteuid() != 0:
        pytest.skip("only root has processes of other users")
    if not (python := python_of(1000)):
        pytest.skip("user 1000 can run no interpreter of this machine, or not read this checkout")
    if not handed_over:
        monkeypatch.setattr(volumes, "prepare_folders", kept)
    with tempfile.TemporaryDirectory(prefix="fermi-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own cannot be passed by others
        cluster = FakeCluster(folder / "kubernetes").start()
        cluster.kubelets.as_users = python
        before = os.umask(umask)
        try:
            for one in ("data", "data/workspace", "data/checkpoints"):
                (folder / one).mkdir()
                (folder / one).chmod(0o755)
            found = volume_of(cluster, folder).check(folder / "data", platform_user=0, python=python)
        finally:
            os.umask(before)
            cluster.close()
    assert list(found) == [code]
    assert found[code].params["user"] == 1000
    assert code == "VOLUME_USABLE" or "Permission denied" in found[code].params["why"]
    assert not cluster.errors


def python_of(user: int) -> str:
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        command = [python, "-I", "-S", str(SHIM), python, "-c", "import json"]
        with suppress(OSError):
            if not subprocess.run(command, cwd="/", user=user, group=user, extra_groups=[]).returncode:
                return python
    return ""


def kept(data_dir: Path, pod: dict[str, Any]) -> None:
    for mount in pod["containers"][0]["volumeMounts"]:
        (data_dir / mount["subPath"]).mkdir(exist_ok=True)


@pytest.mark.parametrize(("said", "code"), [
    ({"read": "", "written": ""}, "VOLUME_USABLE"),
    ({"read": "[Errno 13] Permission denied", "written": ""}, "VOLUME_UNREADABLE"),
    ({"read": "", "written": "[Errno 30] Read-only file system"}, "VOLUME_UNWRITABLE"),
    ({"read": "[Errno 2] No such file", "absent": True, "written": ""}, "VOLUME_OTHER"),
    ({"read": "other content", "written": ""}, "VOLUME_OTHER"),
    ({}, "VOLUME_UNTESTED"),
])  # fmt: skip
def test_the_probe_pods_output_becomes_the_result(tmp_path: Path, said: dict[str, Any], code: str) -> None:
    answer = tmp_path / "answer"
    answer.write_text("word")
    ended = {"exitCode": 0, "message": json.dumps(said)}
    pod = {
        "metadata": {"name": "p"},
        "status": {"containerStatuses": [{"name": "node", "state": {"terminated": ended}}]},
    }
    found = probe._judge_answer(None, pod, {"user": 1000, "path": "/srv"}, answer, "word")  # type: ignore[arg-type]
    assert found.code == code
    answer.write_text("another")
    if code == "VOLUME_USABLE":
        assert probe._judge_answer(None, pod, {}, answer, "word").code == "VOLUME_OTHER"  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.purpose == "training"], ids=lambda rule: rule.resource)
def test_every_missing_permission_is_reported_with_the_rule_to_add(
    kubernetes: FakeCluster,
    check: Check,
    rule: Any,
) -> None:
    resource, _, below = rule.resource.partition("/")
    name = ".".join(filter(None, [resource, rule.group])) + (f"/{below}" if below else "")
    kubernetes.access.deny(rule.verbs[-1], name)
    found = check()
    missing = found["PERMISSION_MISSING"]
    assert missing.level is CheckLevel.FAIL
    assert missing.params["verbs"] == rule.verbs[-1]
    assert yaml.safe_load(missing.remedy) == [rule.to_json()]
    assert "PERMISSIONS_GRANTED" not in found


@pytest.mark.parametrize(
    ("denied", "purpose"),
    [("nodes", "nodes"), ("leases.coordination.k8s.io", "fencing"), ("statefulsets.apps", "discovery"),
     ("resourceclaims.resource.k8s.io", "dra"), ("pods/exec", "inside")],
)  # fmt: skip
def test_optional_permissions_are_recommended(
    kubernetes: FakeCluster,
    check: Check,
    denied: str,
    purpose: str,
) -> None:
    kubernetes.access.deny("*", denied)
    found = check()
    assert (found["PERMISSION_ADVISED"].level, found["PERMISSION_ADVISED"].params["purpose"]) == (
        CheckLevel.WARN,
        purpose,
    )
    assert "PERMISSIONS_GRANTED" in found


def test_permissions_are_required_only_where_the_connection_uses_them(
    kubernetes: FakeCluster,
    check: Check,
) -> None:
    kubernetes.access.deny("patch", "nodes")
    kubernetes.access.deny("*", "jobsets.*")
    assert not check().keys() & {"PERMISSION_MISSING", "PERMISSION_ADVISED"}
    assert check(out_of_service_taint=True)["PERMISSION_MISSING"].params["resource"] == "nodes"
    assert check(jobset=True)["PERMISSION_MISSING"].params["resource"] == "jobsets.jobset.x-k8s.io"


def add_shell(cluster: FakeCluster, name: str, namespace: str = "") -> None:
    """A dev pod whose container has processes, ready to be entered."""
    main = {"name": "main", "image": "training:1", "command": ["sleep", "infinity"]}
    labels = {"fermi.io/dev-environment": "true"}
    cluster.add_pod(name, {"nodeName": "node-a", "containers": [main]}, namespace=namespace, labels=labels)
    until(lambda: "Ready" in ready(cluster, name, namespace), what=f"{name} is ready")


def ready(cluster: FakeCluster, name: str, namespace: str) -> set[str]:
    found = cluster.api.get(PODS, namespace or cluster.namespace, name).get("status") or {}
    return {one["type"] for one in found.get("conditions") or [] if one["status"] == "True"}


def test_one_dev_environment_of_each_namespace_is_entered(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a", gpus=8)
    assert check(environmentNamespaces=["notebooks"])["INSIDE_UNTRIED"].level is CheckLevel.PASS
    kubernetes.add_namespace("notebooks")
    add_shell(kubernetes, "dev")
    add_shell(kubernetes, "lab", "notebooks")
    works = check(python=sys.executable)["INSIDE_WORKS"]
    assert (works.level, works.params["environment"]) == (CheckLevel.PASS, "fermi/dev")
    assert works.params["python"]
    elsewhere = check(environmentNamespaces=["notebooks"])["INSIDE_WORKS"]
    assert elsewhere.params["environment"] == "notebooks/lab"


def test_an_environment_that_cannot_be_entered_gives_the_reason(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a", gpus=8)
    add_shell(kubernetes, "dev")
    unusable = check(python="/no/such/python")["INSIDE_PYTHON_UNUSABLE"]
    assert (unusable.level, unusable.params["environment"]) == (CheckLevel.WARN, "fermi/dev")
    kubernetes.access.deny("get", "pods/exec")
    found = check()
    assert found["INSIDE_FORBIDDEN"].level is CheckLevel.WARN
    assert found["PERMISSION_ADVISED"].params["purpose"] == "inside"
    assert "inside" in render_text("PERMISSION_ADVISED", "en", **found["PERMISSION_ADVISED"].params)[0]


def test_an_unresponsive_environment_is_skipped(
    kubernetes: FakeCluster, check: Check, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(entry_check, "TIMEOUT_SECONDS", 0.1)
    (tmp_path / "mute").write_text("#!/bin/sh\nexec cat >/dev/null\n")
    (tmp_path / "mute").chmod(0o755)
    kubernetes.add_node("node-a", gpus=8)
    add_shell(kubernetes, "dev")
    silent = check(python=str(tmp_path / "mute"))["INSIDE_SILENT"]
    assert silent.params == {"environment": "fermi/dev", "why": "no answer in 0.1 s"}


def test_permissions_in_an_environment_namespace_are_reported_one_by_one(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_namespace("notebooks")
    assert "PERMISSIONS_GRANTED_INSIDE" in check(environmentNamespaces=["notebooks"])
    kubernetes.access.deny("create", "pods/exec", "notebooks")
    found = check(environmentNamespaces=["notebooks"])
    advised = found["PERMISSION_ADVISED"]
    assert advised.params["namespace"] == "notebooks"
    assert yaml.safe_load(advised.remedy) == [rule.to_json() for rule in ENVIRONMENT_RULES if "exec" in rule.resource]
    assert not found.keys() & {"PERMISSIONS_GRANTED_INSIDE", "PERMISSION_MISSING"}
    assert "PERMISSIONS_GRANTED" in found, "training works"
    kubernetes.access.deny("*", "*", "notebooks")
    found = check(environmentNamespaces=["notebooks"])
    assert "PERMISSIONS_GRANTED" in found
    assert "PERMISSION_ADVISED" not in found, "one word for all of it"
    assert (found["NAMESPACE_UNSEEN"].level, found["NAMESPACE_UNSEEN"].params["namespace"]) == (
        CheckLevel.WARN,
        "notebooks",
    )


def test_a_missing_environment_namespace_is_a_warning(check: Check) -> None:
    missing = check(environmentNamespaces=["nowhere"])["NAMESPACE_MISSING"]
    assert (missing.level, missing.params["namespace"]) == (CheckLevel.WARN, "nowhere")


@pytest.mark.parametrize("namespaces", ["notebooks", ["Notebooks"], ["a/b"], [f"n{i}" for i in range(21)], [""]])
def test_an_invalid_list_of_namespaces_is_refused(namespaces: Any) -> None:
    assert checks.find_connection_problems("kubernetes", {"environmentNamespaces": namespaces})


def test_nodes_without_gpus_are_a_warning(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a")
    assert levels(check())["GPUS_NOT_FOUND"] == "warn"


@pytest.mark.parametrize(("option", "value", "feature"), [("jobset", True, "JobSet"), ("queue", "gpus", "Kueue")])
def test_apis_required_by_the_connection_must_be_installed(
    kubernetes: FakeCluster,
    check: Check,
    option: str,
    value: Any,
    feature: str,
) -> None:
    missing = check(**{option: value})["FEATURE_MISSING"]
    assert (missing.level, missing.params) == (CheckLevel.FAIL, {"feature": feature, "option": option})
    kubernetes.server.features.add(feature.lower())
    assert "FEATURE_MISSING" not in check(**{option: value})


def test_a_queue_without_jobset_fails(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.install("kueue", "jobset")
    kubernetes.add_queue("gpus")
    assert levels(check(queue="gpus"))["QUEUE_NEEDS_JOBSET"] == "fail"
    assert "QUEUE_NEEDS_JOBSET" not in check(queue="gpus", jobset=True)


def test_a_missing_queue_fails(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.features.add("kueue")
    assert levels(check(queue="gpus"))["QUEUE_MISSING"] == "fail"


def test_every_queue_and_priority_class_of_the_connection_is_checked(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.install("kueue", "jobset")
    kubernetes.add_queue("gpus")
    kubernetes.add_class("express", 1000)
    queue = {"default": "gpus", "projects": {"nlp": "words"}}
    found = check(queue=queue, jobset=True, priority_classes={"low": "background", "urgent": "express"})
    assert found["QUEUE_MISSING"].params["queue"] == "words"
    assert found["PRIORITY_CLASS_MISSING"].params == {"kind": "WorkloadPriorityClass", "name": "background"}
    plain = check(priority_classes={"high": "express"})
    assert plain["PRIORITY_CLASS_MISSING"].params == {"kind": "PriorityClass", "name": "express"}
    kubernetes.add_pod_class("express", 1000)
    assert "PRIORITY_CLASS_MISSING" not in check(priority_classes={"high": "express"})


def test_support_for_queue_positions_is_reported(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.install("kueue", "jobset")
    kubernetes.add_queue("gpus")
    assert levels(check(queue="gpus", jobset=True))["QUEUE_POSITIONS_ABSENT"] == "warn"
    kubernetes.install("visibility")
    assert levels(check(queue="gpus", jobset=True))["QUEUE_POSITIONS_TOLD"] == "pass"
    kubernetes.access.deny("get", "*/pendingworkloads")
    found = check(queue="gpus", jobset=True)
    assert found["PERMISSION_ADVISED"].params["purpose"] == "positions"
    assert "PERMISSION_ADVISED" not in check()
