"""Endpoints for a project's own diagnosis rules."""

from apps.common.api import APIView, Body, Data, Request, operation
from apps.training.api import rules_forms as forms
from apps.training.services import diagnosis_rules


class DiagnosisRulesView(APIView):
    @operation("getDiagnosisRules", data=forms.DiagnosisRules)
    def get(self, request: Request, project_id: str) -> Data:
        """What the project knows of its own errors, as TOML; empty where nobody has written any."""
        return diagnosis_rules.get_rules(request.user, project_id)

    @operation("putDiagnosisRules", body=forms.DiagnosisRulesRequest, data=forms.DiagnosisRules)
    def put(self, request: Request, project_id: str, body: Body) -> Data:
        """Replaces them as a whole (maintainer). They come before the platform's from the next failure on."""
        return diagnosis_rules.replace_rules(request.user, project_id, body["text"])


class DiagnosisRulesTestView(APIView):
    @operation("testDiagnosisRules", body=forms.DiagnosisRulesTestRequest, data=forms.DiagnosisRulesTest)
    def post(self, request: Request, project_id: str, body: Body) -> Data:
        """What would be said of a rank that failed and had printed this. Nothing is stored."""
        return diagnosis_rules.try_rules(request.user, project_id, body["log"], body.get("text"))
