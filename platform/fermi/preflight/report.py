"""Translates a report, in the shape that the API and `fermi preflight --json` return."""

from collections.abc import Iterable, Mapping
from typing import Any

from fermi import messages

Shown = dict[str, Any]


def in_words(report: Mapping[str, Any], lang: str) -> Shown:
    """Return the report in the reader's language. An empty report has no nodes and no verdict."""
    if not report:
        return {"nodes": [], "pairs": [], "together": None, "verdict": None}
    together, verdict = report["together"], report["verdict"]
    return {
        "nodes": [
            {"environmentId": node["id"], "name": node["name"], "level": node["level"],
             "findings": _findings(node["findings"], lang)}
            for node in report["nodes"]
        ],
        "pairs": [{**pair, "findings": _findings(pair["findings"], lang)} for pair in report["pairs"]],
        "together": {**together, "findings": _findings(together["findings"], lang)} if together else None,
        "verdict": {
            "level": verdict["level"],
            "message": messages.text(verdict["code"], lang, **verdict["params"])[0],
            "culprits": [
                {"environmentIds": culprit["nodes"], **_said(culprit, lang)} for culprit in verdict["culprits"]
            ],
        },
    }  # fmt: skip


def _findings(findings: Iterable[Mapping[str, Any]], lang: str) -> list[Shown]:
    return [
        {"check": one["check"], "level": one["level"], **_said(one, lang), "value": one["value"]} for one in findings
    ]


def _said(one: Mapping[str, Any], lang: str) -> Shown:
    message, hint = messages.text(one["code"], lang, **one["params"])
    return {"code": one["code"], "message": message, "hint": hint}
