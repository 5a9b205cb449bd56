"""Engine that trains on Kubernetes: each node of a job is one Job with one pod, pinned to the node of its environment.

    ConfigMap <task>-<attempt>      the plan's files, the node runner, the trainer; the root: it owns the others
      ├─ Service <task>-<attempt>   headless: the name under which the pods find the head node
      └─ Job <task>-<attempt>-node-<k>, one per environment; or one JobSet with a replicated job for each

    render.py        a plan as these objects; pure
    client.py        requests and their failures
    credentials.py   kubeconfig or service account, read again when it changes
    watch.py         one list + watch per kind and process
    gang.py          an attempt's objects, as the watch knows them
    state.py         an observation from them; pure
    causes.py        why an attempt waits or failed; pure
    logs.py          pods' logs into files, by offset
    deletion.py      the end of an attempt, fencing, orphans
    engine.py        the backend's methods
    positions.py     a Workload's position in its LocalQueue

The connection (no secrets, only where they are):

    kubeconfig, context   the file and the context in it; default: kubectl's own
    in_cluster            use the service account of the pod we run in instead
    namespace             where attempts run, and environments are. Default: `default`
    environmentNamespaces other namespaces that have environments; their ranks run inside of these alone
    data                  {"volume": {…}, "mountPath": "…"}: where pods see the platform's data directory (datasets,
                          checkpoints); default path: the one the platform itself has
    python                interpreter in the image; default `python3`
    pod                   JSON merge patch for every pod's spec: security context, host paths, tolerations, …
    requests, limits      e.g. {"cpu": "4", "memory": "32Gi"} for every pod; default: from the environment's size
    shm_gb                size of /dev/shm; default: 2 for each process, at most half of the environment's memory
    max_run_seconds       `activeDeadlineSeconds` of the Jobs; default: none
    ttl_seconds           how long Kubernetes keeps finished Jobs that we do not remove; default: a day
    jobset                render a JobSet instead of Jobs
    queue                 Kueue's LocalQueue: objects are created suspended and Kueue admits them; may differ by project
                          and by priority (`connection_options`)
    priority_classes      by priority, Kueue's WorkloadPriorityClass, or without `queue` the pods' PriorityClass
    out_of_service_taint  fence a dead node with Kubernetes' taint instead of forced deletion of our pods alone

What a node's `engine` may hold: `node` (its Kubernetes node), `namespace`, `serviceAccount`, `volumes`, `volumeMounts`,
`tolerations`, `imagePullSecrets` (Kubernetes' own objects), `resource` (what a GPU is called; default
`nvidia.com/gpu`), `resourceClaims` (names of the ResourceClaims that hold its GPUs: then no GPU is requested beside
them), `python`, `pod` (from which this was read).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fermi.engines.connections import cache_by_connection

if TYPE_CHECKING:
    from fermi.engines.kubernetes.engine import KubernetesBackend


@cache_by_connection
def connect(connection: dict[str, Any]) -> KubernetesBackend:
    """Return the backend of a connection; the same one for equal connections."""
    from fermi.engines.kubernetes.engine import KubernetesBackend  # rendering needs no Kubernetes client

    return KubernetesBackend(connection)
