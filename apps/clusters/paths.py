"""Translation of paths in the data directory between the platform and a cluster.

They differ where a cluster mounts the directory elsewhere (`Backend.mount`). The database has the platform's paths;
they are translated when a job is planned, and back when a rank reports one.
"""

import os

from django.conf import settings

from apps.clusters import selectors
from apps.clusters.models import Cluster
from fermi.planning import plugins


def to_cluster_path(cluster: Cluster, path: str) -> str:
    """Return the path as training on the cluster sees it."""
    return _replace_prefix(path, str(settings.DATA_DIR), _get_mount(cluster))


def to_platform_path(cluster: Cluster, path: str) -> str:
    """Return the path as the platform sees it."""
    return _replace_prefix(path, _get_mount(cluster), str(settings.DATA_DIR))


def _get_mount(cluster: Cluster) -> str:
    return plugins.get_backend(cluster.backend, selectors.build_connection(cluster)).mount or str(settings.DATA_DIR)


def _replace_prefix(path: str, old: str, new: str) -> str:
    path = normalize_path(path)
    return new + path[len(old) :] if path.startswith(f"{old}/") else path


def normalize_path(path: str) -> str:
    """Return one spelling of an absolute path. Rules about a path must hold for all its spellings."""
    return f"/{os.path.normpath(path).lstrip('/')}" if path.startswith("/") else path
