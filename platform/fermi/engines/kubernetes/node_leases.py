"""Find machines that do not answer: their kubelets renew a lease each, four times while it lasts
(https://kubernetes.io/docs/concepts/architecture/nodes/#heartbeats). Kubernetes itself calls a node unreachable after
50 s and evicts its pods after as long as they tolerate that; until then nothing of a dead node changes.

Judged by our own clock: what counts is how long a lease has been seen unchanged. A lease that was not read in between,
or many that stop at once, point to the API server and not to machines.
"""

import logging
import os
import threading
import time
from typing import Any

from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.jobs.errors import BackendError

log = logging.getLogger(__name__)

LEASES_PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
POLL_SECONDS = 5.0
MAX_GAP_SECONDS = 15.0
"""Longest time between two reads; after a longer one nothing is known of the time in between."""
FORBIDDEN_PAUSE_SECONDS = 300.0
MAX_MISSED_SHARE = 0.75
"""Share of a lease's duration: three renewals of four."""
DEFAULT_LEASE_SECONDS = 40.0
MAX_SILENT_SHARE = 0.55
"""Share of the machines that may be silent at once (kubernetes/kubernetes, pkg/controller/nodelifecycle,
unhealthy-zone-threshold)."""
IDLE_SECONDS = 300.0


class NodeLeases:
    """Leases of a cluster's machines, read by a thread of its own as long as `silent` is called."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client
        self._seen: dict[str, tuple[Any, float]] = {}  # machine -> (its lease's last renewal, when that was first seen)
        self._looked_at = 0.0
        self._silent: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pid = 0
        self._asked_at = 0.0

    def silent(self) -> frozenset[str]:
        """Return the names of machines that do not renew their leases."""
        with self._lock:
            self._asked_at = time.monotonic()
            if self._pid != os.getpid():
                self._pid, self._stopped = os.getpid(), threading.Event()
                threading.Thread(target=self._run, args=(self._stopped,), name="leases", daemon=True).start()
        return self._silent

    def stop(self) -> None:
        """Stop reading until `silent` is called again."""
        with self._lock:
            self._stopped.set()
            self._pid, self._silent = 0, frozenset()

    def read_leases(self, moment: float) -> None:
        """Read all leases. `moment`: monotonic seconds. Raise BackendError."""
        if moment - self._looked_at > MAX_GAP_SECONDS:
            self._seen = {}
        found = self._client.request("GET", LEASES_PATH, query={"resourceVersion": "0"}, timeout=POLL_SECONDS)["items"]
        self._looked_at = moment
        before, self._seen, silent = self._seen, {}, set()
        for lease in found:
            name, spec = lease["metadata"]["name"], lease.get("spec") or {}
            renewed, since = before.get(name, (None, moment))
            since = since if renewed == spec.get("renewTime") else moment
            self._seen[name] = spec.get("renewTime"), since
            if moment - since > MAX_MISSED_SHARE * float(spec.get("leaseDurationSeconds") or DEFAULT_LEASE_SECONDS):
                silent.add(name)
        everywhere = len(silent) > MAX_SILENT_SHARE * len(found)
        self._silent = frozenset() if everywhere else frozenset(silent)

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            pause = POLL_SECONDS
            try:
                self.read_leases(time.monotonic())
            except BackendError as error:
                self._silent = frozenset()
                if isinstance(error, KubernetesApiError) and error.status == 403 and error.permanent:
                    pause = FORBIDDEN_PAUSE_SECONDS
            except Exception:
                log.exception("the leases of machines cannot be understood")
                self._silent = frozenset()
            if time.monotonic() - self._asked_at > IDLE_SECONDS:
                self.stop()
            stopped.wait(pause)
