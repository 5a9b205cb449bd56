from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"

    def ready(self) -> None:
        """Gives the backend for worker agents its memory."""
        from apps.workers.engine.store import DatabaseStore
        from fermi.launch.backends import agent

        agent.use(DatabaseStore())
