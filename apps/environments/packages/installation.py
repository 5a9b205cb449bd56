"""Installs packages into environments when a user asks for it, never by itself.

waiting, due ──claim──▶ running, due again after CLAIM_SPAN ──▶ done | failed

pip or uv of the environment's own interpreter installs them, as the environment's user. If a process of the platform
dies during an installation, it starts anew when the claim lapses: inside, the second one waits for the first, and then
finds everything installed.
"""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.models import Role, User
from apps.clusters import selectors
from apps.clusters.models import DevEnvironment, Lease
from apps.common import claims, wakeups
from apps.common.claims import RowClaim
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.common.row_bounds import check_row_limit
from apps.environments import session
from apps.environments.models import Installation, InstallationState
from apps.environments.packages import surveys
from fermi.engines.inside.session import InsideSession
from fermi.jobs.spec import Problem
from fermi.planning.packages import find_invalid_requirement

CHANNEL = "installations"
CLAIM_SPAN = timedelta(seconds=60)
KEEP_FOR = timedelta(days=7)
MAX_KEPT = 50
"""Finished installations that are kept of each environment."""
MAX_OUTPUT_LENGTH = 64 << 10
"""Characters of the output that are kept, from its end."""
WRITE_SECONDS = 1.0
MAX_PER_SWEEP = 5
OPEN_STATES = (InstallationState.WAITING, InstallationState.RUNNING)


def start_installations(user: User, environment_ids: Sequence[str], packages: Sequence[str], python: str = "") -> str:
    """Start the installation into each of the environments (member there). Returns the id of the request. Raises
    ProblemsError with all problems."""
    environments, problems = selectors.select_environments(user, environment_ids, "ids")
    problems += _check_packages(packages)
    problems += [problem for at, one in enumerate(environments) if (problem := _find_obstacle(one, f"ids.{at}"))]
    if problems:
        raise ProblemsError(problems)
    for one in environments:
        access.require_role(user, one.project_id, Role.MEMBER)
    together, moment = new_id("install"), now()
    with transaction.atomic():
        Installation.objects.filter(ended_at__lt=moment - KEEP_FOR).delete()
        for one in environments:
            ended = Installation.objects.filter(environment=one).exclude(ended_at=None).order_by("-pk")
            Installation.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[MAX_KEPT:])).delete()
        mine = Installation.objects.filter(asked_by=user, state__in=OPEN_STATES)
        check_row_limit("installations", mine, len(environments))
        for one in environments:
            Installation.objects.create(
                together=together, environment=one, asked_by=user, packages=list(packages), python=python,
                created_at=moment, due_at=moment,
            )  # fmt: skip
            _record_event(user, "environment.install", one, packages=list(packages), together=together)
        transaction.on_commit(lambda: wakeups.publish_soon(CHANNEL, {}))
    return together


def list_installations(user: User, together: str) -> list[Installation]:
    """Return the installations of one request, in environments that the user may see. Raises ApiError 404."""
    rows = Installation.objects.filter(together=together, environment__in=selectors.list_visible_environments(user))
    found = list(rows.select_related("environment", "asked_by").order_by("pk"))
    if not found:
        raise ApiError(404, "NOT_FOUND")
    return found


def _check_packages(packages: Sequence[str]) -> list[Problem]:
    if wrong := find_invalid_requirement(packages):
        return [Problem(f"packages.{packages.index(wrong)}", "PACKAGE_NAME", {"found": wrong})]
    return []


def _find_obstacle(environment: DevEnvironment, field: str) -> Problem | None:
    """Return why packages cannot be installed now: the ranks of a task may import at any moment what an installation
    replaces."""
    if problem := selectors.find_obstacle(environment.name, environment.status, cordoned=False):
        return Problem(field, problem.code, problem.params)
    holder = Lease.objects.filter(environment=environment).values_list("holder", flat=True).first()
    return Problem(field, "PACKAGES_HELD", {"environment": environment.name, "task": holder}) if holder else None


def run_due_installation() -> int:
    """Run one of the due installations. Returns how many were run (0 or 1)."""
    rows = Installation.objects.filter(state__in=OPEN_STATES)
    rows = rows.select_related("environment__cluster", "environment__zone", "asked_by")
    return claims.run_oldest_due(rows, MAX_PER_SWEEP, run_installation, CHANNEL)


def run_installation(row: Installation) -> bool:
    """Run an installation. Returns False if another thread has it. Load the row with its environment's cluster and
    zone, and with the user."""
    claim = claims.claim_row(row, CLAIM_SPAN, state=InstallationState.RUNNING)
    if claim is None:
        return False
    output = InstallationOutput(claim)

    def run(entered: InsideSession) -> dict[str, Any]:
        entered.came = output.add_message
        code = entered.request("install", packages=row.packages, python=row.python).get("exit")
        return {"exit": code if isinstance(code, int) and -1000 < code < 1000 else 1}

    with claim.kept():
        found = session.run_in_session(row.environment, run)
        found["state"] = InstallationState.DONE if found.get("exit") == 0 else InstallationState.FAILED
        with transaction.atomic():
            if claim.write(**found, output=output.text, ended_at=now(), due_at=None):
                ended = {"exit": found.get("exit"), "why": (found.get("error") or {}).get("code")}
                _record_event(row.asked_by, "environment.installed", row.environment, packages=row.packages,
                        together=row.together, **ended)  # fmt: skip
                surveys.invalidate_surveys(row.environment)
    return True


def _record_event(user: User, action: str, environment: DevEnvironment, **data: Any) -> None:
    audit.record_event(user, action, environment.pk, project=environment.project_id, **data)


class InstallationOutput:
    """Stores pip's output while it comes."""

    def __init__(self, claim: RowClaim) -> None:
        self._claim, self._written = claim, 0.0
        self.text = ""

    def add_message(self, message: dict[str, Any], _: bytes) -> None:
        said = message.get("output")
        if message.get("of") != "install" or not isinstance(said, str) or not said:
            return
        self.text = (self.text + said.replace("\0", ""))[-MAX_OUTPUT_LENGTH:]
        if time.monotonic() > self._written + WRITE_SECONDS:
            self._written = time.monotonic()
            self._claim.write(output=self.text)
