"""Stores what goes beyond a purse, and carries out what a person approves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.crypto import salted_hmac

from apps.accounts import access, audit
from apps.accounts.encryption import DecryptionError, decrypt_value, encrypt_value
from apps.accounts.models import AuditEvent, Role, User
from apps.accounts.scopes import TokenRights
from apps.agents import execution, selectors
from apps.agents.models import Proposal, ProposalState, Purse
from apps.agents.request_masks import mask_answer, mask_request
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.row_bounds import MAX_ROWS
from apps.notices.services.incidents import open_incident, resolve_incidents
from apps.training.public import Task

LIFETIME = timedelta(days=7)
MAX_BODY_BYTES = 256 << 10
MAX_RESULT_BYTES = 64 << 10
MAX_CHANGES = 50
MAX_VALUE_LENGTH = 300  # characters of a value in a difference


@dataclass(frozen=True, slots=True)
class Draft:
    """A request that goes beyond a purse. `excesses`: in which ways, as `{"code", "params"}`."""

    operation: str
    method: str
    path: str
    body: Mapping[str, Any]
    project: str | None
    excesses: Sequence[Mapping[str, Any]]
    plan: Mapping[str, Any] = field(default_factory=dict)


def propose_request(purse: Purse, draft: Draft, agent: access.AnyUser | None = None) -> ApiError:
    """Store a proposal, or find the open one for the same request, and return the error that names it: 403
    PURSE_EXCEEDED; 403 PROPOSALS_FULL or PROPOSAL_TOO_LARGE if none can be stored. `agent`: the request's user with the
    rights of the token, for the audit trail."""
    text = json.dumps([draft.method, draft.path, draft.body], sort_keys=True)
    if len(text) > MAX_BODY_BYTES:
        return ApiError(403, "PROPOSAL_TOO_LARGE", limit=MAX_BODY_BYTES >> 10)
    digest = salted_hmac("apps.agents.proposals", text, algorithm="sha256").hexdigest()
    open_ones = Proposal.objects.filter(purse=purse.pk, state=ProposalState.OPEN)
    found = open_ones.filter(digest=digest).first()
    if found is None:
        high = MAX_ROWS["proposals"]
        if open_ones.count() >= high:
            return ApiError(403, "PROPOSALS_FULL", limit=high)
        try:
            with transaction.atomic():
                found = _store_proposal(purse, draft, digest, agent)
        except IntegrityError:  # the same request came twice at the same time
            found = open_ones.get(digest=digest)
    error = ApiError(403, "PURSE_EXCEEDED", proposal=found.pk, address=get_address(found.pk))
    error.problems += [selectors.build_problem(one) for one in found.beyond]
    error.extra["proposal"] = {"id": found.pk, "address": get_address(found.pk)}
    return error


def get_address(proposal: str) -> str:
    """Return the console's page where a person decides a proposal."""
    return f"/agents/proposals/{proposal}"


def _store_proposal(purse: Purse, draft: Draft, digest: str, agent: access.AnyUser | None) -> Proposal:
    user, moment = purse.token.user, now()
    made = Proposal.objects.create(
        purse=purse.pk,
        token_name=purse.token.name,
        agent=purse.agent,
        person=user,
        project_id=draft.project,
        operation=draft.operation,
        method=draft.method,
        path=draft.path,
        body=mask_request(draft.body),
        sealed=encrypt_value(json.dumps(draft.body)),
        digest=digest,
        beyond=list(draft.excesses),
        plan=dict(draft.plan),
        difference=_compare_with_former(purse, draft),
        created_at=moment,
        expires_at=moment + LIFETIME,
    )
    audit.record_event(agent or user, "proposal.create", made.pk, project=draft.project, operation=draft.operation)
    told = {"agent": purse.agent or purse.token.name, "operation": draft.operation}
    open_incident(
        "proposal", made.pk, "NOTICE_PROPOSAL", told, project=draft.project, owner=user.pk, link=get_address(made.pk)
    )
    return made


def _compare_with_former(purse: Purse, draft: Draft) -> dict[str, Any]:
    """Return what a proposed task changes against the newest one that the token created in the project; empty without
    one."""
    if not draft.plan:
        return {}
    created = AuditEvent.objects.filter(token=purse.pk, action="task.create").values("target")
    former = Task.objects.filter(pk__in=created, project=draft.project).order_by("-created_at", "pk").first()
    if former is None:
        return {}
    before, after = (dict(_flatten(mask_request(one))) for one in (former.request, draft.body))
    fields = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return {
        "taskId": former.pk,
        "changes": [
            {"field": name, "before": _shorten(before.get(name)), "after": _shorten(after.get(name))}
            for name in fields[:MAX_CHANGES]
        ],
    }


def _flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [pair for key, part in value.items() for pair in _flatten(part, f"{path}.{key}" if path else key)]
    return [(path, value)]


def _shorten(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def get_decidable(user: User, key: str) -> Proposal:
    """Return the proposal if the user may decide it. Raises ApiError 404 NOT_FOUND, and 403 FORBIDDEN to whom may only
    read it."""
    found = selectors.filter_proposals(user).select_related("person", "project").filter(pk=key).first()
    if found is None:
        raise ApiError(404, "NOT_FOUND")
    rights = user.token_rights
    if rights is not None and Purse.objects.filter(pk=rights.token).exists():
        raise ApiError(403, "PURSE_REFUSED", operation="approveProposal")
    if user.pk != found.person_id and not user.is_superuser:
        access.require_role(user, found.project_id, Role.MAINTAINER)
    return found


def decline_proposal(user: User, key: str, *, note: str = "") -> Proposal:
    """Decline an open proposal and return it. Declining it again changes nothing. `note`: why, for the agent. Raises
    ApiError 409."""
    found = get_decidable(user, key)
    with transaction.atomic():
        if _decide(user, found, ProposalState.DECLINED, note):
            audit.record_event(user, "proposal.decline", found.pk, project=found.project_id)
    found.refresh_from_db()
    if found.state != ProposalState.DECLINED:
        raise ApiError(409, "PROPOSAL_DECIDED", status=found.state)
    return found


def approve_proposal(user: User, key: str, *, again: bool = False, note: str = "") -> Proposal:
    """Approve an open proposal, send its request as its person and return the proposal with the answer. Approved by
    somebody else, the request reaches the proposal's project alone, and nothing that the approver's token cannot reach.

    Approving it again returns the same answer. If the process ended before the answer was stored, a request that
    creates a task is repeated, which cannot create a second one; any other is only repeated with `again`. `note`: for
    the agent. Raises ApiError 409 PROPOSAL_DECIDED, PROPOSAL_CUT_OFF, PROPOSAL_PERSON_INACTIVE or PROPOSAL_UNREADABLE.
    """
    found = get_decidable(user, key)
    body = _read_body(found)
    if not found.person.is_active:
        raise ApiError(409, "PROPOSAL_PERSON_INACTIVE", user=found.person.username)
    with transaction.atomic():
        claimed = _decide(user, found, ProposalState.APPROVED, note)
        if claimed:
            told = {"operation": found.operation, "person": found.person.username, "agentToken": found.purse}
            audit.record_event(user, "proposal.approve", found.pk, project=found.project_id, **told)
    found.refresh_from_db()
    if found.state != ProposalState.APPROVED:
        raise ApiError(409, "PROPOSAL_DECIDED", status=found.state)
    if found.status is not None:
        return found
    if not claimed and not again and found.operation != "createTask":
        raise ApiError(409, "PROPOSAL_CUT_OFF", operation=found.operation)
    person = User.objects.get(pk=found.person_id)
    _limit_person(person, user, found)
    status, answer = execution.perform_request(person, found.method, found.path, body, f"proposal-{found.pk}")
    answer = mask_answer(answer)
    if len(json.dumps(answer)) > MAX_RESULT_BYTES:
        answer = {"code": answer.get("code"), "message": answer.get("message")}
    if status < 500:  # otherwise it is as if it had been cut off
        Proposal.objects.filter(pk=found.pk, status=None).update(status=status, result=answer)
    found.refresh_from_db()
    return found


def _limit_person(person: User, user: User, found: Proposal) -> None:
    """Let the approved request reach no project that is none of the approver's business: a request names more than the
    project that it is shown under, and the person may have rights in others. `person` must not be saved any more."""
    projects: frozenset[str] | None
    if user.pk == person.pk or user.is_superuser:
        projects = user.token_rights.projects if user.token_rights else None
    else:
        projects = frozenset((found.project_id,)) if found.project_id else frozenset()
    if projects is not None:
        person.token_rights = TokenRights("", "", projects=projects, administrator=person.is_superuser)
        person.is_superuser = person.is_staff = False


def _read_body(found: Proposal) -> Any:
    """Return the whole request of a proposal. Raises ApiError 409 PROPOSAL_UNREADABLE."""
    if not found.sealed:  # stored before requests were encrypted
        return found.body
    try:
        return json.loads(decrypt_value(found.sealed))
    except DecryptionError as error:
        raise ApiError(409, "PROPOSAL_UNREADABLE") from error


def _decide(user: User, found: Proposal, state: ProposalState, note: str) -> bool:
    """Move an open proposal to the state; return False if another request was faster, or it has expired."""
    open_one = Proposal.objects.filter(pk=found.pk, state=ProposalState.OPEN, expires_at__gt=now())
    decided = bool(open_one.update(state=state, decided_by=user.pk, decided_at=now(), note=note))
    if decided:
        resolve_incidents(found.pk, "proposal")
    return decided


def expire_proposals() -> int:
    """Close the proposals that nobody decided in time; return how many."""
    late = Proposal.objects.filter(Q(state=ProposalState.OPEN, expires_at__lte=now()))
    for key in late.values_list("pk", flat=True):
        resolve_incidents(key, "proposal")
    return late.update(state=ProposalState.EXPIRED)
