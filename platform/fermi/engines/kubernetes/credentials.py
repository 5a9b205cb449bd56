"""Credentials of an API server, read again when they change.

Tokens expire: a bound one after a day or two whatever was requested, a plug-in's or a projected one sooner. The program
that renews them replaces a file. So the files' times are checked before each request (a few microseconds) and they are
read again when one has changed; and once more when the API server answers 401, because a plug-in's token is in no file.
"""

import os
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kubernetes.client
import kubernetes.config
import yaml
from kubernetes.config import incluster_config
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.kube_config import KUBE_CONFIG_DEFAULT_LOCATION, ConfigNode, KubeConfigLoader, KubeConfigMerger

from fermi.engines.certificates import CredentialExpiry, CredentialKind, read_expiries
from fermi.jobs.errors import BackendError

MAX_CONNECTIONS = 1024  # kept open at most; each pod that is followed holds one
MIN_RELOAD_SECONDS = 2.0
"""Least time between two full reloads after a 401: a plug-in may take seconds, and query another service."""

IN_CLUSTER_FILES: Mapping[CredentialKind, str] = {
    "token": incluster_config.SERVICE_TOKEN_FILENAME, "authority": incluster_config.SERVICE_CERT_FILENAME,
}  # fmt: skip
FileStamp = tuple[int, int, int]


class KubernetesCredentials:
    """Credentials of a connection. Methods raise BackendError (ENGINE_NOT_CONFIGURED) that names what cannot be
    read."""

    def __init__(self, connection: Mapping[str, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._api: kubernetes.client.ApiClient | None = None
        self._stamps: dict[str, FileStamp | None] = {}
        self._again_at = -MIN_RELOAD_SECONDS

    def api(self) -> kubernetes.client.ApiClient:
        """Return a client with what the files hold now."""
        with self._lock:
            if self._api is None or any(_read_stamp(path) != stamp for path, stamp in self._stamps.items()):
                return self._load()
            return self._api

    def again(self, refused: kubernetes.client.ApiClient) -> kubernetes.client.ApiClient:
        """Return a newer client after a 401; `refused` itself when there is none, or the files were read a moment
        ago."""
        with self._lock:
            if self._api is not refused or time.monotonic() - self._again_at < MIN_RELOAD_SECONDS:
                return self._api or refused
            self._again_at = time.monotonic()
            return self._load()

    def _load(self) -> kubernetes.client.ApiClient:
        """Read the files. Their times are read before their content, so that one that changes in between is read
        again."""
        configuration = kubernetes.client.Configuration()
        files: list[str] = []
        with _wrap_errors(files):
            if self._connection.get("in_cluster"):
                files += IN_CLUSTER_FILES.values()
                stamps = {path: _read_stamp(path) for path in files}
                kubernetes.config.load_incluster_config(client_configuration=configuration)
            else:
                files += self._kubeconfigs()
                stamps = {path: _read_stamp(path) for path in files}
                told = _Kubeconfig(files, self._connection.get("context") or None)
                stamps |= {path: _read_stamp(path) for path in told.files}
                told.load(configuration)
            configuration.connection_pool_maxsize = MAX_CONNECTIONS
            configuration.retries = False
            api = kubernetes.client.ApiClient(configuration)
        self._api, self._stamps = api, stamps
        return api

    def endings(self) -> list[CredentialExpiry]:
        """Return until when the files' certificates and tokens are valid; a plug-in renews its own."""
        files: list[str] = []
        with _wrap_errors(files):
            if self._connection.get("in_cluster"):
                found = [(kind, path, Path(path).read_bytes()) for kind, path in IN_CLUSTER_FILES.items()]
            else:
                files += self._kubeconfigs()
                found = list(_Kubeconfig(files, self._connection.get("context") or None).read_material())
            return [ending for one in found for ending in read_expiries(*one)]

    def _kubeconfigs(self) -> list[str]:
        """Return the kubeconfig files; several only where KUBECONFIG names several."""
        named = self._connection.get("kubeconfig") or KUBE_CONFIG_DEFAULT_LOCATION
        paths = [os.path.expanduser(path) for path in str(named).split(os.pathsep) if path]
        if len(paths) == 1:
            open(paths[0], "rb").close()  # raises an error that names it: the library skips missing files
        return paths


@contextmanager
def _wrap_errors(files: list[str]) -> Iterator[None]:
    """Turn errors of reading `files` into BackendError that names the file."""
    try:
        yield
    except OSError as error:
        raise BackendError("ENGINE_NOT_CONFIGURED", why=f"{error.filename}: {error.strerror}") from error
    except ConfigException as error:
        raise BackendError("ENGINE_NOT_CONFIGURED", why=f"{', '.join(files)}: {error}") from error
    except (ValueError, TypeError, AttributeError, LookupError, yaml.YAMLError) as error:  # the file is written by hand
        why = f"{', '.join(files)} is no kubeconfig: {' '.join(str(error).split())}"
        raise BackendError("ENGINE_NOT_CONFIGURED", why=why) from error


class _Kubeconfig:
    """One context of kubeconfig files. `files`: those that it names, the token's and the certificates'."""

    def __init__(self, paths: list[str], context: str | None) -> None:
        merged = KubeConfigMerger(os.pathsep.join(paths)).config
        if merged is None:
            raise ConfigException("no such file")
        self._loader = KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
        about = self._loader.current_context["context"]
        self._user, self.files = about.get("user"), []
        self._entries: list[tuple[ConfigNode, str, Mapping[str, str]]] = []
        for table, kind, keys in (("clusters", "cluster", _CLUSTER_FILES), ("users", "user", _USER_FILES)):
            if name := about.get(kind):
                entry = merged[table].get_with_name(name)
                self._entries.append((entry, kind, keys))
                self.files += _list_files(entry, kind, keys)
        user = merged["users"].get_with_name(self._user).value if self._user else {}
        self._plug_in = (user.get("user") or {}).get("exec")

    def load(self, configuration: kubernetes.client.Configuration) -> None:
        """Set a client's configuration. The library logs that a plug-in failed, and continues without credentials; this
        raises."""
        for path in self.files:
            open(path, "rb").close()  # raises an error that names it
        self._loader.load_and_set(configuration)
        if self._plug_in and not (configuration.api_key or configuration.cert_file):
            command = self._plug_in.get("command")
            raise ConfigException(f"the exec plug-in {command} of user {self._user} gave no credentials")

    def read_material(self) -> Iterator[tuple[CredentialKind, str, bytes]]:
        """Yield what may expire: its kind, the file that it is in, and its content."""
        for entry, kind, keys in self._entries:
            told = entry.value.get(kind) or {}
            for key, instead in keys.items():
                if key not in _EXPIRING_KINDS:
                    continue
                if value := told.get(instead):
                    yield (
                        _EXPIRING_KINDS[key],
                        entry.path,
                        str(value).encode() if key == "tokenFile" else b64decode(value),
                    )
                for path in _list_files(entry, kind, {key: instead}):
                    yield _EXPIRING_KINDS[key], path, Path(path).read_bytes()


_CLUSTER_FILES = {"certificate-authority": "certificate-authority-data"}
_USER_FILES = {"tokenFile": "token", "client-certificate": "client-certificate-data", "client-key": "client-key-data"}
"""Keys that name a file, and the keys whose values replace it."""
_EXPIRING_KINDS: Mapping[str, CredentialKind] = {
    "certificate-authority": "authority", "tokenFile": "token", "client-certificate": "certificate",
}  # fmt: skip


def _list_files(entry: ConfigNode, kind: str, keys: Mapping[str, str]) -> list[str]:
    """Return the files that an entry names; relative paths are relative to the kubeconfig that names them."""
    told = entry.value.get(kind) or {}
    named = [told[key] for key, instead in keys.items() if told.get(key) and not told.get(instead)]
    return [str(Path(entry.path).parent / path) for path in named]


def _read_stamp(path: str) -> FileStamp | None:
    """Return a value that differs when the file is another one; None when it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
