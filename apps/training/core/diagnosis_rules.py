"""A project's own rules of diagnosis, as they are stored: a file in TOML (`fermi.diagnosis.rules`)."""

from collections.abc import Sequence

from apps.training.models import DiagnosisRules
from fermi.diagnosis import rules
from fermi.diagnosis.rules import Rule


def text_of(project_id: str) -> str:
    return DiagnosisRules.objects.filter(project=project_id).values_list("text", flat=True).first() or ""


def of(project_id: str) -> Sequence[Rule]:
    """Without those that a newer release would not take any more."""
    return rules.parse(text)[0] if (text := text_of(project_id)) else ()
