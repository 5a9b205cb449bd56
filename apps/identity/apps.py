from django.apps import AppConfig


class IdentityConfig(AppConfig):
    name = "apps.identity"

    def ready(self) -> None:
        from apps.identity import sign_in  # noqa: F401  # connects to the signals
