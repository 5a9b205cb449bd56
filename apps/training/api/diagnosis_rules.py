"""Endpoints for a project's own diagnosis rules."""

from typing import Any

from rest_framework import serializers

from apps.common.api import APIView, Body, Data, Request, operation
from apps.training.api.serializers import TaskFinding
from apps.training.presenters import findings
from apps.training.services import diagnosis_rules
from fermi.diagnosis import diagnose, tracebacks
from fermi.diagnosis.rules import MAX_BYTES

RULES_FIELD_OPTIONS: dict[str, Any] = {"max_length": MAX_BYTES, "allow_blank": True, "trim_whitespace": False}


class DiagnosisRulesRequest(serializers.Serializer):
    text = serializers.CharField(**RULES_FIELD_OPTIONS, help_text="TOML: see the page about failures")


class DiagnosisRules(serializers.Serializer):
    text = serializers.CharField()
    updatedAt = serializers.DateTimeField(allow_null=True)
    updatedBy = serializers.CharField()


class DiagnosisRulesTestRequest(serializers.Serializer):
    log = serializers.CharField(max_length=tracebacks.MAX_BYTES, trim_whitespace=False, help_text="a log's end")
    text = serializers.CharField(
        **RULES_FIELD_OPTIONS, required=False, help_text="rules to try; without it, those of the project"
    )


class DiagnosisRulesTest(serializers.Serializer):
    exception = serializers.CharField()
    at = serializers.CharField(help_text="the script's own line")
    rule = serializers.CharField(help_text="empty: none knows a line of it")
    finding = TaskFinding(allow_null=True)


class DiagnosisRulesView(APIView):
    @operation("getDiagnosisRules", scope="projects:read", data=DiagnosisRules)
    def get(self, request: Request, project_id: str) -> Data:
        """Return the project's own diagnosis rules as TOML; empty where it has none."""
        return diagnosis_rules.get_rules(request.user, project_id)

    @operation("putDiagnosisRules", scope="projects:write", body=DiagnosisRulesRequest, data=DiagnosisRules)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Replace the project's diagnosis rules (maintainer). From the next failure on they are tried before the
        platform's."""
        return diagnosis_rules.replace_rules(request.user, project_id, body["text"])


class DiagnosisRulesTestView(APIView):
    @operation("testDiagnosisRules", scope="projects:write", body=DiagnosisRulesTestRequest, data=DiagnosisRulesTest)
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """Return what rules would find in the output of a failed rank. Stores nothing."""
        tried = diagnosis_rules.try_rules(request.user, project_id, body["log"], body.get("text"))
        finding = tried.finding and findings.serialize_finding(diagnose.StoredFinding(tried.finding, 1), [])
        return {**tried._asdict(), "finding": finding}
