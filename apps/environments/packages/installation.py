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
from apps.common.claims import Claim
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.ids import new_id
from apps.common.row_bounds import check_rows
from apps.environments import session
from apps.environments.models import Installation, InstallationState
from apps.environments.packages import surveys
from fermi.engines.inside.session import Session
from fermi.jobs.spec import Problem
from fermi.planning.packages import check_requirements

CHANNEL = "installations"
CLAIM = timedelta(seconds=60)
KEPT = timedelta(days=7)
MAX_KEPT = 50
"""Finished installations that are kept of each environment."""
MAX_OUTPUT = 64 << 10
"""Characters of the output that are kept, from its end."""
WRITE_SECONDS = 1.0
AT_ONCE = 5
OPEN = (InstallationState.WAITING, InstallationState.RUNNING)


def begin(user: User, environment_ids: Sequence[str], packages: Sequence[str], python: str = "") -> str:
    """Start the installation into each of the environments (member there). Returns the id of the request. Raises
    ProblemsError with all problems."""
    environments, problems = selectors.pick(user, environment_ids, "ids")
    problems += _problems(packages)
    problems += [problem for at, one in enumerate(environments) if (problem := _obstacle(one, f"ids.{at}"))]
    if problems:
        raise ProblemsError(problems)
    for one in environments:
        access.require(user, one.project_id, Role.MEMBER)
    together, moment = new_id("install"), now()
    with transaction.atomic():
        Installation.objects.filter(ended_at__lt=moment - KEPT).delete()
        for one in environments:
            ended = Installation.objects.filter(environment=one).exclude(ended_at=None).order_by("-pk")
            Installation.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[MAX_KEPT:])).delete()
        mine = Installation.objects.filter(asked_by=user, state__in=OPEN)
        check_rows("installations", mine, len(environments))
        for one in environments:
            Installation.objects.create(
                together=together, environment=one, asked_by=user, packages=list(packages), python=python,
                created_at=moment, due_at=moment,
            )  # fmt: skip
            _record(user, "environment.install", one, packages=list(packages), together=together)
        transaction.on_commit(lambda: wakeups.tell(CHANNEL, {}))
    return together


def find(user: User, together: str) -> list[Installation]:
    """Return the installations of one request, in environments that the user may see. Raises ApiError 404."""
    rows = Installation.objects.filter(together=together, environment__in=selectors.seen_by(user))
    found = list(rows.select_related("environment", "asked_by").order_by("pk"))
    if not found:
        raise ApiError(404, "NOT_FOUND")
    return found


def _problems(packages: Sequence[str]) -> list[Problem]:
    if wrong := check_requirements(packages):
        return [Problem(f"packages.{packages.index(wrong)}", "PACKAGE_NAME", {"found": wrong})]
    return []


def _obstacle(environment: DevEnvironment, field: str) -> Problem | None:
    """Return why packages cannot be installed now: the ranks of a task may import at any moment what an installation
    replaces."""
    if problem := selectors.obstacle(environment.name, environment.status, cordoned=False):
        return Problem(field, problem.code, problem.params)
    holder = Lease.objects.filter(environment=environment).values_list("holder", flat=True).first()
    return Problem(field, "PACKAGES_HELD", {"environment": environment.name, "task": holder}) if holder else None


def sweep() -> int:
    """Run one of the due installations. Returns how many were run (0 or 1)."""
    rows = Installation.objects.filter(state__in=OPEN)
    rows = rows.select_related("environment__cluster", "environment__zone", "asked_by")
    return claims.carry_out_one(rows, AT_ONCE, install, CHANNEL)


def install(row: Installation) -> bool:
    """Run an installation. Returns False if another thread has it. Load the row with its environment's cluster and
    zone, and with the user."""
    claim = claims.claim_row(row, CLAIM, state=InstallationState.RUNNING)
    if claim is None:
        return False
    output = Output(claim)

    def run(entered: Session) -> dict[str, Any]:
        entered.came = output.take
        code = entered.ask("install", packages=row.packages, python=row.python).get("exit")
        return {"exit": code if isinstance(code, int) and -1000 < code < 1000 else 1}

    with claim.kept():
        found = session.enter_and_ask(row.environment, run)
        found["state"] = InstallationState.DONE if found.get("exit") == 0 else InstallationState.FAILED
        with transaction.atomic():
            if claim.write(**found, output=output.text, ended_at=now(), due_at=None):
                ended = {"exit": found.get("exit"), "why": (found.get("error") or {}).get("code")}
                _record(row.asked_by, "environment.installed", row.environment, packages=row.packages,
                        together=row.together, **ended)  # fmt: skip
                surveys.forget(row.environment)
    return True


def _record(user: User, action: str, environment: DevEnvironment, **data: Any) -> None:
    audit.record(user, action, environment.pk, project=environment.project_id, **data)


class Output:
    """Stores pip's output while it comes."""

    def __init__(self, claim: Claim) -> None:
        self._claim, self._written = claim, 0.0
        self.text = ""

    def take(self, told: dict[str, Any], _: bytes) -> None:
        said = told.get("output")
        if told.get("of") != "install" or not isinstance(said, str) or not said:
            return
        self.text = (self.text + said.replace("\0", ""))[-MAX_OUTPUT:]
        if time.monotonic() > self._written + WRITE_SECONDS:
            self._written = time.monotonic()
            self._claim.write(output=self.text)
