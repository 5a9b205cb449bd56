"""The platform's settings, with one more address."""

from fermi.launch import registry
from server.settings import *  # noqa: F403

ROOT_URLCONF = "bench.urls"

registry.BACKENDS["recorded"] = "bench.recorded"
