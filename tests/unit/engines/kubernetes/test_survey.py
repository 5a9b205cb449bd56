"""How often an environment has to keep silent before that is said of it."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fermi.engines.kubernetes import survey
from fermi.engines.kubernetes.client import KubernetesClient
from fermi.engines.kubernetes.inside import PodEnvironments
from fermi.engines.kubernetes.survey import EnvironmentSurveys
from tests.fakes.kubernetes import FakeCluster
from tests.polling import until


@pytest.fixture
def surveys(kubernetes: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvironmentSurveys]:
    monkeypatch.setattr(survey, "SILENT_RETRY_SECONDS", 0.1)
    kubernetes.add_node("node-a")
    main = {"name": "dev", "image": "training:1", "command": ["sleep", "infinity"]}
    kubernetes.add_pod("dev", {"nodeName": "node-a", "containers": [main]})
    until(lambda: kubernetes.pods("dev")[0]["status"].get("phase") == "Running", what="it runs")
    client = KubernetesClient({"kubeconfig": str(kubernetes.kubeconfig), "namespace": "fermi"})
    found = EnvironmentSurveys(PodEnvironments(client), lambda: None)
    yield found
    found.close()
    client.close()


def silent_for(looks: int, folder: Path) -> str:
    """The path of an interpreter that ends without a word so many times."""
    count = "".join("x" for _ in range(looks))
    script = f'#!/bin/sh\nread -r n < {folder}/left\n[ -z "$n" ] || {{ echo "${{n#x}}" > {folder}/left; exit 0; }}\n'
    (folder / "left").write_text(f"{count}\n")
    (folder / "python").write_text(f'{script}exec {sys.executable} "$@"\n')
    (folder / "python").chmod(0o755)
    return str(folder / "python")


def survey_pod(surveys: EnvironmentSurveys, kubernetes: FakeCluster, python: str) -> dict[str, Any]:
    (pod,) = kubernetes.pods("dev")
    return dict(until(lambda: surveys.find_survey(pod, "dev", python), what="something is known of it"))


def test_one_missed_answer_is_retried_and_not_reported(
    surveys: EnvironmentSurveys, kubernetes: FakeCluster, tmp_path: Path
) -> None:
    assert "python" in survey_pod(surveys, kubernetes, silent_for(1, tmp_path))


def test_two_missed_answers_are_reported(surveys: EnvironmentSurveys, kubernetes: FakeCluster, tmp_path: Path) -> None:
    assert survey_pod(surveys, kubernetes, silent_for(2, tmp_path))["why"] == "INSIDE_SILENT"
