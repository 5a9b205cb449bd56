"""Reads a project's own diagnosis rules from the database: a TOML file (`fermi.diagnosis.rules`)."""

from collections.abc import Sequence

from apps.training.models import DiagnosisRules
from fermi.diagnosis import rules
from fermi.diagnosis.rules import Rule


def text_of(project_id: str) -> str:
    """Return the project's rules as TOML; empty if it has none."""
    return DiagnosisRules.objects.filter(project=project_id).values_list("text", flat=True).first() or ""


def of(project_id: str) -> Sequence[Rule]:
    """Return the project's rules, without those that this release no longer accepts."""
    return rules.parse(text)[0] if (text := text_of(project_id)) else ()
