"""The platform's settings, with one more URL."""

from fermi.planning import plugins
from server.settings import *  # noqa: F403

ROOT_URLCONF = "bench.urls"

plugins.BACKENDS["recorded"] = "bench.replay_engine"
