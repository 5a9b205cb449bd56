"""Store of the engine `agent` for dev environments, in the database; see `fermi.engines.agent.hosts`."""

import socket
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import close_old_connections, transaction

from apps.accounts import secrets as project_secrets
from apps.common.errors import ApiError
from apps.workers import health, revisions
from apps.workers.engine import channels
from apps.workers.models import HostRun, Worker
from apps.workers.services import environments, host_runs
from fermi.engines.agent.hosts import EnvironmentRunReport, HostedRun, HostStatus
from fermi.engines.environments import EnvironmentHandle, EnvironmentPhase, EnvironmentSpec, EnvironmentStatus
from fermi.jobs.errors import BackendError
from fermi.runner.run_names import parse_run_name
from fermi.schema import serialization

USABLE_STATUSES = ("online", "suspect")


class DatabaseHostStore:
    """Implements the engine's store with the models `HostRun` and `Worker`."""

    def hosts(self, project: str) -> Mapping[str, HostStatus]:
        judge, by_node = health.read_worker_health(), defaultdict(list)
        for worker in Worker.objects.filter(project=project).select_related("report").order_by("number"):
            by_node[worker.node].append(worker)
        return {node: _build_host(workers, judge) for node, workers in by_node.items()}

    def put(self, spec: EnvironmentSpec, body: Mapping[str, Any]) -> None:
        if _is_known(spec):
            return
        with transaction.atomic():
            revision = revisions.take_next_revision()
            if _is_known(spec):
                return
            before = HostRun.objects.filter(environment=spec.id).first()
            carrier, taken = _choose_workers(spec, before)
            given = {"gpus": [worker.gpu for worker in taken]} if all(w.gpu is not None for w in taken) else {}
            fields = {
                "name": spec.run_name, "number": spec.run, "worker": carrier.pk, "node": carrier.node,
                "machine": carrier.machine, "body": {**body, **given},
            }  # fmt: skip
            if before:
                before.delete()
            HostRun.objects.create(environment=spec.id, **fields)
            host_runs.hold_workers(spec.id, taken)
            host_runs.update_host_orders(carrier.pk, revision)
            if before and before.worker != carrier.pk:
                host_runs.update_host_orders(before.worker, revision)

    def runs(self, names: Collection[str]) -> Mapping[str, EnvironmentRunReport]:
        rows = list(HostRun.objects.filter(pk__in=names))
        judge = health.read_worker_health()
        heard = {
            worker.pk: worker
            for worker in Worker.objects.filter(pk__in=[row.worker for row in rows]).select_related("report")
        }
        holding: defaultdict[str, list[Worker]] = defaultdict(list)
        for worker in Worker.objects.filter(held_by__in=[row.environment for row in rows]).order_by("number"):
            holding[worker.held_by].append(worker)
        found = {}
        for row in rows:
            report = _build_report(row, heard.get(row.worker), holding[row.environment], judge)
            if holding[row.environment] and _is_over(report):
                with transaction.atomic():
                    revisions.take_next_revision()
                    host_runs.release_workers(row.environment)
            found[row.name] = report
        return found

    def kept(self, environments: Collection[str]) -> Mapping[str, HostedRun]:
        rows = HostRun.objects.filter(environment__in=environments, stopped=False).exclude(worker="")
        return {
            row.environment: HostedRun(row.name, str(row.body.get("project") or ""), str(row.body.get("image") or ""))
            for row in rows
        }

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        row = HostRun.objects.filter(environment=handle.environment).first()
        if row and (row.number > handle.run or (row.number == handle.run and _is_stopping_within(row, grace_seconds))):
            return
        with transaction.atomic():
            revision = revisions.take_next_revision()
            row = HostRun.objects.select_for_update().filter(environment=handle.environment).first()
            if row and row.number > handle.run:
                return
            if row and row.number == handle.run:
                row.stopped, row.grace_seconds = True, min(grace_seconds, row.grace_seconds or grace_seconds)
                row.save(update_fields=["stopped", "grace_seconds"])
                host_runs.update_host_orders(row.worker, revision)
            elif row:  # an older one is known: what was never put can now not be put, and where the disk is stays known
                kept = {"worker": row.worker, "node": row.node, "machine": row.machine}
                row.delete()
                HostRun.objects.create(
                    name=handle.name, environment=handle.environment, number=handle.run, stopped=True,
                    grace_seconds=grace_seconds, **kept,
                    said=serialization.dump(EnvironmentStatus(EnvironmentPhase.ABSENT, False)),
                )  # fmt: skip
                host_runs.update_host_orders(kept["worker"], revision)
            else:
                HostRun.objects.create(
                    name=handle.name, environment=handle.environment, number=handle.run, stopped=True,
                    grace_seconds=grace_seconds,
                )  # fmt: skip

    def remove(self, environment: str) -> bool:
        row = HostRun.objects.filter(environment=environment).first()
        if row is None:
            return True
        with transaction.atomic():
            revision = revisions.take_next_revision()
            row = HostRun.objects.filter(environment=environment).first()
            if row is None:
                return True
            there = Worker.objects.filter(pk=row.worker, machine=row.machine).exists()
            if row.gone or not there:
                row.delete()
                host_runs.release_workers(environment)
                host_runs.update_host_orders(row.worker, revision)
                return True
            if not row.removing:
                HostRun.objects.filter(pk=row.pk).update(removing=True, stopped=True)
                host_runs.update_host_orders(row.worker, revision)
        return False

    def channel(self, name: str) -> socket.socket:
        close_old_connections()  # of a thread that asks once in hours
        row = HostRun.objects.filter(pk=name, stopped=False).exclude(worker="").first()
        if row is None:
            raise BackendError("ENVIRONMENT_AWAY", environment=parse_run_name(name)[0])
        try:
            return channels.wait_for_stream(row.worker, row.machine, row.name)
        except (TimeoutError, LookupError):
            raise BackendError("ENVIRONMENT_AWAY", environment=row.environment) from None


def read_run_body(worker_id: str, name: str) -> dict[str, Any] | None:
    """Return what an agent needs to start a run, with the present secrets; None if the run is not its worker's. Raises
    ApiError 409 if a secret cannot be read."""
    row = HostRun.objects.filter(pk=name, worker=worker_id, stopped=False).first()
    if row is None or not row.body:
        return None
    spec = serialization.load(EnvironmentSpec, row.body)
    try:
        secrets = project_secrets.reveal_secrets(spec.project, spec.secret_env)
    except project_secrets.SecretUnavailableError as why:
        raise ApiError(409, why.code, **why.params) from None
    return {"name": name, "spec": row.body, "secrets": secrets}


def _is_known(spec: EnvironmentSpec) -> bool:
    return HostRun.objects.filter(environment=spec.id, number__gte=spec.run).exists()


def _is_stopping_within(row: HostRun, grace_seconds: float) -> bool:
    return row.stopped and row.grace_seconds is not None and row.grace_seconds <= grace_seconds


def _is_over(report: EnvironmentRunReport) -> bool:
    seen = report.environment_status
    return bool(
        seen
        and seen.left is False
        and (report.stopped or seen.phase in (EnvironmentPhase.ENDED, EnvironmentPhase.ABSENT))
    )


def _build_host(workers: Sequence[Worker], judge: health.WorkerHealth) -> HostStatus:
    """Return the host's state: that of its best worker, since one agent usually runs them all."""
    statuses = [judge.status(worker.report.at) for worker in workers]
    order: tuple[health.Status, ...] = ("online", "suspect", "never")
    status: health.Status = next((one for one in order if one in statuses), "lost")
    free = {worker.pk: worker.gpu for worker in workers if not worker.held_by and not worker.group_id}
    return HostStatus(status, free, any(worker.facts.get("containers") for worker in workers))


def _choose_workers(spec: EnvironmentSpec, before: HostRun | None) -> tuple[Worker, list[Worker]]:
    """Return the worker that carries the run, and the workers that it holds. Raises BackendError."""
    judge = health.read_worker_health()
    rows = list(Worker.objects.filter(project=spec.project).select_related("report").order_by("node", "number"))
    wanted = (before.node if before and before.node else "") or spec.host
    nodes = list(dict.fromkeys(worker.node for worker in rows if wanted in ("", worker.node)))
    if not nodes:
        raise BackendError("HOST_UNKNOWN", permanent=True, host=wanted or "–", allowed=_join_node_names(rows))
    by_node = {node: [worker for worker in rows if worker.node == node] for node in nodes}
    if spec.image:
        nodes = [node for node in nodes if any(worker.facts.get("containers") for worker in by_node[node])]
        if not nodes:
            raise BackendError("HOST_WITHOUT_CONTAINERS", permanent=True, host=", ".join(by_node))
    alive = {
        node: [worker for worker in workers if judge.status(worker.report.at) in USABLE_STATUSES]
        for node, workers in by_node.items()
        if node in nodes
    }
    if not any(alive.values()):
        raise BackendError("HOST_AWAY", host=", ".join(nodes))
    busy = ""
    running = _count_runs()
    for node in sorted((node for node in nodes if alive[node]), key=lambda node: (running.get(node, 0), node)):
        free = [worker for worker in by_node[node] if worker.held_by in ("", spec.id) and not worker.group_id]
        if spec.gpus and not spec.emulated:
            free = [worker for worker in free if (worker.number if worker.gpu is None else worker.gpu) in spec.gpus]
        taken = free[: spec.gpu_count]
        holders = environments.find_holders(w.environment_id for w in taken if w.environment_id and not w.held_by)
        if len(taken) == spec.gpu_count and not holders:
            return alive[node][0], taken
        busy = busy or ", ".join(sorted(set(holders.values())))
    raise BackendError("HOST_WORKERS_BUSY", host=", ".join(nodes), expected=spec.gpu_count, holders=busy or "–")


def _count_runs() -> dict[str, int]:
    """Return the number of runs by node."""
    found: defaultdict[str, int] = defaultdict(int)
    for node in HostRun.objects.filter(stopped=False).values_list("node", flat=True):
        found[node] += 1
    return found


def _join_node_names(workers: Sequence[Worker]) -> str:
    return ", ".join(dict.fromkeys(worker.node for worker in workers)) or "–"


def _build_report(
    row: HostRun, carrier: Worker | None, holding: Sequence[Worker], judge: health.WorkerHealth
) -> EnvironmentRunReport:
    seen = serialization.load(EnvironmentStatus, row.said) if row.said else None
    if not row.worker:
        return EnvironmentRunReport("", "online", row.stopped, seen)
    same = carrier is not None and carrier.machine == row.machine
    status = judge.status(carrier.report.at) if carrier and same else "lost"
    holds = None
    if carrier and same:
        facts = environments.build_host_columns(list(holding) or [carrier])
        holds = facts if holding else {**facts, "engine": {}}
    return EnvironmentRunReport(row.node, status, row.stopped, seen, holds)
