"""The platform's settings, with one more address."""

from server.settings import *  # noqa: F403

ROOT_URLCONF = "bench.urls"
