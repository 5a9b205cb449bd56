"""Serializers of a project's own diagnosis rules."""

from typing import Any

from rest_framework import serializers

from apps.training.api.schemas import TaskFinding
from fermi.diagnosis import tracebacks
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
