"""Dashboards and alert rules as Grafana and Prometheus read them: by Grafana's own description of a dashboard
(kinds/dashboard/dashboard_kind.cue) and by the checks of `promtool check rules` (model/rulefmt). What they ask for is
compared with what is told by tests/api/test_metrics_endpoint.py."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml

from tests import promql

TEXT = {"type": "string", "minLength": 1}
WHOLE = {"type": "integer", "minimum": 0}
SOURCE = {
    "type": "object", "required": ["type", "uid"], "additionalProperties": False,
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${source}"}},
}  # fmt: skip
UNITS = {"bytes": "bytes", "celsius": "celsius", "hours": "h", "percent": "percent", "ratio": "percentunit",
         "seconds": "s", "watts": "watt"}  # fmt: skip
"""Grafana's id of the unit that a family's name says; all others are numbers, `short`."""
TARGET = {
    "type": "object", "required": ["refId", "datasource", "expr", "legendFormat"], "additionalProperties": False,
    "properties": {"refId": {"pattern": "^[A-Z]$"}, "datasource": SOURCE, "expr": TEXT, "legendFormat": TEXT},
}  # fmt: skip
PANEL = {
    "type": "object", "additionalProperties": False,
    "required": ["id", "type", "title", "datasource", "gridPos", "fieldConfig", "options", "targets"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "type": {"const": "timeseries"},
        "title": TEXT,
        "datasource": SOURCE,
        "gridPos": {
            "type": "object", "required": ["h", "w", "x", "y"], "additionalProperties": False,
            "properties": {
                "h": {"type": "integer", "minimum": 1}, "w": {"type": "integer", "minimum": 1, "maximum": 24},
                "x": {**WHOLE, "maximum": 23}, "y": WHOLE,
            },
        },
        "fieldConfig": {
            "type": "object", "required": ["defaults", "overrides"], "additionalProperties": False,
            "properties": {
                "defaults": {
                    "type": "object", "required": ["unit", "min"], "additionalProperties": False,
                    "properties": {
                        "unit": {"enum": [*UNITS.values(), "short"]}, "min": {"const": 0}, "max": {"type": "number"},
                    },
                },
                "overrides": {"type": "array"},
            },
        },
        "options": {"type": "object"},
        "targets": {"type": "array", "minItems": 1, "items": TARGET},
    },
}  # fmt: skip
VARIABLE = {
    "type": "object", "required": ["name", "label", "type", "query"],
    "properties": {
        "name": {"pattern": r"^\w+$"}, "label": TEXT, "type": {"enum": ["query", "datasource"]},
        "query": {"type": ["string", "object"]}, "datasource": SOURCE, "refresh": {"enum": [0, 1, 2]},
        "includeAll": {"type": "boolean"}, "multi": {"type": "boolean"}, "allValue": TEXT,
        "current": {"type": "object", "required": ["text", "value"]},
    },
    "additionalProperties": False,
}  # fmt: skip
BOARD = {
    "type": "object", "additionalProperties": False,
    "required": ["uid", "title", "schemaVersion", "editable", "graphTooltip", "time", "templating", "panels"],
    "properties": {
        "uid": {"pattern": "^[a-zA-Z0-9_-]{8,40}$"},
        "title": TEXT,
        "tags": {"type": "array", "items": TEXT},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "version": WHOLE,
        "editable": {"type": "boolean"},
        "graphTooltip": {"enum": [0, 1, 2]},
        "refresh": {"pattern": r"^\d+[smh]$"},
        "time": {
            "type": "object", "required": ["from", "to"],
            "additionalProperties": {"pattern": r"^now(-\d+[mhd])?$"},
        },
        "timezone": {"enum": ["browser", "utc"]},
        "templating": {
            "type": "object", "required": ["list"], "properties": {"list": {"type": "array", "items": VARIABLE}},
        },
        "annotations": {"type": "object", "required": ["list"]},
        "panels": {"type": "array", "minItems": 1, "items": PANEL},
    },
}  # fmt: skip
BOARDS = ("fleet", "gpus", "platform", "task")

DURATION = re.compile(r"(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?")
NAME = re.compile(r"[a-zA-Z_]\w*")
TEMPLATE = re.compile(r"\{\{\s*\$(?:labels\.(?P<label>\w+)|value)\s*\}\}")
GROUP_FIELDS = {"name", "interval", "query_offset", "limit", "rules", "labels"}
RULE_FIELDS = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}


@pytest.fixture(params=BOARDS)
def board(request: pytest.FixtureRequest, root: Path) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((root / "deploy/grafana" / f"{request.param}.json").read_bytes())
    return found


@pytest.fixture
def groups(root: Path) -> list[dict[str, Any]]:
    found = yaml.safe_load((root / "deploy/prometheus/alerts.yaml").read_text())
    assert found.keys() == {"groups"}
    groups: list[dict[str, Any]] = found["groups"]
    return groups


def test_every_dashboard_is_checked_and_has_a_unique_id(root: Path) -> None:
    paths = sorted((root / "deploy/grafana").glob("*.json"))
    assert [path.stem for path in paths] == sorted(BOARDS)
    assert len({orjson.loads(path.read_bytes())["uid"] for path in paths}) == len(paths)


def test_dashboards_match_grafanas_schema(board: dict[str, Any]) -> None:
    jsonschema.validate(board, BOARD)


def test_panels_have_unique_ids_and_do_not_overlap(board: dict[str, Any]) -> None:
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs)
    for one, other in combinations([panel["gridPos"] for panel in panels], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below


def test_every_used_variable_is_defined(board: dict[str, Any]) -> None:
    known = {variable["name"] for variable in board["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", orjson.dumps([board["panels"], board["templating"]]).decode())) - {"__all"}
    assert used == known


def test_a_panels_unit_matches_its_metric(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        defaults = panel["fieldConfig"]["defaults"]
        for target in panel["targets"]:
            names = [selector.name for selector in promql.parse_query(target["expr"]).selectors]
            unit = "percentunit" if "/" in target["expr"] else _unit(names[0])
            assert defaults["unit"] == unit, panel["title"]
        assert defaults.get("max") == {"percent": 100, "percentunit": 1}.get(defaults["unit"])


def _unit(family: str) -> str:
    words = re.sub(r"_bucket$", "", family).removeprefix("fermi_").split("_")
    return next((UNITS[word] for word in reversed(words) if word in UNITS), "short")


def test_legends_use_only_grouped_labels(board: dict[str, Any]) -> None:
    for panel in board["panels"]:
        for target in panel["targets"]:
            labels = set(re.findall(r"\{\{\s*(\w+)\s*\}\}", target["legendFormat"]))
            assert labels <= promql.parse_query(target["expr"]).grouped, panel["title"]


def rules(groups: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for group in groups:
        yield from group["rules"]


def test_rule_groups_have_names_and_known_fields(groups: list[dict[str, Any]]) -> None:
    assert len({group["name"] for group in groups}) == len(groups)
    for group in groups:
        assert group["name"]
        assert group["rules"]
        assert group.keys() <= GROUP_FIELDS


def test_alert_rules_are_valid_for_prometheus(groups: list[dict[str, Any]]) -> None:
    alerts = list(rules(groups))
    assert len({rule["alert"] for rule in alerts}) == len(alerts)
    for rule in alerts:
        assert {"alert", "expr", "labels", "annotations"} <= rule.keys() <= RULE_FIELDS, rule["alert"]
        assert promql.parse_query(rule["expr"]).selectors
        for name in ("for", "keep_firing_for"):
            assert rule.get(name) is None or (rule[name] and DURATION.fullmatch(rule[name])), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        for texts in (rule["labels"], rule["annotations"]):
            assert all(NAME.fullmatch(name) and isinstance(text, str) and text for name, text in texts.items())


def test_alert_texts_use_only_existing_labels(groups: list[dict[str, Any]]) -> None:
    for rule in rules(groups):
        for text in rule["annotations"].values():
            labels = {found["label"] for found in TEMPLATE.finditer(text)} - {None}
            assert labels <= promql.parse_query(rule["expr"]).grouped, rule["alert"]
            assert "{{" not in TEMPLATE.sub("", text), rule["alert"]
