"""Check whether training pods can use the data volume: one small pod, as a task's would be, reads what the platform
wrote there and writes what the platform then reads."""

import os
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from fermi.engines import runner_reports
from fermi.engines.check_results import CheckLevel, CheckResult
from fermi.engines.kubernetes import names, render, volumes
from fermi.engines.kubernetes.client import KubernetesApiError, KubernetesClient
from fermi.engines.kubernetes.gang import Object, get_container_state, get_termination

TIMEOUT_SECONDS = 20.0
"""Longest time for the check: the user waits for its answer; an image that has to be pulled may take longer."""
POLL_SECONDS = 0.25
PROBE_SCRIPT = """
import json, sys
asked, answer, word, log = sys.argv[1:]
said = {}
try:
    with open(asked) as file:
        said["read"] = "" if file.read() == word else "other content"
except OSError as error:
    said["read"], said["absent"] = str(error), isinstance(error, FileNotFoundError)
try:
    with open(answer, "w") as file:
        file.write(word)
    said["written"] = ""
except OSError as error:
    said["written"] = str(error)
with open(log, "w") as file:
    json.dump(said, file)
"""


def check_volume(client: KubernetesClient, connection: Mapping[str, Any]) -> Iterator[CheckResult]:
    """Yield whether the data volume works; nothing where the connection names none."""
    if not connection.get("data") or not connection.get("data_dir"):
        return
    data_dir = Path(connection["data_dir"])
    if private := [path for path in map(Path, connection.get("private") or ()) if path.exists()]:
        inside = sorted(path.name for path in private if path.is_relative_to(data_dir))
        if inside:
            yield CheckResult(
                CheckLevel.WARN, "VOLUME_HOLDS_SECRETS", {"files": ", ".join(inside[:5]), "path": str(data_dir)}
            )
    dev = _find_environment(client, connection)
    if dev is None:
        yield CheckResult(
            CheckLevel.WARN, "VOLUME_UNTESTED", {"why": "there is no dev environment whose image could be used"}
        )
        return
    yield _probe_volume(client, connection, data_dir, dev)


def _find_environment(client: KubernetesClient, connection: Mapping[str, Any]) -> Object | None:
    """Return any environment's pod: its image and its node are as good as a task's. None where there is none."""
    query = {"labelSelector": connection.get("selector") or names.DEV_ENVIRONMENTS}
    with suppress(KubernetesApiError):
        running = [pod for pod in client.get(client.path("Pod"), **query)["items"] if pod["spec"].get("nodeName")]
        return running[0] if running else None
    return None


def _probe_volume(client: KubernetesClient, connection: Mapping[str, Any], data_dir: Path, dev: Object) -> CheckResult:
    name, word = f"fermi-probe-{secrets.token_hex(4)}", secrets.token_hex(8)
    read, write = f"workspace/{name}", f"{volumes.CHECKPOINTS_FOLDER}/{name}"
    pod = _build_pod(connection, dev, read, write, word)
    try:
        (data_dir / read).mkdir(parents=True)
        (data_dir / read / "asked").write_text(word, encoding="utf-8")
        volumes.prepare_folders(data_dir, pod)
        client.create("Job", _build_job(name, client.namespace, pod))
        found = _wait_for_pod(client, name)
        params = {"user": (pod.get("securityContext") or {}).get("runAsUser"), "path": str(data_dir)}
        return _judge_answer(client, found, params, data_dir / write / "answer", word)
    except OSError as error:
        return CheckResult(
            CheckLevel.FAIL, "VOLUME_UNWRITABLE", {"user": os.geteuid(), "path": str(data_dir), "why": str(error)}
        )
    except KubernetesApiError as refused:
        return CheckResult(CheckLevel.WARN, "VOLUME_UNTESTED", {"why": refused.message})
    finally:
        with suppress(KubernetesApiError):
            client.delete("Job", name, propagation="Background")
        for folder in (read, write):
            shutil.rmtree(data_dir / folder, ignore_errors=True)


def _build_pod(connection: Mapping[str, Any], dev: Object, read: str, write: str, word: str) -> Object:
    top, user, main = (
        volumes.get_data_root(connection).rstrip("/"),
        volumes.get_user(connection),
        dev["spec"]["containers"][0],
    )
    python = connection.get("python") or "python3"
    words = [f"{top}/{read}/asked", f"{top}/{write}/answer", word, render.TERMINATION_LOG]
    amount = {"cpu": "100m", "memory": "128Mi"}
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": render.build_pod_security(user),
        "containers": [
            {
                "name": names.CONTAINER,
                "image": main["image"],
                "command": [str(python), "-c", PROBE_SCRIPT, *words],
                "resources": {"requests": amount, "limits": amount},
                "securityContext": render.CONTAINER_SECURITY,
                "volumeMounts": [
                    {"name": volumes.DATA_VOLUME, "mountPath": f"{top}/{read}", "subPath": read, "readOnly": True},
                    {"name": volumes.DATA_VOLUME, "mountPath": f"{top}/{write}", "subPath": write},
                ],
            }
        ],
        "volumes": [{**connection["data"]["volume"], "name": volumes.DATA_VOLUME}],
        "tolerations": dev["spec"].get("tolerations") or [],
    }
    if secret := dev["spec"].get("imagePullSecrets"):
        spec["imagePullSecrets"] = secret
    patched: Object = render.apply_merge_patch(spec, connection["pod"]) if connection.get("pod") else spec
    return patched


def _build_job(name: str, namespace: str, pod: Object) -> Object:
    """Return a Job that ends and is removed by itself, should no process be left to delete it."""
    labels = {"fermi.io/probe": "true"}  # no attempt's label, so that no watch of attempts has it
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": 300,
            "ttlSecondsAfterFinished": 60,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _wait_for_pod(client: KubernetesClient, name: str) -> Object | None:
    """Return the pod once it has ended, or as it is after `TIMEOUT_SECONDS`; None where there is none."""
    end = time.monotonic() + TIMEOUT_SECONDS
    while True:
        pods = client.get(client.path("Pod"), labelSelector=f"batch.kubernetes.io/job-name={name}")["items"]
        if (pods and get_termination(pods[0])) or time.monotonic() > end:
            return pods[0] if pods else None
        time.sleep(POLL_SECONDS)


def _judge_answer(
    client: KubernetesClient, pod: Object | None, params: dict[str, Any], answer: Path, word: str
) -> CheckResult:
    said = _read_answer(pod)
    if said is None:
        return CheckResult(CheckLevel.WARN, "VOLUME_UNTESTED", {"why": _explain_wait(client, pod)})
    if said.get("absent") or said["read"] == "other content":
        return CheckResult(CheckLevel.FAIL, "VOLUME_OTHER", params)
    if said["read"]:
        return CheckResult(CheckLevel.FAIL, "VOLUME_UNREADABLE", {**params, "why": said["read"]})
    if said["written"]:
        return CheckResult(CheckLevel.FAIL, "VOLUME_UNWRITABLE", {**params, "why": said["written"]})
    try:
        seen = answer.read_text(encoding="utf-8")
    except OSError as error:
        return CheckResult(CheckLevel.FAIL, "VOLUME_UNREADABLE", {**params, "user": os.geteuid(), "why": str(error)})
    return (
        CheckResult(CheckLevel.PASS, "VOLUME_USABLE", params)
        if seen == word
        else CheckResult(CheckLevel.FAIL, "VOLUME_OTHER", params)
    )


def _read_answer(pod: Object | None) -> dict[str, Any] | None:
    found = runner_reports.parse_object((get_termination(pod or {}) or {}).get("message") or "")
    return found if found and {"read", "written"} <= found.keys() else None


def _explain_wait(client: KubernetesClient, pod: Object | None) -> str:
    """Return what blocks the pod, in Kubernetes' words."""
    if pod is None:
        return "no pod was made for it"
    if ended := get_termination(pod):
        return str(ended.get("message") or ended.get("reason") or f"exit code {ended.get('exitCode')}")
    waits = get_container_state(pod).get("waiting") or {}
    query = {"fieldSelector": f"involvedObject.name={pod['metadata']['name']}"}
    events: list[Object] = []
    with suppress(KubernetesApiError):
        events = [one for one in client.get(client.path("Event"), **query)["items"] if one.get("type") == "Warning"]
    said = [str(one.get("message")) for one in events[-1:]]
    return (
        " ".join([*said, *(str(waits[key]) for key in ("reason", "message") if waits.get(key))]) or "it has not begun"
    )
