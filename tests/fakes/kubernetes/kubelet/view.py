"""What a pod sees, where a process of this machine stands in for its container: volumes, environment, names.

A container that stands apart has mounts of its own (`mounts`). Elsewhere mount paths are rewritten to folders of the
pod wherever they begin a path: in the command, the environment and the texts of mounted ConfigMaps and Secrets; /tmp
and /dev/shm stay the host's. Names of pods and headless Services become 127.0.0.1 in the same places, once the Service
exists: all pods share the host's network. A claim is a host folder (`PersistentVolumeClaim` annotation `fake/path`).
"""

import base64
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from tests.fakes.kubernetes import quantities
from tests.fakes.kubernetes.resources import CLAIMS, CONFIGMAPS, NODES, SECRETS, SERVICES, Resource
from tests.fakes.kubernetes.store import Object, Store

CLAIM_PATH = "fake/path"
OWN_OF_HOST = ("/tmp", "/dev/shm")
FROM_API = frozenset({"configMap", "secret", "downwardAPI", "projected"})


class Missing(Exception):
    """Something the pod names does not exist. `reason`: of the event or of the waiting container."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


class View:
    def __init__(self, store: Store, pod: Object, root: Path, unresolved: list[str], *, mounted: bool = False) -> None:
        self.store, self.pod, self.root, self.mounted = store, pod, root, mounted
        self.namespace: str = pod["metadata"]["namespace"]
        self._unresolved = unresolved
        self._volumes: dict[str, Path] = {}

    def make_volumes(self) -> None:
        """Raises Missing (FailedMount)."""
        self.root.mkdir(parents=True, exist_ok=True)
        for volume in self.pod["spec"].get("volumes") or []:
            folder = self.root / "volumes" / volume["name"]
            if "hostPath" in volume:
                folder = Path(volume["hostPath"]["path"])
            elif source := volume.get("persistentVolumeClaim"):
                folder = self._claim(source["claimName"])
            else:
                folder.mkdir(parents=True, exist_ok=True)
            self._volumes[volume["name"]] = folder
        for volume in self.pod["spec"].get("volumes") or []:
            for name, text in self._files(volume).items():
                path = self._volumes[volume["name"]] / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else self.rewrite(text).encode())

    def _claim(self, name: str) -> Path:
        claim = self.store.get(CLAIMS, self.namespace, name)
        path = ((claim or {}).get("metadata", {}).get("annotations") or {}).get(CLAIM_PATH)
        if path is None:
            raise Missing("FailedMount", f'persistentvolumeclaim "{name}" not found')
        return Path(path)

    def _files(self, volume: dict[str, Any]) -> dict[str, str | bytes]:
        if source := volume.get("configMap"):
            return self._keys(CONFIGMAPS, source["name"], source, volume["name"])
        if source := volume.get("secret"):
            return self._keys(SECRETS, source["secretName"], source, volume["name"])
        if source := volume.get("downwardAPI"):
            return {item["path"]: self._field(item["fieldRef"]["fieldPath"]) for item in source["items"]}
        files: dict[str, str | bytes] = {}
        for source in (volume.get("projected") or {}).get("sources") or []:
            kind = next(iter(source))
            if kind in ("configMap", "secret"):
                where = CONFIGMAPS if kind == "configMap" else SECRETS
                files |= self._keys(where, source[kind]["name"], source[kind], volume["name"])
            elif kind == "downwardAPI":
                files |= self._files({kind: source[kind]})
            elif kind == "serviceAccountToken":
                files[source[kind]["path"]] = "token"
        return files

    def _keys(self, resource: Resource, name: str, source: dict[str, Any], volume: str) -> dict[str, str | bytes]:
        found = self.store.get(resource, self.namespace, name)
        if found is None:
            if source.get("optional"):
                return {}
            kind = resource.kind.lower()
            raise Missing("FailedMount", f'MountVolume.SetUp failed for volume "{volume}" : {kind} "{name}" not found')
        data: dict[str, str | bytes] = {**_texts(resource, found)}
        data |= {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        if items := source.get("items"):
            return {item["path"]: data[item["key"]] for item in items}
        return data

    def rewrite(self, text: str) -> str:
        """Mount paths and names, as this machine knows them."""
        return self._names().sub("127.0.0.1", self._paths().sub(lambda found: self._mounts[found[1]], text))

    def mounts(self, container: dict[str, Any]) -> list[dict[str, Any]]:
        """What a container that stands apart finds where. What comes from the API cannot be written (kubernetes/
        kubernetes, pkg/kubelet/kubelet_pods.go: makeMounts)."""
        fixed = {one["name"] for one in self.pod["spec"].get("volumes") or [] if FROM_API & one.keys()}
        message = self.root / f"{container['name']}.message"
        found = [{"source": str(message), "path": container["terminationMessagePath"], "readOnly": False}]
        for mount in container.get("volumeMounts") or []:
            source = self._volumes[mount["name"]] / mount.get("subPath", "")
            if not source.exists():
                source.mkdir(parents=True)
            read_only = bool(mount.get("readOnly")) or mount["name"] in fixed
            found.append({"source": str(source), "path": mount["mountPath"].rstrip("/"), "readOnly": read_only})
        return found

    def _paths(self) -> re.Pattern[str]:
        mounts = {}
        if self.mounted:
            return re.compile("((?!))")
        for container in self.pod["spec"]["containers"]:
            mounts[container["terminationMessagePath"]] = str(self.root / f"{container['name']}.message")
            for mount in container.get("volumeMounts") or []:
                path = mount["mountPath"].rstrip("/")
                if path not in OWN_OF_HOST and mount["name"] in self._volumes:
                    mounts[path] = str(self._volumes[mount["name"]] / mount.get("subPath", ""))
        self._mounts = mounts
        longest_first = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
        return re.compile(rf"(?<![\w./-])({longest_first})(?![\w.-])")

    def _names(self) -> re.Pattern[str]:
        services = []
        for service in self.store.all(SERVICES, self.namespace):
            name = service["metadata"]["name"]
            headless = service["spec"].get("clusterIP") == "None"
            if headless and not any(fnmatchcase(name, pattern) for pattern in self._unresolved):
                services.append(re.escape(name))
        inside = rf"\.{re.escape(self.namespace)}(\.svc(\.cluster\.local\.?)?)?"
        host = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
        found = "|".join(services) or r"(?!)"
        return re.compile(rf"(?<![\w.-])(({host}\.)({found})({inside})?|({found}){inside})(?![\w-]|\.\w)")

    def command(self, container: dict[str, Any], env: dict[str, str]) -> list[str]:
        words = [*(container.get("command") or []), *(container.get("args") or [])]
        return [self.rewrite(expand(word, env)) for word in words]

    def cwd(self, container: dict[str, Any], otherwise: str) -> str:
        path = self.rewrite(container.get("workingDir") or otherwise)
        return path if self.mounted or Path(path).is_dir() else otherwise

    def env(self, container: dict[str, Any]) -> dict[str, str]:
        """Raises Missing (CreateContainerConfigError)."""
        env: dict[str, str] = {}
        for source in container.get("envFrom") or []:
            kind, resource = ("configMapRef", CONFIGMAPS) if "configMapRef" in source else ("secretRef", SECRETS)
            found = self._config(resource, source[kind])
            env |= {source.get("prefix", "") + name: value for name, value in _texts(resource, found).items()}
        for variable in container.get("env") or []:
            value = expand(variable.get("value", ""), env)
            if source := variable.get("valueFrom"):
                found_value = self._value(container, source)
                if found_value is None:
                    continue
                value = found_value
            env[variable["name"]] = self.rewrite(value)
        return env

    def _value(self, container: dict[str, Any], source: dict[str, Any]) -> str | None:
        if field := source.get("fieldRef"):
            return self._field(field["fieldPath"])
        if field := source.get("resourceFieldRef"):
            where, _, name = field["resource"].partition(".")
            amount = quantities.number(((container.get("resources") or {}).get(where) or {}).get(name, "0"))
            return str(-int(-amount // quantities.number(field.get("divisor", "1"))))
        kind, resource = ("configMapKeyRef", CONFIGMAPS) if "configMapKeyRef" in source else ("secretKeyRef", SECRETS)
        ref = source[kind]
        value = _texts(resource, self._config(resource, ref)).get(ref["key"])
        if value is None and not ref.get("optional"):
            where = f"{resource.kind} {self.namespace}/{ref['name']}"
            raise Missing("CreateContainerConfigError", f"couldn't find key {ref['key']} in {where}")
        return value

    def _config(self, resource: Resource, ref: dict[str, Any]) -> Object:
        found = self.store.get(resource, self.namespace, ref["name"])
        if found is None and not ref.get("optional"):
            raise Missing("CreateContainerConfigError", f'{resource.kind.lower()} "{ref["name"]}" not found')
        return found or {}

    def _field(self, path: str) -> str:
        meta = self.pod["metadata"]
        if found := re.fullmatch(r"metadata\.(labels|annotations)\['([^']*)'\]", path):
            return (meta.get(found[1]) or {}).get(found[2], "")
        node = self.store.get(NODES, "", self.pod["spec"].get("nodeName", "")) or {}
        addresses = (node.get("status") or {}).get("addresses") or [{"address": ""}]
        values = {
            "metadata.name": meta["name"], "metadata.namespace": self.namespace, "metadata.uid": meta["uid"],
            "spec.nodeName": self.pod["spec"].get("nodeName", ""), "status.hostIP": addresses[0]["address"],
            "spec.serviceAccountName": self.pod["spec"].get("serviceAccountName", ""), "status.podIP": "127.0.0.1",
            "status.podIPs": "127.0.0.1",
        }  # fmt: skip
        return values[path]


def _texts(resource: Resource, obj: Object) -> dict[str, str]:
    data = obj.get("data") or {}
    if resource is SECRETS:
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    return data


def expand(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` where it is known; `$$(NAME)` is an escaped one."""
    return re.sub(
        r"(\$?)\$\(([\w.-]+)\)",
        lambda found: found[0][1:] if found[1] else env.get(found[2], found[0]),
        text,
    )
