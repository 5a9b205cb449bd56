"""Queries of purses and proposals, as the API returns them."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from apps.accounts import access
from apps.accounts.models import AuditEvent, Project, Role, User
from apps.agents.expenditure import measure_spending
from apps.agents.models import Proposal, Purse
from apps.agents.request_masks import mask_answer, mask_request
from apps.common.texts import render_text
from fermi.jobs.credentials import mask_keys
from fermi.jobs.spec import Problem


def filter_purses(user: User) -> QuerySet[Purse]:
    """Return the purses that the user may read and change: of the user's own tokens, and of those in projects that the
    user maintains. A token with a purse reads its own alone."""
    rows = Purse.objects.select_related("token__user")
    if user.is_superuser:
        return rows
    rights = user.token_rights
    if rights and Purse.objects.filter(pk=rights.token).exists():
        return rows.filter(pk=rights.token)
    maintained = Project.objects.filter(purses=OuterRef("pk"), pk__in=access.select_projects(user, Role.MAINTAINER))
    mine: Any = Q(token__user=user.pk) | Q(token__created_by=user.pk)
    if rights and rights.projects is not None:
        mine &= Exists(Project.objects.filter(purses=OuterRef("pk"), pk__in=sorted(rights.projects)))
    return rows.filter(mine | Exists(maintained))


def filter_proposals(user: User) -> QuerySet[Proposal]:
    """Return the proposals that the user may read: to the user as the token's person, and of projects that the user
    maintains. A token with a purse reads its own alone."""
    rows = Proposal.objects.all()
    if user.is_superuser:
        return rows
    rights = user.token_rights
    if rights and Purse.objects.filter(pk=rights.token).exists():
        return rows.filter(purse=rights.token)
    mine = Q(person=user.pk)
    if rights and rights.projects is not None:
        mine &= Q(project__in=sorted(rights.projects))
    return rows.filter(mine | Q(project__in=access.select_projects(user, Role.MAINTAINER)))


def serialize_purse(purse: Purse) -> dict[str, Any]:
    """Return the purse with what is spent and what is left. Numbers that no limit bounds have no rest."""
    spending = measure_spending(purse)
    endless = spending.reserved_gpu_hours == float("inf")
    reserved = None if endless else spending.reserved_gpu_hours
    used = spending.gpu_hours + (reserved or 0.0)
    paid = spending.cost + spending.reserved_cost
    token = purse.token
    return {
        "id": purse.pk,
        "name": token.name,
        "agent": purse.agent,
        "user": token.user.username,
        "projects": sorted(project.pk for project in purse.projects.all()),
        "scopes": list(token.scopes or ()),
        "createdAt": purse.created_at,
        "expiresAt": token.expiry,
        "lastUsedAt": token.last_used_at,
        "purse": {
            "gpuHours": purse.gpu_hours,
            "money": None if purse.money is None else float(purse.money),
            "preemptibleOnly": purse.preemptible_only,
            "maxRunning": purse.max_running,
            "environments": purse.environments,
        },
        "spent": {"gpuHours": spending.gpu_hours, "money": spending.cost},
        "reserved": {"gpuHours": reserved, "money": spending.reserved_cost},
        "left": {
            "gpuHours": None if purse.gpu_hours is None else 0.0 if endless else max(0.0, purse.gpu_hours - used),
            "money": None if purse.money is None else max(0.0, float(purse.money) - paid),
        },
        "currency": settings.CURRENCY,
        "unfinishedTasks": len(spending.running),
        "openProposals": Proposal.objects.filter(purse=purse.pk, state="open").count(),
    }


def build_problem(stored: Mapping[str, Any]) -> Problem:
    """Return a stored excess as a problem."""
    return Problem("", str(stored["code"]), dict(stored["params"]))


def serialize_proposal(proposal: Proposal, user: User) -> dict[str, Any]:
    """Return the proposal in the reader's language, with its request as it may be shown."""
    return {
        "id": proposal.pk,
        "tokenId": proposal.purse,
        "tokenName": proposal.token_name,
        "agent": proposal.agent,
        "user": proposal.person.username,
        "project": proposal.project_id,
        "operation": proposal.operation,
        "method": proposal.method,
        "path": mask_keys(proposal.path),
        "body": mask_request(proposal.body),
        "beyond": [_serialize_excess(one) for one in proposal.beyond],
        "plan": proposal.plan or None,
        "difference": proposal.difference or None,
        "state": proposal.state,
        "createdAt": proposal.created_at,
        "expiresAt": proposal.expires_at,
        "decidedAt": proposal.decided_at,
        "decidedBy": proposal.decided_by.username if proposal.decided_by else None,
        "note": proposal.note,
        "status": proposal.status,
        "result": mask_answer(proposal.result) or None,
        "mayDecide": may_decide(proposal, user),
    }


def may_decide(proposal: Proposal, user: User) -> bool:
    """Return True if the user may approve and decline the proposal, of those that the user may read."""
    rights = user.token_rights
    if rights is not None and Purse.objects.filter(pk=rights.token).exists():
        return False
    if user.is_superuser or user.pk == proposal.person_id:
        return True
    return proposal.project_id is not None and access.get_role(user, proposal.project_id) is Role.MAINTAINER


def _serialize_excess(stored: Mapping[str, Any]) -> dict[str, Any]:
    message, hint = render_text(str(stored["code"]), dict(stored["params"]))
    return {"code": stored["code"], "message": message, "hint": hint}


def list_token_events(user: User, token: str) -> QuerySet[AuditEvent, Any]:
    """Return what was done with the token, for who may read its purse: to others than its user, and to tokens of
    projects, only what was done in projects that they maintain or are limited to."""
    rows = AuditEvent.objects.filter(token=token)
    if not user.is_superuser:
        purse = filter_purses(user).filter(pk=token).first()
        rights = user.token_rights
        if purse is None:
            rows = rows.none()
        elif user.pk not in (purse.token.user_id, purse.token.created_by_id):
            rows = rows.filter(project__in=access.select_projects(user, Role.MAINTAINER))
        elif rights is not None and rights.projects is not None:
            rows = rows.filter(project__in=sorted(rights.projects))
    return rows.select_related("actor", "project")
