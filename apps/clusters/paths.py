"""The data directory, as the platform has it and as training on a cluster sees it.

They differ where a cluster has it elsewhere (`Backend.mount`). The database holds the platform's paths; they are
translated where a job is planned, and back where a rank reports one.
"""

import os

from django.conf import settings

from apps.clusters import selectors
from apps.clusters.models import Cluster
from fermi.planning import plugins


def there(cluster: Cluster, path: str) -> str:
    """As training sees it."""
    return _moved(path, str(settings.DATA_DIR), _mount(cluster))


def here(cluster: Cluster, path: str) -> str:
    """As the platform sees it."""
    return _moved(path, _mount(cluster), str(settings.DATA_DIR))


def _mount(cluster: Cluster) -> str:
    return plugins.backend(cluster.backend, selectors.connection(cluster)).mount or str(settings.DATA_DIR)


def _moved(path: str, old: str, new: str) -> str:
    path = plain(path)
    return new + path[len(old) :] if path.startswith(f"{old}/") else path


def plain(path: str) -> str:
    """One spelling of an absolute path: what is told by it (whose it is) must hold for all others."""
    return f"/{os.path.normpath(path).lstrip('/')}" if path.startswith("/") else path
