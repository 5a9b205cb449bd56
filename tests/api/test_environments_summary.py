"""What a choice of environments adds up to."""

import pytest

from apps.clusters.models import DevEnvironment
from tests.api.conftest import Api

pytestmark = pytest.mark.usefixtures("environments")
SUMMARY = "/dev-environments/summary"


def codes(data: dict) -> set[str]:
    return {warning["code"] for warning in data["warnings"]} - {"EMULATED_GPUS"}


def test_the_documents_example_has_14_gpus_in_three_zones(viewer: Api) -> None:
    data = viewer.post(SUMMARY, {"environmentIds": ["env-001", "env-003", "env-005"]}).data
    warnings = data.pop("warnings")
    assert data == {
        "nodeCount": 3,
        "totalGpus": 14,
        "worldSize": 14,
        "totalCpus": 112,
        "totalMemoryGb": 896,
        "gpuTypes": ["A100"],
        "zones": ["北京可用区A", "深圳可用区C", "上海可用区A"],
        "crossZone": True,
        "isDistributed": True,
    }
    assert [warning["code"] for warning in warnings] == ["CROSS_ZONE", "EMULATED_GPUS"]
    assert all(warning["message"] and warning["hint"] for warning in warnings)


def test_one_environment_is_not_distributed(viewer: Api) -> None:
    data = viewer.post(SUMMARY, {"environmentIds": ["env-001"], "masterNode": "env-001"}).data
    assert (data["isDistributed"], data["totalGpus"], codes(data)) == (False, 2, set())


def test_an_empty_choice_has_zero_totals(viewer: Api) -> None:
    data = viewer.post(SUMMARY, {"environmentIds": []}).data
    assert (data["nodeCount"], data["worldSize"], data["warnings"]) == (0, 0, [])


def test_different_gpus_in_one_zone_give_a_warning(viewer: Api) -> None:
    data = viewer.post(SUMMARY, {"environmentIds": ["env-001", "env-002"]}).data
    assert data["gpuTypes"] == ["A100", "V100"]
    assert codes(data) == {"GPU_TYPES_DIFFER"}


def test_a_master_outside_the_largest_zone_gives_a_warning(viewer: Api) -> None:
    choice = {"environmentIds": ["env-001", "env-003", "env-005"]}
    assert "MASTER_NOT_BEST" in codes(viewer.post(SUMMARY, {**choice, "masterNode": "env-001"}).data)
    assert "MASTER_NOT_BEST" not in codes(viewer.post(SUMMARY, {**choice, "masterNode": "env-005"}).data)


def test_different_software_versions_are_named(viewer: Api) -> None:
    DevEnvironment.objects.filter(pk="env-002").update(versions={"python": "3.11.9", "torch": "2.4.0"})
    data = viewer.post(SUMMARY, {"environmentIds": ["env-001", "env-002"]}).data
    [message] = [warning["message"] for warning in data["warnings"] if warning["code"] == "VERSIONS_DIFFER"]
    assert "torch 2.13.0 / 2.4.0" in message
    assert "python" not in message


def test_every_unknown_name_is_reported(viewer: Api, stranger: Api) -> None:
    answer = viewer.post(SUMMARY, {"environmentIds": ["env-001", "env-001", "env-x"], "masterNode": "env-005"})
    assert answer.problems == {
        "environmentIds.1": "ENVIRONMENT_DUPLICATE",
        "environmentIds.2": "ENVIRONMENT_UNKNOWN",
        "masterNode": "MASTER_NOT_SELECTED",
    }
    foreign = stranger.post(SUMMARY, {"environmentIds": ["env-001"]})
    assert foreign.problems == {"environmentIds.0": "ENVIRONMENT_UNKNOWN"}


def test_summary_queries_do_not_grow_with_environments(viewer: Api, django_assert_num_queries: object) -> None:
    for choice in (["env-001"], ["env-001", "env-002", "env-003", "env-005"]):
        with django_assert_num_queries(2):  # who is asking; the environments
            viewer.post(SUMMARY, {"environmentIds": choice})
