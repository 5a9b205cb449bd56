"""Translates a report, in the shape that the API and `fermi preflight --json` return."""

from collections.abc import Iterable, Mapping
from typing import Any

from fermi import messages

ReportJson = dict[str, Any]


def translate_report(report: Mapping[str, Any], lang: str) -> ReportJson:
    """Return the report in the reader's language. An empty report has no nodes and no verdict."""
    if not report:
        return {"nodes": [], "pairs": [], "together": None, "verdict": None}
    together, verdict = report["together"], report["verdict"]
    return {
        "nodes": [
            {"environmentId": node["id"], "name": node["name"], "level": node["level"],
             "findings": _translate_findings(node["findings"], lang)}
            for node in report["nodes"]
        ],
        "pairs": [{**pair, "findings": _translate_findings(pair["findings"], lang)} for pair in report["pairs"]],
        "together": {**together, "findings": _translate_findings(together["findings"], lang)} if together else None,
        "verdict": {
            "level": verdict["level"],
            "message": messages.render_text(verdict["code"], lang, **verdict["params"])[0],
            "culprits": [
                {"environmentIds": culprit["nodes"], **_render_texts(culprit, lang)} for culprit in verdict["culprits"]
            ],
        },
    }  # fmt: skip


def _translate_findings(findings: Iterable[Mapping[str, Any]], lang: str) -> list[ReportJson]:
    return [
        {"check": one["check"], "level": one["level"], **_render_texts(one, lang), "value": one["value"]}
        for one in findings
    ]


def _render_texts(finding: Mapping[str, Any], lang: str) -> ReportJson:
    message, hint = messages.render_text(finding["code"], lang, **finding["params"])
    return {"code": finding["code"], "message": message, "hint": hint}
