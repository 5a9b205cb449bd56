from django.apps import AppConfig


class DirectoryConfig(AppConfig):
    name = "apps.directory"

    def ready(self) -> None:
        from apps.directory import provider_changes, sign_in  # noqa: F401  # connect to signals
