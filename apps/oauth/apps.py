"""Configuration of the app."""

from django.apps import AppConfig


class OAuthConfig(AppConfig):
    name = "apps.oauth"

    def ready(self) -> None:
        from apps.oauth import device_grants, signals

        signals.connect_signals()
        device_grants.add_device_code_check()
