"""What whoever runs the platform is told of it."""

from typing import Any

import pytest

from apps.clusters.models import Cluster
from apps.common import disks
from fermi.engines import isolation
from tests.api.conftest import Api


@pytest.fixture(autouse=True)
def local(db: None) -> Cluster:
    return Cluster.objects.create(id="here", name="here", backend="local")


def test_administrators_are_told_when_ranks_are_not_isolated(
    admin: Api, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ISOLATION = "off"
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})
    found = admin.get("/notices").data
    assert {(item["level"], item["code"]) for item in found["findings"]} == {("warn", "ISOLATION_OFF")}
    assert "FERMI_ISOLATION" in found["findings"][0]["message"]
    assert found["findings"][0]["hint"]


def test_administrators_are_not_told_when_ranks_are_isolated(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "choose_isolation", lambda mode, place: isolation.Isolation(True, None))
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})
    assert admin.get("/notices").data == {"fit": True, "findings": []}


@pytest.mark.parametrize("who", ["viewer", "owner", "stranger"])
def test_other_users_get_no_operator_notices(who: str, request: pytest.FixtureRequest, settings: object) -> None:
    settings.ISOLATION = "off"
    api: Api = request.getfixturevalue(who)
    assert api.get("/notices").data["findings"] == []


def test_a_cluster_check_reports_its_isolation(admin: Api, settings: object) -> None:
    settings.ISOLATION = "off"
    found = admin.post("/clusters/here/check").data["findings"]
    assert ("warn", "ISOLATION_OFF") in {(item["level"], item["code"]) for item in found}


@pytest.mark.parametrize(("lang", "words"), [("zh-CN", "已用 95%，还剩 50 MiB"), ("en", "is 95 % full: 50 MiB left")])
def test_a_nearly_full_disk_is_reported(
    admin: Api, viewer: Api, monkeypatch: pytest.MonkeyPatch, settings: Any, lang: str, words: str
) -> None:
    monkeypatch.setattr(isolation, "choose_isolation", lambda mode, place: isolation.Isolation(True, None))
    monkeypatch.setattr(disks, "read_free_space", lambda path: {"free": 50 << 20, "total": 1000 << 20})
    admin.lang = lang
    [found] = admin.get("/notices").data["findings"]
    assert (found["level"], found["code"]) == ("warn", "DISK_NEARLY_FULL")
    assert words in found["message"]
    assert str(settings.DATA_DIR) in found["message"]
    assert found["hint"]
    assert viewer.get("/notices").data["findings"] == []
    monkeypatch.setattr(disks, "read_free_space", lambda path: {"free": 150 << 20, "total": 1000 << 20})
    assert admin.get("/notices").data["findings"] == []
