"""Reads a project's own diagnosis rules from the database: a TOML file (`fermi.diagnosis.rules`)."""

from collections.abc import Sequence

from apps.training.models import DiagnosisRules
from fermi.diagnosis import rules
from fermi.diagnosis.rules import Rule


def read_rules_text(project_id: str) -> str:
    """Return the project's rules as TOML; empty if it has none."""
    return DiagnosisRules.objects.filter(project=project_id).values_list("text", flat=True).first() or ""


def load_rules(project_id: str) -> Sequence[Rule]:
    """Return the project's rules, without those that this release no longer accepts."""
    return rules.parse_rules(text)[0] if (text := read_rules_text(project_id)) else ()
