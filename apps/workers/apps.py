from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"

    def ready(self) -> None:
        """Gives the backend for worker agents its memory."""
        from apps.workers.engine.hosted import DatabaseHosts
        from apps.workers.engine.store import DatabaseStore
        from fermi.launch.backends import agent
        from fermi.launch.backends.agent import hosting

        agent.use(DatabaseStore())
        hosting.use(DatabaseHosts())
