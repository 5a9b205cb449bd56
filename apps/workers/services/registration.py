"""Registration of hosts' workers, and their removal."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction

from apps.accounts import access, audit
from apps.accounts.access import choose_project
from apps.accounts.models import Role, User
from apps.common.clock import now
from apps.common.errors import ApiError, ProblemsError
from apps.common.row_bounds import check_row_limit
from apps.workers import health, revisions, tokens
from apps.workers.models import NODE_LENGTH, JoinToken, Order, Report, Worker
from apps.workers.services import environments, host_runs
from fermi.jobs.ranks import parse_worker_name
from fermi.jobs.spec import Problem

Entries = Sequence[Mapping[str, Any]]


def create_join_token(user: User, *, name: str, project_id: str | None, origin: str) -> dict[str, Any]:
    """Create a join token (member) and return it with its value, which is not stored. `origin`: address at which the
    user reaches the platform."""
    project = choose_project(user, project_id)
    token = tokens.make_token("join")
    with transaction.atomic():
        check_row_limit("join-tokens", JoinToken.objects.filter(owner=user))
        made = JoinToken.objects.create(project_id=project, owner=user, name=name, digest=tokens.hash_token(token))
        audit.record_event(user, "join-token.create", made.pk, project=project, name=name)
    address = settings.PUBLIC_URL or origin
    command = f"fermi worker --server {address} --token {token} --node $(hostname -s)"
    return {"id": made.pk, "name": name, "projectId": project, "token": token, "command": command}


def revoke_join_token(user: User, token_id: str) -> None:
    """Delete a join token (member). Workers that joined with it stay."""
    found = access.get_object(JoinToken.objects.all(), user, token_id, Role.MEMBER)
    with transaction.atomic():
        audit.record_event(user, "join-token.revoke", found.pk, project=found.project_id, name=found.name)
        found.delete()


def get_join_token(token: str) -> JoinToken:
    """Return the join token. Raises ApiError 401 unless its user is still a member of the project."""
    found = JoinToken.objects.filter(digest=tokens.hash_token(token)).select_related("owner").first()
    role = access.get_role(found.owner, found.project_id) if found and found.owner.is_active else None
    if found is None or role not in (Role.MEMBER, Role.MAINTAINER):
        raise ApiError(401, "JOIN_TOKEN_INVALID")
    return found


def register_workers(
    token: JoinToken, *, workers: Entries, incarnation: str, facts: dict[str, Any]
) -> list[dict[str, str]]:
    """Register the workers and return a new token for each. The same machine may register again at any time; another
    one only if the worker is lost. Raises ApiError."""
    machine = str(facts.get("machineId") or facts.get("host") or "")[:100]
    _check_names(workers)
    given = {entry["id"]: tokens.make_token("worker") for entry in workers}
    with transaction.atomic():
        revision = revisions.take_next_revision()
        known = {
            worker.pk: worker
            for worker in Worker.objects.filter(pk__in=given).select_related("report").select_for_update(of=("self",))
        }
        _check_owners(token, workers, known, machine)
        if new := given.keys() - known.keys():
            check_row_limit("workers", Worker.objects.filter(project=token.project_id), new_rows=len(new))
        for entry in workers:
            node, number = parse_worker_name(entry["id"])
            before = known.get(entry["id"])
            same = before is not None and before.machine == machine
            worker = before or Worker(pk=entry["id"], node=node, number=number, project_id=token.project_id)
            worker.gpu, worker.facts, worker.machine, worker.incarnation = entry["gpu"], facts, machine, incarnation
            worker.digest, worker.generation = tokens.hash_token(given[worker.pk]), revision
            worker.desired = _keep_desired(worker) if same else {}  # what another host was to run is not this one's
            worker.hosted = host_runs.build_host_orders(worker)
            worker.save(force_insert=before is None)
            Report.objects.update_or_create(
                worker=worker,
                defaults={"at": now()} if same else {"at": now(), "process": {}, "usage": {}, "sequence": -1},
            )
        environments.sync_environments(token.project_id, {parse_worker_name(key)[0] for key in given})
        JoinToken.objects.filter(pk=token.pk).update(last_used_at=now())
        joined = sorted(given.keys() - known.keys())
        if joined:
            audit.record_event(token.owner, "worker.join", joined[0], project=token.project_id, workers=joined)
    return [{"id": key, "token": secret} for key, secret in given.items()]


def delete_worker(user: User, worker_id: str) -> None:
    """Delete a worker (member). Its agent is told to register again, which needs a join token. Raises ApiError 409
    while it is in use."""
    worker = access.get_object(Worker.objects.all(), user, worker_id, Role.MEMBER)
    with transaction.atomic():
        revisions.take_next_revision()
        if busy := environments.find_in_use([worker], "workers"):
            raise ApiError(409, busy[0].code, **busy[0].params)
        audit.record_event(user, "worker.remove", worker.pk, project=worker.project_id)
        worker.delete()
        environments.sync_environments(worker.project_id, {worker.node})


def _keep_desired(worker: Worker) -> dict[str, Any]:
    """Return what the worker is to do, with whether its rank was ever started: an agent that knows nothing of it must
    not start it again."""
    order = worker.desired.get("order")
    if order is None:
        return worker.desired
    begun = Order.objects.filter(launch=order["name"], worker=worker.pk).exclude(state="ordered").exists()
    return {**worker.desired, "order": {**order, "begun": begun}}


def _check_names(workers: Entries) -> None:
    problems, seen = [], set()
    for index, entry in enumerate(workers):
        key = entry["id"]
        try:
            node, _ = parse_worker_name(key)
        except ValueError:
            node = ""
        if not node or len(node) > NODE_LENGTH:
            problems.append(Problem(f"workers.{index}.id", "WORKER_NAME_INVALID", {"worker": key, "high": NODE_LENGTH}))
        elif key in seen:
            problems.append(Problem(f"workers.{index}.id", "WORKER_DUPLICATE", {"worker": key}))
        seen.add(key)
    if problems:
        raise ProblemsError(problems)


def _check_owners(token: JoinToken, workers: Entries, registered: Mapping[str, Worker], machine: str) -> None:
    judge = health.read_worker_health()
    for index, entry in enumerate(workers):
        worker = registered.get(entry["id"])
        if worker is None:
            continue
        foreign = worker.project_id != token.project_id
        alive = judge.status(worker.report.at) in environments.HEARD_STATUSES
        if foreign or (alive and worker.machine != machine):
            host = "–" if foreign else worker.facts.get("host") or worker.machine
            raise ApiError(409, "WORKER_ID_TAKEN", f"workers.{index}.id", worker=worker.pk, host=host)
