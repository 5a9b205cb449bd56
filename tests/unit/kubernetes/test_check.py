"""`fermi clusters check` on a Kubernetes that lacks one thing after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from fermi.launch import checks, registry
from fermi.launch.backends.kubernetes.permissions import RULES
from fermi.launch.checks import Finding, Level
from fermi.messages import text
from tests.fakes.kubernetes import FakeCluster

Check = Callable[..., dict[str, Finding]]


@pytest.fixture
def check(kubernetes: FakeCluster) -> Check:
    """Findings by code; the last of several with one code. Each is sayable, and what is not right says what to do."""

    def run(**more: Any) -> dict[str, Finding]:
        connection = {"kubeconfig": str(kubernetes.kubeconfig), "namespace": kubernetes.namespace, **more}
        assert checks.problems("kubernetes", connection) == []
        found = registry.check("kubernetes").findings(connection)
        for one in found:
            for lang in ("zh", "en"):
                message, hint = text(one.code, lang, **one.params)
                assert message
                assert hint or one.level is Level.PASS
        return {one.code: one for one in found}

    return run


def levels(found: dict[str, Finding]) -> dict[str, str]:
    return {code: one.level.value for code, one in found.items()}


def test_a_cluster_with_everything_passes(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a", gpus=8)
    kubernetes.add_node("node-b", gpus=4)
    kubernetes.add_node("node-c")
    found = check()
    assert set(levels(found).values()) == {"pass"}
    assert found.keys() >= {"KUBERNETES_REACHABLE", "KUBERNETES_VERSION", "PERMISSIONS_GRANTED", "GPUS_FOUND"}
    assert found["GPUS_FOUND"].params == {"gpus": "nvidia.com/gpu × 12", "nodes": 3}


def test_one_that_cannot_be_reached_says_why(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.stop_api()
    found = check()
    assert levels(found) == {"KUBERNETES_UNREACHABLE": "fail"}
    assert found["KUBERNETES_UNREACHABLE"].params["why"]


def test_a_kubeconfig_that_is_not_there_is_told(check: Check) -> None:
    assert levels(check(kubeconfig="/no/such/file")) == {"KUBERNETES_UNREACHABLE": "fail"}


def test_credentials_that_are_not_accepted_are_told(kubernetes: FakeCluster, check: Check) -> None:
    config = yaml.safe_load(kubernetes.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "expired"
    kubernetes.kubeconfig.write_text(yaml.safe_dump(config))
    assert levels(check()) == {"KUBERNETES_UNAUTHORIZED": "fail"}


def test_an_old_version_fails(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.kubernetes_version = "1.29.4"
    assert levels(check())["KUBERNETES_TOO_OLD"] == "fail"


def test_a_missing_namespace_fails_with_the_command_that_makes_it(check: Check) -> None:
    missing = check(namespace="nowhere")["NAMESPACE_MISSING"]
    assert (missing.level, missing.remedy) == (Level.FAIL, "kubectl create namespace nowhere")


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.purpose == "training"], ids=lambda rule: rule.resource)
def test_every_permission_that_training_needs_is_missed_with_the_rule_to_add(
    kubernetes: FakeCluster,
    check: Check,
    rule: Any,
) -> None:
    resource, _, below = rule.resource.partition("/")
    name = ".".join(filter(None, [resource, rule.group])) + (f"/{below}" if below else "")
    kubernetes.access.deny(rule.verbs[-1], name)
    found = check()
    missing = found["PERMISSION_MISSING"]
    assert missing.level is Level.FAIL
    assert missing.params["verbs"] == rule.verbs[-1]
    assert yaml.safe_load(missing.remedy) == [rule.to_json()]
    assert "PERMISSIONS_GRANTED" not in found


@pytest.mark.parametrize(
    ("denied", "purpose"),
    [("nodes", "nodes"), ("leases.coordination.k8s.io", "fencing"), ("statefulsets.apps", "discovery"),
     ("resourceclaims.resource.k8s.io", "dra")],
)  # fmt: skip
def test_what_training_can_do_without_is_advised(
    kubernetes: FakeCluster,
    check: Check,
    denied: str,
    purpose: str,
) -> None:
    kubernetes.access.deny("*", denied)
    found = check()
    assert (found["PERMISSION_ADVISED"].level, found["PERMISSION_ADVISED"].params["purpose"]) == (Level.WARN, purpose)
    assert "PERMISSIONS_GRANTED" in found


def test_a_permission_is_asked_for_only_where_the_connection_has_a_use_for_it(
    kubernetes: FakeCluster,
    check: Check,
) -> None:
    kubernetes.access.deny("patch", "nodes")
    kubernetes.access.deny("*", "jobsets.*")
    assert not check().keys() & {"PERMISSION_MISSING", "PERMISSION_ADVISED"}
    assert check(out_of_service_taint=True)["PERMISSION_MISSING"].params["resource"] == "nodes"
    assert check(jobset=True)["PERMISSION_MISSING"].params["resource"] == "jobsets.jobset.x-k8s.io"


def test_nodes_without_gpus_are_a_warning(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.add_node("node-a")
    assert levels(check())["GPUS_NOT_FOUND"] == "warn"


@pytest.mark.parametrize(("option", "value", "feature"), [("jobset", True, "JobSet"), ("queue", "gpus", "Kueue")])
def test_what_the_connection_asks_for_must_be_installed(
    kubernetes: FakeCluster,
    check: Check,
    option: str,
    value: Any,
    feature: str,
) -> None:
    missing = check(**{option: value})["FEATURE_MISSING"]
    assert (missing.level, missing.params) == (Level.FAIL, {"feature": feature, "option": option})
    kubernetes.server.features.add(feature.lower())
    assert "FEATURE_MISSING" not in check(**{option: value})


def test_a_queue_that_is_not_there_fails(kubernetes: FakeCluster, check: Check) -> None:
    kubernetes.server.features.add("kueue")
    assert levels(check(queue="gpus"))["QUEUE_MISSING"] == "fail"
