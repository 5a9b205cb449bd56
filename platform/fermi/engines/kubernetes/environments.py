"""Dev environments on Kubernetes, made of the objects of `environment_objects`. The cluster is the only memory.

    start   ConfigMap of the run ─▶ modules, Secret, disk, claim, Service ─▶ StatefulSet (made, or given the run's
            template) ─▶ former runs' ConfigMaps and Secrets go ─▶ the ConfigMap is marked as submitted
    stop    the ConfigMap is marked as cancelled (made so where there is none), and keeps the end of the log
            ─▶ no replicas, and the pod is deleted ─▶ a ConfigMap that holds the mark and that end alone takes its
            place, and its Secret goes
    delete  StatefulSet, Service, ConfigMaps, claim, disk; gone when the API server has none of them

A run whose pod was deleted continues in the pod that its StatefulSet makes next. The end of its environment daemon is
the run's end. Tasks train inside of its pod as in a discovered one: it is surveyed once its service is up, and counts
as running then.
"""

from __future__ import annotations

import logging
import math
import secrets as tokens
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from fermi.engines import runner_reports
from fermi.engines.connections import cache_by_connection
from fermi.engines.environments import (
    EnvironmentBackend,
    EnvironmentHandle,
    EnvironmentPhase,
    EnvironmentSpec,
    EnvironmentStatus,
    parse_activity,
    parse_cause,
)
from fermi.engines.kubernetes import causes, environment_pods, module_configmap, names
from fermi.engines.kubernetes.channels import PortForwardStream
from fermi.engines.kubernetes.client import (
    MERGE_PATCH,
    METADATA_ACCEPT,
    KubernetesApiError,
    KubernetesClient,
    open_in_time,
)
from fermi.engines.kubernetes.environment_objects import (
    DISK_VOLUME,
    ENVD_PORT,
    GRACE_MARGIN_SECONDS,
    format_disk_size,
    render,
)
from fermi.engines.kubernetes.gang import FINISHED_PHASES, find_condition, get_container_state, get_phase
from fermi.engines.kubernetes.inside import PodEnvironments
from fermi.engines.kubernetes.names import CANCELLED, ENVIRONMENT_ID, RUN_NUMBER, SUBMITTED
from fermi.engines.kubernetes.survey import EnvironmentSurveys
from fermi.envd import protocol
from fermi.jobs.causes import ENVD_CODES
from fermi.jobs.errors import BackendError
from fermi.jobs.spec import NO_SECRETS, Cause, LogChunk, Problem, Rendered

log = logging.getLogger(__name__)

STATUS_CACHE_SECONDS = 5.0
"""How long an environment daemon's status is used."""
DIAL_SECONDS = 10.0
SURVEY_SECONDS = 10.0
"""How long a service that is up waits until its pod has been surveyed."""
NODE_CACHE_SECONDS, GPU_CACHE_SECONDS = 60.0, 15.0
"""How long what a node has is used, and which environments hold its GPUs."""
OWNED_KINDS = ("StatefulSet", "Service", "ConfigMap", "ResourceClaim", "PersistentVolumeClaim")
LOG_KEY = "log"
MAX_LOG_LINES, MAX_LOG_BYTES = 500, 64 << 10
"""End of a stopped run's log that its record keeps: a ConfigMap has room for 1 MiB."""
ENVIRONMENT_SELECTOR = f"{names.SELECTOR},{ENVIRONMENT_ID}"
Object = dict[str, Any]


@cache_by_connection
def connect(connection: dict[str, Any]) -> KubernetesEnvironmentBackend:
    """Return the environment backend of a connection; the same one for equal connections."""
    return KubernetesEnvironmentBackend(connection)


class KubernetesEnvironmentBackend(EnvironmentBackend):
    """Environment backend on Kubernetes: one StatefulSet per environment."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self.connection = connection
        self.client = KubernetesClient(connection)
        self.claims = bool((connection.get("environments") or {}).get("deviceClass"))
        self._told: dict[str, tuple[float, Mapping[str, Any] | None]] = {}
        self._nodes: dict[str, tuple[float, Object]] = {}
        self._others: tuple[float, list[Object]] = (-math.inf, [])
        self._surveys = EnvironmentSurveys(PodEnvironments(self.client), lambda: None)
        self._up: dict[str, float] = {}  # container being surveyed -> since when its service is up
        self._lock = threading.Lock()

    def problems(self, spec: EnvironmentSpec) -> list[Problem]:
        found = []
        if not spec.image:
            found.append(Problem("image", "IMAGE_NEEDED", {}))
        if any(port.port == ENVD_PORT for port in spec.ports):
            found.append(Problem("ports", "PORT_IS_KEEPERS", {"port": ENVD_PORT}))
        return found

    def resize_problems(self, spec: EnvironmentSpec) -> list[Problem]:
        """Return whether its disk may have that size. The API server is asked to change the claim in a dry run: its
        class may not grow (`allowVolumeExpansion`), a quota may be used up. A disk that does not exist yet is made in
        its new size."""
        there = self.client.find(self.client.path("PersistentVolumeClaim", spec.id))
        if there is None:
            return []
        wanted, found = format_disk_size(spec), there["spec"]["resources"]["requests"]["storage"]
        params = {"wanted": wanted, "found": found, "storageClass": there["spec"].get("storageClassName") or "–"}
        if environment_pods.parse_quantity(wanted) < environment_pods.parse_quantity(found):
            return [Problem("diskGb", "DISK_CANNOT_SHRINK", params)]
        try:
            self._set_size(spec.id, wanted, dryRun="All")
        except KubernetesApiError as refused:
            if refused.code in ("ADMISSION_DENIED", "ENGINE_REJECTED"):
                return [Problem("diskGb", "DISK_CANNOT_GROW", {**params, "why": refused.message})]
            return [Problem("diskGb", refused.code, refused.params)]
        return []

    def zones(self) -> set[str] | None:
        """Return the zones of the nodes' labels; None where nodes may not be read, or the API server does not
        answer."""
        try:
            nodes = self.client.get("/api/v1/nodes")["items"]
        except BackendError:
            return None
        return {zone for node in nodes if (zone := (node["metadata"].get("labels") or {}).get(environment_pods.ZONE))}

    def render(self, spec: EnvironmentSpec) -> Rendered:
        return render(spec, self.connection)

    # start

    def start(self, rendered: Rendered, secrets: Mapping[str, str] = NO_SECRETS) -> None:
        config, *others = [artifact.content for artifact in rendered.artifacts]
        made = self.client.create("ConfigMap", config)
        there = made or self.client.get(self.client.path("ConfigMap", rendered.name))
        if names.get_annotations(there).keys() & {CANCELLED, SUBMITTED}:
            return
        if secrets:
            self.client.create_secret(_build_secret(there, secrets), secrets)
        for obj in others:
            if obj["kind"] == "StatefulSet":
                self._stand(obj)
            elif module_configmap.is_modules(obj):
                module_configmap.ensure_config_map(self.client, obj)
            elif self.client.create(obj["kind"], obj) is None and obj["kind"] == "PersistentVolumeClaim":
                self._grow(obj)
        self._forget_before(config["metadata"]["labels"])
        marked = self.client.annotate("ConfigMap", rendered.name, **{SUBMITTED: "true"})
        if CANCELLED in names.get_annotations(marked):  # meanwhile: `stop` may not have seen the set
            self._scale_down(config["metadata"]["labels"])

    def _forget_before(self, labels: Mapping[str, str]) -> None:
        """Remove what is left of former runs: their Secrets, with values that may have changed since, go with the
        records that own them. None of them can start any more, because the set has a later run."""
        for record in self._records(labels[ENVIRONMENT_ID]):
            if _get_run(record) < int(labels[RUN_NUMBER]):
                self._remove_record(record["metadata"]["name"])

    def _remove_record(self, name: str) -> None:
        """Delete a record; the garbage collector takes what it owns."""
        self.client.delete("ConfigMap", name, propagation="Background")

    def _stand(self, obj: Object) -> None:
        """Create or update the set, with the run's template and a token that only clients of its environment daemon are
        to know. Kubernetes lets a set's template and replicas change, and neither selector nor Service
        (pkg/apis/apps/validation, ValidateStatefulSetUpdate)."""
        token = tokens.token_urlsafe(24)
        template = obj["spec"]["template"]
        meta = {**template["metadata"], "annotations": {**template["metadata"]["annotations"], names.ENVD_TOKEN: token}}
        wanted = {
            **obj,
            "metadata": {**obj["metadata"], "annotations": {names.ENVD_TOKEN: token}},
            "spec": {**obj["spec"], "template": {**template, "metadata": meta}},
        }
        if self.client.create("StatefulSet", wanted) is not None:
            return
        name = obj["metadata"]["name"]
        there = self.client.get(self.client.path("StatefulSet", name))
        if _get_run(there) >= _get_run(obj):
            return
        given = wanted["spec"]
        wanted["metadata"] = {**wanted["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
        wanted["spec"] = {**there["spec"], "replicas": given["replicas"], "template": given["template"]}
        self.client.replace("StatefulSet", name, wanted)

    def _grow(self, obj: Object) -> None:
        """Enlarge the disk, where its class lets it; one that cannot grow is used as it is. Raise KubernetesApiError
        for problems that may pass."""
        name = obj["metadata"]["name"]
        there = self.client.get(self.client.path("PersistentVolumeClaim", name))
        wanted = obj["spec"]["resources"]["requests"]["storage"]
        if environment_pods.parse_quantity(wanted) > environment_pods.parse_quantity(
            there["spec"]["resources"]["requests"]["storage"]
        ):
            try:
                self._set_size(name, wanted)
            except KubernetesApiError as refused:
                if not refused.permanent:
                    raise
                log.warning("the disk of %s stays as it is: %s", name, refused.message)

    def _set_size(self, name: str, size: str, **query: str) -> None:
        body = {"spec": {"resources": {"requests": {"storage": size}}}}
        path = self.client.path("PersistentVolumeClaim", name)
        self.client.request("PATCH", path, query=query, body=body, content_type=MERGE_PATCH)

    # stop, delete

    def stop(self, handle: EnvironmentHandle, grace_seconds: float) -> None:
        labels = {names.MANAGED_BY: "fermi", ENVIRONMENT_ID: handle.environment, RUN_NUMBER: str(handle.run)}
        record = self._cancel(handle.name, labels, self._log_end(handle))
        self._scale_down(labels, grace_seconds)
        data = record.get("data") or {}
        if data.keys() - {LOG_KEY}:  # the run's Secret goes with it; the new record marks the run as over
            self._remove_record(handle.name)
            self._cancel(handle.name, labels, {name: text for name, text in data.items() if name == LOG_KEY})

    def _cancel(self, name: str, labels: Mapping[str, str], data: Mapping[str, str]) -> Object:
        """Return the run's record, marked as cancelled and with `data` beside its own; made so where there is none."""
        marked: Object = {"metadata": {"annotations": {CANCELLED: "true"}}, **({"data": {**data}} if data else {})}
        path = self.client.path("ConfigMap", name)
        try:
            return self._patch(path, marked)
        except KubernetesApiError as error:
            if error.status != 404:
                raise
        meta = {"name": name, "namespace": self.client.namespace, "labels": labels, **marked["metadata"]}
        made = self.client.create("ConfigMap", {"apiVersion": "v1", "kind": "ConfigMap", **marked, "metadata": meta})
        return made or self._patch(path, marked)

    def _patch(self, path: str, changes: Object) -> Object:
        made: Object = self.client.request("PATCH", path, body=changes, content_type=MERGE_PATCH)
        return made

    def _log_end(self, handle: EnvironmentHandle) -> dict[str, str]:
        """Return the end of the log, which goes with the pod, as data of the run's record."""
        pod = self.client.find(self.client.path("Pod", _pod_name(handle.environment)))
        if pod and _get_run(pod) == handle.run:
            with suppress(BackendError):
                if text := self._text(pod, tailLines=str(MAX_LOG_LINES)).decode(errors="replace"):
                    return {LOG_KEY: text.encode()[-MAX_LOG_BYTES:].decode(errors="ignore")}
        return {}

    def _scale_down(self, labels: Mapping[str, str], grace_seconds: float | None = None) -> None:
        environment, run = labels[ENVIRONMENT_ID], int(labels[RUN_NUMBER])
        path = self.client.path("StatefulSet", environment)
        there = self.client.find(path)
        if there is None or _get_run(there) != run:
            return
        if there["spec"].get("replicas", 1):
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            body = {"metadata": version, "spec": {"replicas": 0}}
            self.client.request("PATCH", path, body=body, content_type=MERGE_PATCH)
        pod = self.client.find(self.client.path("Pod", _pod_name(environment)))
        if pod and _get_run(pod) == run and grace_seconds is not None:
            grace = math.ceil(grace_seconds) + GRACE_MARGIN_SECONDS
            given = pod["metadata"].get("deletionGracePeriodSeconds")
            if given is None or given > grace:
                self.client.delete("Pod", _pod_name(environment), uid=pod["metadata"]["uid"], grace=grace)

    def delete(self, environment: str) -> bool:
        """Delete all of an environment, the disk last (a pod that still uses it keeps it: the finalizer
        kubernetes.io/pvc-protection); return whether all is gone."""
        left = False
        for kind in OWNED_KINDS:
            if kind == "ResourceClaim" and not self.claims:
                continue
            for name in self._names(kind, environment):
                left = True
                self.client.delete(kind, name)
            if left and kind == "StatefulSet":
                return False
        if left or self.client.find(self.client.path("Pod", _pod_name(environment))) is not None:
            return False
        module_configmap.delete_unused(self.client)
        return True

    def _names(self, kind: str, environment: str) -> list[str]:
        if kind != "ConfigMap":
            return [environment] if self.client.find(self.client.path(kind, environment)) else []
        return [record["metadata"]["name"] for record in self._records(environment)]

    def _records(self, environment: str) -> list[Object]:
        """Return the ConfigMaps of its runs, without their data."""
        query = {"labelSelector": f"{names.SELECTOR},{ENVIRONMENT_ID}={environment}"}
        path, accept = self.client.path("ConfigMap"), METADATA_ACCEPT.format(list="List")
        found: list[Object] = self.client.request("GET", path, query=query, accept=accept)["items"] or []
        return found

    # observe

    def observe(self, handles: Iterable[EnvironmentHandle]) -> dict[str, EnvironmentStatus]:
        handles = list(handles)
        if not handles:
            return {}
        query = {"labelSelector": ENVIRONMENT_SELECTOR}
        sets, running = (
            {
                item["metadata"]["labels"][ENVIRONMENT_ID]: item
                for item in self.client.get(self.client.path(kind), **query)["items"]
            }
            for kind in ("StatefulSet", "Pod")
        )
        self._surveys.drop_other_pods({pod["metadata"]["uid"] for pod in running.values()})
        held = self._held(running.values())

        def read_status(one: EnvironmentHandle) -> tuple[str, EnvironmentStatus]:
            seen = self._seen(one, sets.get(one.environment), running.get(one.environment))
            if not (engine := seen.facts.get("engine")):
                return one.name, seen
            node = self._node(str(engine.get("node") or ""))
            return one.name, replace(
                seen, facts={**seen.facts, "engine": environment_pods.add_gpu_counts(engine, node, held)}
            )

        return dict(self.client.together(read_status, handles))

    def _seen(self, handle: EnvironmentHandle, stateful_set: Object | None, pod: Object | None) -> EnvironmentStatus:
        pod = pod if pod and _get_run(pod) == handle.run else None
        if stateful_set is None or _get_run(stateful_set) != handle.run:
            if pod:
                return EnvironmentStatus(EnvironmentPhase.ENDED, True, facts=self._facts(pod))
            return EnvironmentStatus(EnvironmentPhase.ABSENT, self._may_begin(handle, stateful_set))
        wanted = stateful_set["spec"].get("replicas", 1) > 0
        if pod is None:
            if not wanted:
                return EnvironmentStatus(EnvironmentPhase.ENDED, False)
            return EnvironmentStatus(
                EnvironmentPhase.STARTING,
                True,
                waiting=self._not_made(stateful_set) or _build_awaited_cause(stateful_set),
            )
        facts = self._facts(pod)
        if not wanted:
            return EnvironmentStatus(EnvironmentPhase.ENDED, True, facts=facts)
        if pod["metadata"].get("deletionTimestamp"):
            return EnvironmentStatus(
                EnvironmentPhase.STARTING, True, waiting=_build_awaited_cause(stateful_set, pod), facts=facts
            )
        if ended := _find_end(pod):
            return EnvironmentStatus(EnvironmentPhase.ENDED, True, ended, facts=facts)
        if get_phase(pod) != "Running" or "running" not in get_container_state(pod):
            return self._begins(pod, facts)
        return self._answers(handle, stateful_set, pod, facts)

    def _facts(self, pod: Object) -> dict[str, Any]:
        """Return the facts of a pod, with the zone of its node."""
        facts, node = _build_facts(pod), self._node(str((pod.get("spec") or {}).get("nodeName") or ""))
        zone = ((node.get("metadata") or {}).get("labels") or {}).get(environment_pods.ZONE)
        return {**facts, "zone": zone} if zone else facts

    def _node(self, name: str) -> Object:
        """Return a node; empty where nodes may not be read, or it does not exist."""
        at, found = self._nodes.get(name, (-math.inf, {}))
        if name and time.monotonic() - at > NODE_CACHE_SECONDS:
            try:
                found = self.client.get(f"/api/v1/nodes/{name}")
            except KubernetesApiError as error:
                if error.status not in (403, 404):
                    return found
                found = {}
            self._nodes[name] = time.monotonic(), found
        return found

    def _held(self, own_pods: Iterable[Object]) -> environment_pods.HeldGpus:
        """Return how many GPUs dev environments hold: these, and those that other tools have made."""
        mine = {pod["metadata"]["uid"]: pod for pod in own_pods}
        if not any(environment_pods.count_held_gpus(mine.values()).values()):
            return {}
        at, others = self._others
        if time.monotonic() - at > GPU_CACHE_SECONDS:
            others = [pod for namespace in self.client.namespaces for pod in self._discovered(namespace)]
            self._others = time.monotonic(), others
        return environment_pods.count_held_gpus(({pod["metadata"]["uid"]: pod for pod in others} | mine).values())

    def _discovered(self, namespace: str) -> list[Object]:
        query = {"labelSelector": self.connection.get("selector") or names.DEV_ENVIRONMENTS}
        try:
            found: list[Object] = self.client.get(self.client.path("Pod", namespace=namespace), **query)["items"]
        except KubernetesApiError as error:
            if error.status == 403:
                return []
            raise
        return found

    def _may_begin(self, handle: EnvironmentHandle, stateful_set: Object | None) -> bool | None:
        """Return False where a run of which nothing exists can start no more: it is cancelled or a later one has
        replaced it; else None."""
        if stateful_set is not None and _get_run(stateful_set) > handle.run:
            return False
        record = self.client.find(self.client.path("ConfigMap", handle.name))
        return False if record and CANCELLED in names.get_annotations(record) else None

    def _begins(self, pod: Object, facts: Mapping[str, Any]) -> EnvironmentStatus:
        found = causes.explain_pending(pod, self._events(pod))
        if found is None:
            waits = str((get_container_state(pod).get("waiting") or {}).get("reason") or get_phase(pod))
            return EnvironmentStatus(
                EnvironmentPhase.STARTING, True, waiting=causes.build_pod_cause("POD_AWAITED", pod, waits), facts=facts
            )
        cause, permanent = found
        if permanent:
            return EnvironmentStatus(EnvironmentPhase.ENDED, True, cause, facts=facts)
        return EnvironmentStatus(EnvironmentPhase.STARTING, True, waiting=cause, facts=facts)

    def _not_made(self, stateful_set: Object) -> Cause | None:
        event = self._events(stateful_set).get("FailedCreate")
        return causes.explain_not_created(stateful_set, event)[0] if event else None

    def _events(self, obj: Object) -> Mapping[str, Object]:
        """Return the events about an object by reason, the newest of each."""
        query = {"fieldSelector": f"involvedObject.uid={obj['metadata']['uid']}"}
        items = self.client.get(self.client.path("Event"), **query)["items"]
        return {str(item.get("reason")): item for item in items}

    def _answers(
        self, handle: EnvironmentHandle, stateful_set: Object, pod: Object, facts: Mapping[str, Any]
    ) -> EnvironmentStatus:
        told = self._ask(handle, stateful_set)
        if told is None:
            return EnvironmentStatus(EnvironmentPhase.STARTING, True, facts=facts)
        state = (told.get("service") or {}).get("state")
        inside = self._inside(pod) if state == "up" else None
        return EnvironmentStatus(
            EnvironmentPhase.STARTING if inside is None else EnvironmentPhase.RUNNING,
            True,
            parse_cause(told.get("cause")) if state == "failed" else None,
            doing=parse_cause(told.get("doing")),
            facts=facts if inside is None else {**facts, "engine": {**facts["engine"], "inside": inside}},
            activity=parse_activity(told.get("activity")),
        )

    def _inside(self, pod: Object) -> dict[str, Any] | None:
        """Return what a survey found in its container; None while it is being surveyed, empty where that takes too
        long."""
        life, moment = str(_get_container_status(pod).get("containerID") or ""), time.monotonic()
        facts = self._surveys.find_survey(pod, names.CONTAINER, str(self.connection.get("python") or ""))
        with self._lock:
            if facts:
                self._up.pop(life, None)
                return dict(facts)
            return {} if moment - self._up.setdefault(life, moment) > SURVEY_SECONDS else None

    def _ask(self, handle: EnvironmentHandle, stateful_set: Object) -> Mapping[str, Any] | None:
        """Return the status of its environment daemon; None where it does not answer. Asked at most once in
        STATUS_CACHE_SECONDS."""
        at, told = self._told.get(handle.name, (-math.inf, None))
        if time.monotonic() - at < STATUS_CACHE_SECONDS and told is not None:
            return told
        answer: Mapping[str, Any] | None = None
        with (
            suppress(BackendError, OSError, protocol.ProtocolError),
            self._stream(handle.environment, stateful_set) as stream,
        ):
            said = protocol.send_request(stream, {"open": "status"})
            answer = said if said.get("ok") else None
        with self._lock:
            self._told = {name: one for name, one in self._told.items() if time.monotonic() - one[0] < 60.0}
            self._told[handle.name] = time.monotonic(), answer
        return answer

    # connections and logs

    def dial(self, handle: EnvironmentHandle) -> socket.socket:
        made = self.client.find(self.client.path("StatefulSet", handle.environment))
        pod = self.client.find(self.client.path("Pod", _pod_name(handle.environment)))
        there = made and pod and _get_run(made) == _get_run(pod) == handle.run and "running" in get_container_state(pod)
        if not (made and there):
            raise BackendError("ENVIRONMENT_AWAY", environment=handle.environment)
        return self._stream(handle.environment, made)

    def _stream(self, environment: str, stateful_set: Object) -> socket.socket:
        try:
            talk = open_in_time(DIAL_SECONDS, partial(self.client.forward, _pod_name(environment), ENVD_PORT))
        except TimeoutError:
            raise BackendError("ENVIRONMENT_AWAY", environment=environment) from None
        stream = PortForwardStream(talk).stream
        stream.sendall(protocol.build_greeting(names.get_annotations(stateful_set).get(names.ENVD_TOKEN, "")))
        return stream

    def logs(self, handle: EnvironmentHandle, cursor: int, limit: int = 1 << 20) -> LogChunk:
        """Return a part of its pod's log, and of a run whose pod is gone of what was kept. Kubernetes reads a log only
        from its beginning, and knows no offset."""
        pod = self.client.find(self.client.path("Pod", _pod_name(handle.environment)))
        if pod is None or _get_run(pod) != handle.run:
            record = self.client.find(self.client.path("ConfigMap", handle.name)) or {}
            text = str((record.get("data") or {}).get(LOG_KEY, "")).encode()
        else:
            most = {} if cursor < 0 else {"limitBytes": str(cursor + limit)}
            try:
                text = self._text(pod, **most)
            except KubernetesApiError as error:
                if error.status == 400:  # its container has not started
                    return LogChunk(b"", max(cursor, 0), end=True)
                raise
        begin = max(0, len(text) + cursor) if cursor < 0 else cursor
        data = text[begin : begin + limit]
        return LogChunk(data, begin + len(data), end=len(data) < limit)

    def _text(self, pod: Object, **query: str) -> bytes:
        """Return the log of the container in which the run was: one that was restarted after its end has nothing of
        it."""
        if (_get_container_status(pod).get("lastState") or {}).get("terminated"):
            query["previous"] = "true"
        path = self.client.path("Pod", pod["metadata"]["name"], below="log")
        return self.client.text(path, container=names.CONTAINER, **query)


def _pod_name(environment: str) -> str:
    return f"{environment}-0"


def _get_run(obj: Object) -> int:
    return int((obj["metadata"].get("labels") or {}).get(RUN_NUMBER) or 0)


def _find_end(pod: Object) -> Cause | None:
    """Return why a run ended whose environment daemon has started once and does not run any more: the kubelet starts it
    again, and it does nothing. None: it has not ended."""
    one = _get_container_status(pod)
    ended = (one.get("state") or {}).get("terminated") or (one.get("lastState") or {}).get("terminated")
    if ended is None and get_phase(pod) not in FINISHED_PHASES:
        return None
    why = ended or {}
    said = str(why.get("message") or pod["status"].get("message") or why.get("reason") or "")
    if why.get("reason") == "OOMKilled":
        return causes.build_pod_cause("OUT_OF_MEMORY", pod, said)
    if pod["status"].get("reason") == "Evicted":
        return causes.build_pod_cause("EVICTED", pod, said)
    if why.get("exitCode") == causes.CANNOT_RUN_EXIT_CODE or why.get("reason") in ("StartError", "ContainerCannotRun"):
        return causes.build_pod_cause("CONTAINER_INVALID", pod, said)
    if known := _parse_termination_cause(said):
        return known
    return causes.build_pod_cause("KEEPER_ENDED", pod, f"{why.get('exitCode', '–')}: {said}")


def _build_awaited_cause(stateful_set: Object, pod: Object | None = None) -> Cause:
    """Return the cause of waiting for a pod. `pod`: the one that is deleted before another takes its place; None: there
    is none."""
    if pod is None:
        name = stateful_set["metadata"]["name"]
        marks = names.get_annotations(stateful_set["spec"]["template"])
        params = {"node": marks.get(names.ENVIRONMENT, name), "pod": _pod_name(name), "evidence": "it is not there"}
        return Cause("POD_AWAITED", params)
    why = find_condition(pod, "DisruptionTarget") or {}
    return causes.build_pod_cause("POD_AWAITED", pod, str(why.get("message") or "it is being deleted"))


def _get_container_status(pod: Object) -> Object:
    """Return the status of the environment daemon's container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found: Object = next((one for one in statuses if one["name"] == names.CONTAINER), {})
    return found


def _parse_termination_cause(message: str) -> Cause | None:
    """Return the cause that an environment daemon wrote as its termination message; programs of the environment could
    have written one, too."""
    told = (runner_reports.parse_object(message) or {}).get("cause")
    known = isinstance(told, dict) and told.get("code") in ENVD_CODES and isinstance(told.get("params"), dict)
    return parse_cause(told) if known else None


def _build_facts(pod: Object) -> dict[str, Any]:
    """Return the facts of a pod as of a discovered one, so that training pods run beside it; of its mounts the disk
    alone is theirs, too."""
    seen = environment_pods.read_environment(pod, {}, lambda *_: 0, "")
    engine = dict(seen.engine)
    for name in ("volumes", "volumeMounts"):
        engine[name] = [one for one in engine.get(name) or [] if one["name"] == DISK_VOLUME]
    return {"host": seen.host, "ip": seen.ip or None, "engine": engine}


def _build_secret(owner: Object, values: Mapping[str, str]) -> Object:
    meta = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": meta["name"], "uid": meta["uid"], "controller": False}
    about = {name: meta[name] for name in ("name", "namespace", "labels")}
    kind = {"apiVersion": "v1", "kind": "Secret", "metadata": {**about, "ownerReferences": [reference]}}
    return {**kind, "type": "Opaque", "immutable": True, "stringData": {**values}}
