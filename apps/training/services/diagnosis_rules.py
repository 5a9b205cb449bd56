"""Reads, replaces and tries a project's own diagnosis rules."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ProblemsError
from apps.training.core.findings import read_rules_text
from apps.training.models import DiagnosisRules
from fermi.diagnosis import Finding, root_cause, rules
from fermi.diagnosis.rules import RuleProblem
from fermi.jobs.spec import Problem, RankStatus


class RulesTrial(NamedTuple):
    """What would be diagnosed for a failed rank. `exception`: its last line; `at`: the script's own line; `rule`: the
    rule that knows a line of its output. Empty, and None, where nothing was found."""

    exception: str = ""
    at: str = ""
    rule: str = ""
    finding: Finding | None = None


def get_rules(user: User, project_id: str) -> dict[str, Any]:
    """Return the project's rules as TOML, and who changed them last."""
    project = access.get_project(user, project_id)
    row = DiagnosisRules.objects.filter(project=project).select_related("updated_by").first()
    return {
        "text": row.text if row else "",
        "updatedAt": row.updated_at if row else None,
        "updatedBy": row.updated_by.username if row else "",
    }


@transaction.atomic
def replace_rules(user: User, project_id: str, text: str) -> dict[str, Any]:
    """Replace all rules of the project; an empty text deletes them. Raises ProblemsError for rules that cannot be
    parsed."""
    project = access.get_project(user, project_id)
    access.require_role(user, project, Role.MAINTAINER)
    _, wrong = rules.parse_rules(text)
    if wrong:
        raise ProblemsError(_to_problems(wrong))
    values = {"text": text, "updated_at": now(), "updated_by": user}
    DiagnosisRules.objects.update_or_create(project=project, defaults=values)
    audit.record_event(user, "diagnosis-rules.set", project.pk, project=project, bytes=len(text.encode()))
    return get_rules(user, project_id)


def try_rules(user: User, project_id: str, log: str, text: str | None = None) -> RulesTrial:
    """Return what would be diagnosed for a failed rank that printed `log`, by the project's rules, or those in `text`,
    and the platform's. Stores nothing. Raises ProblemsError."""
    project = access.get_project(user, project_id)
    own, wrong = rules.parse_rules(read_rules_text(project.pk) if text is None else text)
    if wrong:
        raise ProblemsError(_to_problems(wrong))
    told = root_cause.explain_failure(
        [RankStatus(0, 0, "exited", exit_code=1)], 0, ["-"], lambda rank: log.encode(), own
    )
    if told is None:
        return RulesTrial()
    return RulesTrial(told.exception, told.at, (told.about or {}).get("rule", told.why), told.finding())


def _to_problems(rule_problems: Iterable[RuleProblem]) -> list[Problem]:
    return [Problem("text", one.code, {**one.params, "line": one.line}) for one in rule_problems]
