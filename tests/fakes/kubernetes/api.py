"""The verbs on the store, as the API server has them; no HTTP. Clients, controllers and kubelets all come through
here, so admission and the rules of deletion are the same for everybody."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from tests.fakes.kubernetes import clock, defaults, patches, rules, schemas
from tests.fakes.kubernetes.admission import Admission
from tests.fakes.kubernetes.errors import Refused, already_exists, bad_request, conflict, invalid, not_found
from tests.fakes.kubernetes.resources import EVENTS, JOBS, NAMESPACES, PODS, Resource
from tests.fakes.kubernetes.store import Object, Store, copy

MAX_OBJECT_BYTES = 1536 << 10
FIXED_META = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace")
FIELD_VALIDATED = ("metadata", "spec", "data", "binaryData")


class Api:
    """`invalid` collects what clients sent that does not validate strictly, so that a test can fail because of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.admission = Admission(store)
        self.mutators: list[Callable[[Resource, Object], None]] = []
        self.strict = True
        self.invalid: list[str] = []

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self.store.get(resource, namespace, name)
        if found is None:
            raise not_found(resource, name)
        return found

    def create(self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool = False) -> Object:
        obj = copy(obj)
        if obj.get("kind", resource.kind) != resource.kind:
            raise bad_request(f'the object provided is unrecognized: kind "{obj["kind"]}" is no {resource.kind}')
        obj.setdefault("apiVersion", resource.api_version())
        obj.setdefault("kind", resource.kind)
        meta = obj.setdefault("metadata", {})
        self._place(resource, namespace, meta)
        self._validate_form(resource, obj)
        with self.store.lock:
            if self.store.get(resource, namespace, meta["name"]):
                raise already_exists(resource, meta["name"])
            meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": clock.stamp()}
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "managedFields"):
                meta.pop(name, None)
            if "spec" in obj:
                meta["generation"] = 1
            for mutate in self.mutators:
                mutate(resource, obj)
            if resource.has_status:
                obj.pop("status", None)
            defaults.fill(resource, obj)
            self._validate_rules(resource, obj)
            self.admission.check(resource, obj)
            return obj if dry_run else self.store.put(resource, obj)

    def update(self, resource: Resource, namespace: str, name: str, obj: Object, subresource: str = "",
               dry_run: bool = False) -> Object:  # fmt: skip
        with self.store.lock:
            old = self.get(resource, namespace, name)
            meta = obj.setdefault("metadata", {})
            if meta.get("name", name) != name:
                raise bad_request(
                    f"the name of the object ({meta['name']}) does not match the name on the URL ({name})"
                )
            asked = meta.get("resourceVersion")
            if asked and asked != old["metadata"]["resourceVersion"]:
                raise conflict(resource, name)
            if meta.get("uid", old["metadata"]["uid"]) != old["metadata"]["uid"]:
                why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: "
                raise conflict(resource, name, why + old["metadata"]["uid"])
            return self._store_change(resource, old, copy(obj), subresource, dry_run)

    def patch(self, resource: Resource, namespace: str, name: str, patch: Any, content_type: str,
              subresource: str = "", dry_run: bool = False) -> Object:  # fmt: skip
        with self.store.lock:
            old = self.get(resource, namespace, name)
            new = patches.apply(copy(old), patch, content_type, builtin="x-k8s.io" not in resource.group)
            return self.update(resource, namespace, name, new, subresource, dry_run)

    def change(self, resource: Resource, obj: Object, edit: Callable[[Object], None]) -> Object | None:
        """For controllers and kubelets: the newest state of this very object, edited and stored, spec and status
        alike. None when it is gone (a new object of its name is another object)."""
        with self.store.lock:
            old = self.store.get(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
            if old is None or old["metadata"]["uid"] != obj["metadata"]["uid"]:
                return None
            edit(new := copy(old))
            return self._put(resource, old, new)

    def delete(self, resource: Resource, namespace: str, name: str, options: dict[str, Any] | None = None) -> Object:
        """The object as it is after the request; it is still there when finalizers or a kubelet have to act first."""
        options = options or {}
        with self.store.lock:
            old = self.get(resource, namespace, name)
            expected = options.get("preconditions") or {}
            for field, text in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
                if expected.get(field, old["metadata"][field]) != old["metadata"][field]:
                    why = f"Precondition failed: {text} in precondition: {expected[field]}, {text} in object meta: "
                    raise conflict(resource, name, why + old["metadata"][field])
            if options.get("dryRun"):
                return old
            new = copy(old)
            _propagation(resource, new["metadata"], options)
            _begin_deletion(resource, new, options.get("gracePeriodSeconds"))
            return self._put(resource, old, new)

    def is_gone(self, resource: Resource, obj: Object) -> bool:
        found = self.store.get(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
        return found is None or found["metadata"]["uid"] != obj["metadata"]["uid"]

    def event(self, resource: Resource, obj: Object, kind: str, reason: str, message: str, source: str) -> None:
        """Repeats of the same event are counted on one object."""
        meta = obj["metadata"]
        namespace = meta.get("namespace") or "default"
        name = f"{meta['name']}.{uuid.uuid5(uuid.NAMESPACE_OID, meta['uid'] + reason + message).hex[:16]}"
        with self.store.lock:
            if found := self.store.get(EVENTS, namespace, name):
                self.store.put(EVENTS, copy(found) | {"count": found["count"] + 1, "lastTimestamp": clock.stamp()})
                return
            if not self.store.get(NAMESPACES, "", namespace):
                return
            about = {"kind": resource.kind, "apiVersion": resource.api_version(), "name": meta["name"]}
            about |= {"uid": meta["uid"], "namespace": namespace, "resourceVersion": meta["resourceVersion"]}
            self.store.put(EVENTS, {
                "apiVersion": "v1", "kind": "Event", "involvedObject": about, "type": kind, "reason": reason,
                "message": message, "count": 1, "firstTimestamp": clock.stamp(), "lastTimestamp": clock.stamp(),
                "source": {"component": source}, "reportingComponent": source, "reportingInstance": "",
                "metadata": {"name": name, "namespace": namespace, "uid": str(uuid.uuid4()),
                             "creationTimestamp": clock.stamp()},
            })  # fmt: skip

    def _place(self, resource: Resource, namespace: str, meta: dict[str, Any]) -> None:
        if not meta.get("name"):
            if prefix := meta.get("generateName"):
                meta["name"] = f"{prefix}{uuid.uuid4().hex[:5]}"
            else:
                raise invalid(resource, "", ("metadata.name", "Required value: name or generateName is required"))
        if resource.namespaced:
            if meta.get("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            meta["namespace"] = namespace
        else:
            meta.pop("namespace", None)

    def _validate_form(self, resource: Resource, obj: Object) -> None:
        if len(orjson.dumps(obj)) > MAX_OBJECT_BYTES:
            raise Refused(500, "", "etcdserver: request is too large")
        if not self.strict:
            return
        try:
            found = schemas.problems(resource, obj)
        except schemas.NoSchemaError:
            return
        if found:
            name = obj["metadata"]["name"]
            self.invalid.append(f"{resource.kind} {name}: {'; '.join(found)}")
            raise bad_request(f'{resource.kind} in version "{obj["apiVersion"]}" cannot be handled as a '
                              f"{resource.kind}: strict decoding error: {'; '.join(found)}")  # fmt: skip

    def _validate_rules(self, resource: Resource, obj: Object) -> None:
        if found := rules.problems(resource, obj):
            raise invalid(resource, obj["metadata"]["name"], *found)

    def _store_change(self, resource: Resource, old: Object, new: Object, subresource: str, dry_run: bool) -> Object:
        if subresource == "status":
            new = copy(old) | {"status": new.get("status", {})}
        elif resource.has_status and "status" in old:
            new["status"] = old["status"]
        new |= {"apiVersion": old["apiVersion"], "kind": old["kind"]}
        meta = new["metadata"]
        for name in FIXED_META:
            meta.pop(name, None)
            if name in old["metadata"]:
                meta[name] = old["metadata"][name]
        meta["name"], meta["resourceVersion"] = old["metadata"]["name"], old["metadata"]["resourceVersion"]
        if old["metadata"].get("deletionTimestamp"):
            added = set(meta.get("finalizers") or []) - set(old["metadata"].get("finalizers") or [])
            if added:
                raise invalid(
                    resource,
                    meta["name"],
                    ("metadata.finalizers", "Forbidden: no new finalizers can be added if the object is being deleted"),
                )
        if not subresource:
            self._validate_form(resource, new)
            if found := list(rules.change_problems(resource, old, new)):
                raise invalid(resource, meta["name"], *found)
            self._validate_rules(resource, new)
            self.admission.check_change(resource, old, new)
        return new if dry_run else self._put(resource, old, new)

    def _put(self, resource: Resource, old: Object, new: Object) -> Object:
        """Stores what changed; an update that changes nothing makes no new version; what is being deleted and has
        nothing left to wait for goes."""
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if not new["metadata"].get("finalizers"):
            new["metadata"].pop("finalizers", None)
        if _may_go(resource, new):
            return self.store.remove(resource, new)
        return self.store.put(resource, new) if new != old else old


def _may_go(resource: Resource, obj: Object) -> bool:
    meta = obj["metadata"]
    if not meta.get("deletionTimestamp") or meta.get("finalizers"):
        return False
    if resource is NAMESPACES:
        return not obj["spec"].get("finalizers")
    return meta.get("deletionGracePeriodSeconds", 0) == 0


def _propagation(resource: Resource, meta: dict[str, Any], options: dict[str, Any]) -> None:
    """Jobs orphan their pods unless the request says otherwise: so it is in batch/v1."""
    policy = options.get("propagationPolicy")
    if options.get("orphanDependents") is not None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    finalizers = list(meta.get("finalizers") or [])
    if policy is None and not {"orphan", "foregroundDeletion"} & set(finalizers):
        policy = "Orphan" if resource is JOBS else "Background"
    if policy is not None:
        finalizers = [name for name in finalizers if name not in ("orphan", "foregroundDeletion")]
        finalizers += {"Orphan": ["orphan"], "Foreground": ["foregroundDeletion"]}.get(policy, [])
    meta["finalizers"] = finalizers


def _begin_deletion(resource: Resource, obj: Object, grace: int | None) -> None:
    meta = obj["metadata"]
    if resource is PODS:
        finished = obj["status"].get("phase") in ("Succeeded", "Failed")
        wanted = obj["spec"].get("terminationGracePeriodSeconds", 30) if grace is None else grace
        grace = 0 if not obj["spec"].get("nodeName") or finished else wanted
    else:
        grace = 0
    if meta.get("deletionTimestamp") and meta.get("deletionGracePeriodSeconds", 0) <= grace:
        return
    if not meta.get("deletionTimestamp") and "spec" in obj:
        meta["generation"] = meta.get("generation", 1) + 1
    meta["deletionTimestamp"] = clock.stamp(datetime.now(UTC) + timedelta(seconds=grace))
    meta["deletionGracePeriodSeconds"] = grace
    if resource is NAMESPACES:
        obj["status"]["phase"] = "Terminating"
