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


def test_where_nothing_protects_the_platform_its_administrator_is_told(
    admin: Api, settings: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ISOLATION = "off"
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})
    found = admin.get("/notices").data
    assert {(item["level"], item["code"]) for item in found["findings"]} == {("warn", "ISOLATION_OFF")}
    assert "FERMI_ISOLATION" in found["findings"][0]["message"]
    assert found["findings"][0]["hint"]


def test_where_something_does_there_is_nothing_to_tell(admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "choose_isolation", lambda mode, place: isolation.Isolation(True, None))
    monkeypatch.setattr(disks, "find_nearly_full", lambda folder: {})
    assert admin.get("/notices").data == {"fit": True, "findings": []}


@pytest.mark.parametrize("who", ["viewer", "owner", "stranger"])
def test_nobody_else_is_told(who: str, request: pytest.FixtureRequest, settings: object) -> None:
    settings.ISOLATION = "off"
    api: Api = request.getfixturevalue(who)
    assert api.get("/notices").data["findings"] == []


def test_a_clusters_check_says_what_protects(admin: Api, settings: object) -> None:
    settings.ISOLATION = "off"
    found = admin.post("/clusters/here/check").data["findings"]
    assert ("warn", "ISOLATION_OFF") in {(item["level"], item["code"]) for item in found}


@pytest.mark.parametrize(("lang", "words"), [("zh-CN", "已用 95%，还剩 50 MiB"), ("en", "is 95 % full: 50 MiB left")])
def test_a_disk_that_is_nearly_full_is_told_before_it_is(
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
