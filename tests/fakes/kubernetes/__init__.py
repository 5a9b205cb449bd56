"""A Kubernetes cluster for tests: the real client talks to it over a socket.

    cluster = FakeCluster(scratch).start()          # or the fixture `kubernetes`
    cluster.add_node("node-a", gpus=8)
    client = kubernetes.config.new_client_from_config(str(cluster.kubeconfig))

It is an API server (`http`, `api`, `store`), controllers for Jobs, JobSets, Kueue's queues, garbage and nodes, a
scheduler and kubelets. A pod that is bound really runs its command as a local process unless `cluster.script` says
otherwise. What clients send is validated strictly; a test fails when something of it does not fit (`fixtures`).

`tests/fakes/test_kubernetes_*.py` hold it to what Kubernetes documents. What it does otherwise, or not at all:

    refused with 501   init containers; of Jobs: pod failure policies, success policies, limits per index; of JobSets:
                       coordinators, dependencies, startup order, rules of failure policies
    refused with 415   server-side apply; strategic merge of custom resources, as everywhere
    not checked        rules in CEL; most of the API server's own validation (`rules` has what a renderer may break);
                       custom resources without FERMI_CRDS; RBAC objects (`access` allows all that is not denied)
    not there          TLS, OpenAPI, tables, terminals in exec, probes, preemption, provisioning of volumes; Kueue
                       counts none, but holds back what a test tells it to
    sooner             a lost node is unreachable at once and its pods are evicted at once; failed pods of a Job are
                       replaced after 0.2 s; bookmarks come every second
    one machine        pods share its network (all are 127.0.0.1), and know no limits of memory and CPU; but for those
                       that stand apart, they share its processes, its /tmp and /dev/shm as well, and `kubelet.view`
                       says how mounts and names work

A dev pod that can be entered (`add_dev_pod(…, real=True)`, or any pod with the script `Runs(apart=True)`) has a
container as real ones are, as far as the machine lets us (`kubelet.rootfs`): as root, or as a user who may have user
namespaces. Elsewhere (and where `cluster.kubelets.namespaces` is ""), /proc/1 is this machine's; the container's
processes end together all the same, its home and working directory are of one life, and FERMI_LIFE tells which.
`cluster.processes(pod)` says what runs in it; `kill_container`, `evict`, `lose_node` and `restart_api` are what may
happen to it.
"""

from tests.fakes.kubernetes.cluster import FakeCluster
from tests.fakes.kubernetes.kubelet.containers import HOME, Evicted, Exits, Runs, Script, Sleeps, Waits

__all__ = ["HOME", "Evicted", "Exits", "FakeCluster", "Runs", "Script", "Sleeps", "Waits"]
