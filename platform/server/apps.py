from django.apps import AppConfig


class ServerConfig(AppConfig):
    name = "server"

    def ready(self) -> None:
        """Makes our Celery app the default one, so that messages of the web process reach our broker."""
        from server import celery  # noqa: F401
