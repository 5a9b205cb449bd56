"""The console adds choices up by itself, for an answer without a round trip: `tests/shared/summaries.json` holds it and
the platform to the same sums, warnings and words (`frontend/src/pages/create/rules.test.ts` reads it too)."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.accounts.models import Project
from apps.clusters.models import AvailabilityZone, Cluster, DevEnvironment, EnvironmentKind, EnvironmentStatus
from tests.api.conftest import Api

CASES = json.loads((Path(__file__).parents[1] / "shared/summaries.json").read_text())


@pytest.fixture
def chosen(request: pytest.FixtureRequest, project: Project, cluster: Cluster) -> dict[str, Any]:
    for facts in request.param["environments"]:
        zone, _ = AvailabilityZone.objects.get_or_create(name=facts["zone"])
        DevEnvironment.objects.create(
            pk=facts["id"],
            name=facts["name"],
            project=project,
            cluster=cluster,
            zone=zone,
            kind=EnvironmentKind.CUSTOM,
            status=EnvironmentStatus.RUNNING,
            gpu_type=facts["gpuType"],
            gpu_count=facts["gpuCount"],
            cpu_cores=facts["cpuCores"],
            memory_gb=facts["memoryGb"],
            emulated=facts["emulated"],
            versions=facts["versions"],
        )
    return request.param


@pytest.mark.parametrize("lang", ["zh", "en"])
@pytest.mark.parametrize("chosen", CASES, ids=[case["name"] for case in CASES], indirect=True)
def test_the_platform_answers_what_the_console_works_out(viewer: Api, chosen: dict[str, Any], lang: str) -> None:
    viewer.lang = lang
    body = {"environmentIds": [facts["id"] for facts in chosen["environments"]]}
    if chosen["master"] in body["environmentIds"]:  # another is refused, see test_summary.py
        body["masterNode"] = chosen["master"]
    data = viewer.post("/dev-environments/summary", body).data
    warnings = data.pop("warnings")
    assert data == chosen["summary"]
    assert warnings == [
        {"code": warning["code"], "message": warning[lang][0], "hint": warning[lang][1]}
        for warning in chosen["warnings"]
    ]
