"""The API server's own validation, beyond the form of an object: names, references inside it, fields that may not
change. The rules that a renderer is likely to break; not all there are."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.fakes.kubernetes import quantities
from tests.fakes.kubernetes.resources import (
    CLAIMS,
    CONFIGMAPS,
    JOBS,
    JOBSETS,
    PODS,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from tests.fakes.kubernetes.store import Object

Problem = tuple[str, str]
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
ENV_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")
CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
MAX_CONFIG_BYTES = 1 << 20
LOWER_RFC_1123 = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character"
)


def problems(resource: Resource, obj: Object) -> list[Problem]:
    return [*_meta(resource, obj["metadata"]), *_spec(resource, obj)]


def _meta(resource: Resource, meta: dict[str, Any]) -> Iterator[Problem]:
    name = meta["name"]
    if resource is SERVICES:
        if not DNS_1035.fullmatch(name) or len(name) > 63:
            yield "metadata.name", f'Invalid value: "{name}": a DNS-1035 label must consist of lower case letters'
    elif not SUBDOMAIN.fullmatch(name) or len(name) > 253:
        yield "metadata.name", f'Invalid value: "{name}": {LOWER_RFC_1123}'
    elif resource is JOBS and len(name) > 63:
        yield "metadata.name", f'Invalid value: "{name}": must be no more than 63 characters'
    yield from _labels("metadata", meta)
    if sum(len(k) + len(v) for k, v in (meta.get("annotations") or {}).items()) > 256 << 10:
        yield "metadata.annotations", "Too long: may not be more than 262144 bytes"
    for index, owner in enumerate(meta.get("ownerReferences") or []):
        if not owner.get("uid"):
            yield f"metadata.ownerReferences[{index}].uid", 'Invalid value: "": must not be empty'
    for name in meta.get("finalizers") or []:
        if "/" not in name and name not in ("orphan", "foregroundDeletion", "kubernetes"):
            yield "metadata.finalizers[0]", f'Invalid value: "{name}": name is neither a standard finalizer name'


def _labels(path: str, meta: dict[str, Any]) -> Iterator[Problem]:
    for name, value in (meta.get("labels") or {}).items():
        if not QUALIFIED.fullmatch(name) or len(name.rpartition("/")[2]) > 63:
            yield f"{path}.labels", f'Invalid value: "{name}": name part must consist of alphanumeric characters'
        if not LABEL_VALUE.fullmatch(value):
            yield f"{path}.labels", f'Invalid value: "{value}": a valid label must be an empty string or consist of …'
        if len(value) > 63:
            yield f"{path}.labels", f'Invalid value: "{value}": must be no more than 63 characters'


def _spec(resource: Resource, obj: Object) -> Iterator[Problem]:
    if resource in (CONFIGMAPS, SECRETS):
        yield from _config(obj)
    elif resource is PODS:
        yield from _pod("spec", obj["spec"])
    elif resource is JOBS:
        yield from _job("spec", obj["spec"])
    elif resource is JOBSETS:
        yield from _jobset(obj)
    elif resource is STATEFUL_SETS:
        yield from _stateful_set(obj)
    elif resource is CLAIMS and not ((obj["spec"].get("resources") or {}).get("requests") or {}).get("storage"):
        yield "spec.resources[storage]", "Required value"


def _stateful_set(obj: Object) -> Iterator[Problem]:
    """pkg/apis/apps/validation/validation.go: ValidateStatefulSetSpec. Its pods are called <name>-<ordinal>, and that
    is their host name."""
    spec = obj["spec"]
    labels = (spec["template"].get("metadata") or {}).get("labels") or {}
    wanted = spec["selector"].get("matchLabels") or {}
    if not wanted:
        yield "spec.selector", "Invalid value: empty selector is invalid for statefulset"
    if any(labels.get(name) != value for name, value in wanted.items()):
        yield "spec.template.metadata.labels", f"Invalid value: {labels}: `selector` does not match template `labels`"
    if spec["template"]["spec"].get("restartPolicy", "Always") != "Always":
        yield "spec.template.spec.restartPolicy", 'Unsupported value: supported values: "Always"'
    if len(f"{obj['metadata']['name']}-0") > 63:
        yield "metadata.name", "Invalid value: the names of its pods are too long for host names"
    yield from _labels("spec.template", spec["template"].get("metadata") or {})
    yield from _pod("spec.template.spec", spec["template"]["spec"])


def _config(obj: Object) -> Iterator[Problem]:
    data = obj.get("data") or {}
    for key in data:
        if not CONFIG_KEY.fullmatch(key) or len(key) > 253:
            yield f"data[{key}]", f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters'
    both = [*data.values(), *(obj.get("binaryData") or {}).values()]
    if sum(len(value.encode()) for value in both) > MAX_CONFIG_BYTES:
        yield "[]", f"Too long: may not be more than {MAX_CONFIG_BYTES} bytes"


def _job(path: str, spec: dict[str, Any]) -> Iterator[Problem]:
    template = spec["template"]
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"):
        if (spec.get(name) or 0) < 0:
            yield f"{path}.{name}", f"Invalid value: {spec[name]}: must be greater than or equal to 0"
    policy = template["spec"].get("restartPolicy", "Always")
    if policy not in ("Never", "OnFailure"):
        yield f"{path}.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"'
    if "podFailurePolicy" in spec and template["spec"].get("restartPolicy") != "Never":
        yield f"{path}.template.spec.restartPolicy", 'Invalid value: only "Never" is supported when podFailurePolicy'
    if spec.get("podReplacementPolicy") == "TerminatingOrFailed" and "podFailurePolicy" in spec:
        yield f"{path}.podReplacementPolicy", 'Unsupported value: "TerminatingOrFailed": supported values: "Failed"'
    yield from _labels(f"{path}.template", template.get("metadata") or {})
    yield from _pod(f"{path}.template.spec", template["spec"])


def _jobset(obj: Object) -> Iterator[Problem]:
    names = Counter(replicated["name"] for replicated in obj["spec"]["replicatedJobs"])
    for index, replicated in enumerate(obj["spec"]["replicatedJobs"]):
        path = f"spec.replicatedJobs[{index}]"
        if names[replicated["name"]] > 1:
            yield path, f'Duplicate value: "{replicated["name"]}"'
        job = replicated["template"]["spec"]
        longest = f"{obj['metadata']['name']}-{replicated['name']}-{replicated['replicas'] - 1}"
        if len(f"{longest}-{(job.get('completions') or 1) - 1}-abcde") > 63:
            yield (
                path,
                f"JobSet name is too long, job names generated for this JobSet will exceed 63 characters: {longest}",
            )
        yield from _job(f"{path}.template.spec", job)


def _pod(path: str, spec: dict[str, Any]) -> Iterator[Problem]:
    volumes = Counter(volume["name"] for volume in spec.get("volumes") or [])
    claims = {claim["name"] for claim in spec.get("resourceClaims") or []}
    for name, count in volumes.items():
        if count > 1:
            yield f"{path}.volumes", f'Duplicate value: "{name}"'
        if not LABEL.fullmatch(name) or len(name) > 63:
            yield f"{path}.volumes", f'Invalid value: "{name}": a lowercase RFC 1123 label must consist of …'
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    if not spec["containers"]:
        yield f"{path}.containers", "Required value"
    for field in ("hostname", "subdomain"):
        if (value := spec.get(field)) and (not LABEL.fullmatch(value) or len(value) > 63):
            yield f"{path}.{field}", f'Invalid value: "{value}": a lowercase RFC 1123 label must be no more than 63 …'
    for name, count in Counter(container["name"] for container in containers).items():
        if count > 1:
            yield f"{path}.containers", f'Duplicate value: "{name}"'
    for index, container in enumerate(containers):
        yield from _container(f"{path}.containers[{index}]", container, set(volumes), claims)


def _container(path: str, container: dict[str, Any], volumes: set[str], claims: set[str]) -> Iterator[Problem]:
    if not LABEL.fullmatch(container["name"]) or len(container["name"]) > 63:
        yield f"{path}.name", f'Invalid value: "{container["name"]}"'
    paths = Counter(mount["mountPath"] for mount in container.get("volumeMounts") or [])
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount["name"] not in volumes:
            yield f"{path}.volumeMounts[{index}].name", f'Not found: "{mount["name"]}"'
        sub_path = mount.get("subPath", "")  # kubernetes/kubernetes, pkg/apis/core/validation, ValidateVolumeMounts
        if sub_path.startswith("/"):
            yield f"{path}.volumeMounts[{index}].subPath", f'Invalid value: "{sub_path}": must be a relative path'
        if ".." in sub_path.split("/"):
            yield f"{path}.volumeMounts[{index}].subPath", f"Invalid value: \"{sub_path}\": must not contain '..'"
        if paths[mount["mountPath"]] > 1:
            yield f"{path}.volumeMounts[{index}].mountPath", f'Invalid value: "{mount["mountPath"]}": must be unique'
    for index, variable in enumerate(container.get("env") or []):
        if not ENV_NAME.fullmatch(variable["name"]):
            yield f"{path}.env[{index}].name", f'Invalid value: "{variable["name"]}"'
    resources = container.get("resources") or {}
    limits, asked = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in asked.items():
        extended = "/" in name
        if name in limits and quantities.number(value) > quantities.number(limits[name]):
            yield f"{path}.resources.requests", f'Invalid value: "{value}": must be less than or equal to {name} limit'
        if extended and limits.get(name) != value:
            yield f"{path}.resources.requests", f'Invalid value: "{value}": must be equal to {name} limit'
    for claim in resources.get("claims") or []:
        if claim["name"] not in claims:
            yield f"{path}.resources.claims", f'Not found: "{claim["name"]}"'


def change_problems(resource: Resource, old: Object, new: Object) -> Iterator[Problem]:
    """Fields that may not change."""
    before, after = old.get("spec") or {}, new.get("spec") or {}
    fixed: tuple[str, ...] = ()
    if resource is JOBS:
        fixed = ("selector", "completions", "completionMode", "podFailurePolicy", "backoffLimitPerIndex")
        started = (old.get("status") or {}).get("startTime")
        if before.get("template") != after.get("template") and not (before.get("suspend") and not started):
            yield "spec.template", "Invalid value: core.PodTemplateSpec{…}: field is immutable"
    elif resource is JOBSETS and not before.get("suspend") and not after.get("suspend"):
        fixed = ("replicatedJobs",)
    elif resource is PODS:
        changeable = ("activeDeadlineSeconds", "tolerations", "schedulingGates", "containers", "nodeName")
        if {k: v for k, v in before.items() if k not in changeable} != {
            k: v for k, v in after.items() if k not in changeable
        }:
            yield "spec", "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, …"
    elif resource is SERVICES:
        fixed = ("clusterIP", "clusterIPs")
    elif resource is STATEFUL_SETS:
        free = ("replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy", "minReadySeconds")  # fmt: skip
        if {k: v for k, v in before.items() if k not in free} != {k: v for k, v in after.items() if k not in free}:
            yield (
                "spec",
                f"Forbidden: updates to statefulset spec for fields other than {', '.join(free)} are forbidden",
            )
    elif resource is CLAIMS:  # pkg/apis/core/validation: ValidatePersistentVolumeClaimUpdate
        sizes = [quantities.number(one["resources"]["requests"]["storage"]) for one in (before, after)]
        if sizes[1] < sizes[0]:
            yield "spec.resources.requests.storage", "Forbidden: field can not be less than previous value"
        if {k: v for k, v in before.items() if k != "resources"} != {
            k: v for k, v in after.items() if k != "resources"
        }:
            yield "spec", "Forbidden: spec is immutable after creation except resources.requests for bound claims"
    elif resource is RESOURCE_CLAIMS and before != after:  # pkg/apis/resource/validation: ValidateResourceClaimUpdate
        yield "spec", "Invalid value: field is immutable"
    elif resource in (CONFIGMAPS, SECRETS) and old.get("immutable"):
        # kubernetes/kubernetes, pkg/apis/core/validation/validation.go: ValidateConfigMapUpdate, ValidateSecretUpdate.
        # Metadata may change, and the object may be deleted.
        for field in ("immutable", "data", *(("binaryData",) if resource is CONFIGMAPS else ())):
            if old.get(field) != new.get(field):
                yield field, "Forbidden: field is immutable when `immutable` is set"
    for field in fixed:
        if before.get(field) != after.get(field):
            yield f"spec.{field}", f"Invalid value: {after.get(field)!r}: field is immutable"
