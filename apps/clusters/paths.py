"""Translation of paths in the data directory between the platform and a cluster.

They differ where a cluster mounts the directory elsewhere (`Backend.mount`). The database has the platform's paths;
they are translated when a job is planned, and back when a rank reports one.
"""

import os

from django.conf import settings

from apps.clusters import selectors
from apps.clusters.models import Cluster
from fermi.planning import plugins


def there(cluster: Cluster, path: str) -> str:
    """Return the path as training on the cluster sees it."""
    return _moved(path, str(settings.DATA_DIR), _mount(cluster))


def here(cluster: Cluster, path: str) -> str:
    """Return the path as the platform sees it."""
    return _moved(path, _mount(cluster), str(settings.DATA_DIR))


def _mount(cluster: Cluster) -> str:
    return plugins.backend(cluster.backend, selectors.connection(cluster)).mount or str(settings.DATA_DIR)


def _moved(path: str, old: str, new: str) -> str:
    path = plain(path)
    return new + path[len(old) :] if path.startswith(f"{old}/") else path


def plain(path: str) -> str:
    """Return one spelling of an absolute path. Rules about a path must hold for all its spellings."""
    return f"/{os.path.normpath(path).lstrip('/')}" if path.startswith("/") else path
