"""Store of the engine `agent` for attempts, in the database; see `fermi.engines.agent.store`."""

import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Event
from typing import Any, cast

from django.db import connection, transaction
from django.db.models import Exists, OuterRef

from apps.accounts import secrets
from apps.clusters.models import EnvironmentStatus
from apps.common.clock import now
from apps.common.errors import ApiError
from apps.common.retention import delete_old
from apps.training.public import Task, reveal_secrets
from apps.workers import busy_ports, health, revisions
from apps.workers.engine import channels
from apps.workers.models import Launch, Order, Report, Worker
from apps.workers.services import environments
from fermi.engines.agent import store
from fermi.jobs.errors import BackendError

KEEP_FORGOTTEN_FOR = timedelta(days=1)
"""How long it is stored which worker had which rank of a forgotten attempt without a task."""


class DatabaseStore:
    """Implements the engine's store. Every change of what a worker is to do takes a number from `revisions`, which also
    makes such changes happen one after the other."""

    def put(self, name: str, task_id: str, attempt: int, orders: Sequence[store.RankOrder]) -> None:
        if Launch.objects.filter(pk=name).exists():
            return
        with transaction.atomic():
            revision = revisions.take_next_revision()
            workers = Worker.objects.in_bulk([order.worker for order in orders])
            if unknown := [order.worker for order in orders if order.worker not in workers]:
                raise BackendError("WORKER_UNKNOWN", permanent=True, workers=", ".join(unknown))
            files = orders[0].body.get("files", {}) if orders else {}
            launch, new = Launch.objects.get_or_create(
                name=name, defaults={"task": task_id, "attempt": attempt, "files": files}
            )
            if not new:
                return
            Order.objects.bulk_create(
                Order(
                    launch=launch,
                    worker=order.worker,
                    machine=workers[order.worker].machine,
                    rank=order.rank,
                    node_rank=order.node_rank,
                    node=order.node,
                    digest=order.digest,
                    body={key: value for key, value in order.body.items() if key != "files"},
                )
                for order in orders
            )
            about = {"name": name, "taskId": task_id, "attempt": attempt}
            _update_desired(
                revision,
                {
                    order.worker: {"order": {**about, "rank": order.rank, "digest": order.digest}, "stop": None}
                    for order in orders
                },
            )

    def attempts(self, names: Collection[str]) -> Mapping[str, store.AttemptReports]:
        launches = Launch.objects.filter(pk__in=names, forgotten=False).prefetch_related("orders")
        known = {launch.pk: launch for launch in launches}
        ids = {order.worker for launch in known.values() for order in launch.orders.all()}
        judge = health.read_worker_health()
        rows = Worker.objects.filter(pk__in=ids).values_list(
            "pk", "machine", "report__at", "environment__status", "report__process__name", "report__process__doing"
        )
        heard = {key: (machine, judge.status(at), at, usable) for key, machine, at, usable, *_ in rows}
        doing = {(key, name): words for key, *_, name, words in rows}
        if any(seen == "lost" and usable == EnvironmentStatus.RUNNING for _, seen, _, usable in heard.values()):
            environments.sync_health()  # first, or the next attempt would begin where this one was lost

        def build_report(order: Order) -> store.RankReport:
            machine, seen, at, _ = heard.get(order.worker, ("", "lost", None, ""))
            if machine != order.machine:
                return _build_report(order, "lost", None, None)
            return _build_report(order, seen, at, doing.get((order.worker, order.launch_id)))

        return {
            name: store.AttemptReports(launch.stopped, [build_report(order) for order in launch.orders.all()])
            for name, launch in known.items()
        }

    def pulses(self, name: str) -> Sequence[Mapping[str, Any]]:
        """Return the progress of each rank; the orders say which rank a worker has."""
        ranks = dict(Order.objects.filter(launch=name).values_list("worker", "rank"))
        heard = Report.objects.filter(worker__in=ranks, process__name=name).values_list("worker", "pulse")
        return [{**pulse, "rank": ranks[worker]} for worker, pulse in heard if pulse]

    def stop(self, name: str, task_id: str, attempt: int, grace_seconds: float) -> None:
        kill_at = time.time() + grace_seconds
        launch = Launch.objects.filter(pk=name).first()
        if launch and launch.stopped and (launch.kill_at or 0.0) <= kill_at:
            return
        with transaction.atomic():
            revision = revisions.take_next_revision()
            launch, _ = Launch.objects.get_or_create(name=name, defaults={"task": task_id, "attempt": attempt})
            if launch.stopped and (launch.kill_at or 0.0) <= kill_at:
                return
            Launch.objects.filter(pk=name).update(stopped=True, grace_seconds=grace_seconds, kill_at=kill_at)
            stop = {"name": name, "graceSeconds": grace_seconds, "killAt": kill_at}
            self._tell(launch, revision, lambda desired: {**desired, "stop": stop})

    def delete_attempt(self, name: str) -> None:
        with transaction.atomic():
            revision = revisions.take_next_revision()
            launch = Launch.objects.filter(pk=name, forgotten=False).first()
            if launch is None:
                return
            self._tell(launch, revision, lambda _: {})
            launch.orders.update(body={})
            Launch.objects.filter(pk=name).update(forgotten=True, stopped=True, files={})

    def names(self) -> Sequence[tuple[str, str, int]]:
        return list(Launch.objects.filter(forgotten=False).values_list("name", "task", "attempt"))

    def ports(self, node: str) -> Mapping[int, str]:
        return busy_ports.list_busy_ports([node]).get(node, {})

    def workers(self) -> Mapping[str, store.WorkerStatus]:
        judge = health.read_worker_health()
        return {key: judge.status(at) for key, at in Worker.objects.values_list("pk", "report__at")}

    def channel(self, name: str, worker: str) -> socket.socket:
        order = Order.objects.filter(launch=name, worker=worker, launch__stopped=False).first()
        if order is None or not any(_get_order_name(one) == name for one in Worker.objects.filter(pk=worker)):
            raise LookupError(worker)
        return channels.wait_for_stream(worker, order.machine, name)

    def watch(self, stop: Event, on_change: Callable[[str], None]) -> None:
        """Wait until `stop`: code that stores a report or notices a loss wakes the reconciler itself."""
        stop.wait()

    def _tell(self, launch: Launch, revision: int, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change what the workers are to do that have this attempt's order now."""
        ids = list(launch.orders.values_list("worker", flat=True))
        having = [worker for worker in Worker.objects.filter(pk__in=ids) if _get_order_name(worker) == launch.pk]
        _update_desired(revision, {worker.pk: change(worker.desired) for worker in having})


def read_order(worker_id: str) -> dict[str, Any] | None:
    """Return the body of what the worker is to run, or None."""
    worker = Worker.objects.get(pk=worker_id)
    order = Order.objects.select_related("launch").filter(launch=_get_order_name(worker), worker=worker_id).first()
    if order is None or not order.body:
        return None
    return {
        **order.body,
        "files": order.launch.files,
        "generation": worker.generation,
        "secrets": _reveal_secrets(order.launch.task),
    }


def _reveal_secrets(task_id: str) -> dict[str, str]:
    """Return the secrets' values; read when the order is fetched, and never stored with it. Raises ApiError 409."""
    task = Task.objects.filter(pk=task_id).first()
    try:
        return reveal_secrets(task) if task else {}
    except secrets.SecretUnavailableError as why:
        raise ApiError(409, why.code, **why.params) from None


def delete_forgotten_attempts() -> int:
    """Delete forgotten attempts whose task was deleted. Returns their number."""
    task = Task.objects.filter(pk=OuterRef("task"))
    old = Launch.objects.filter(~Exists(task), forgotten=True, created_at__lt=now() - KEEP_FORGOTTEN_FOR)
    return delete_old(old)


def _get_order_name(worker: Worker) -> str:
    order = worker.desired.get("order")
    return order["name"] if order else ""


def _update_desired(revision: int, desired: Mapping[str, Any]) -> None:
    """Update each worker by one prepared statement: `bulk_update`, which makes one statement for all rows, takes a
    quarter of a millisecond a row."""
    adapt = connection.ops.adapt_json_value
    with connection.cursor() as cursor:
        cursor.executemany(
            f"UPDATE {Worker._meta.db_table} SET desired = %s, generation = %s WHERE id = %s",
            [(adapt(told, None), revision, worker) for worker, told in desired.items()],
        )


def _build_report(
    order: Order, status: health.Status, heard_at: datetime | None, doing: Mapping[str, Any] | None
) -> store.RankReport:
    return store.RankReport(
        order.worker, order.rank, order.node_rank, order.node, status, cast(store.ProcessState, order.state),
        order.pid, order.exit_code, order.ended_at, order.left, order.asked,
        heard_at.timestamp() if heard_at else None, order.still_since, order.cause,
        order.error, order.stalled, order.kill, order.course or {}, doing,
    )  # fmt: skip
