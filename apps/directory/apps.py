from django.apps import AppConfig


class DirectoryConfig(AppConfig):
    name = "apps.directory"

    def ready(self) -> None:
        from apps.directory import sign_in  # noqa: F401  # connects to the signal
