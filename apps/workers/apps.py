from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"

    def ready(self) -> None:
        """Gives the backend for worker agents its memory."""
        from apps.workers.engine.environment_store import DatabaseHosts
        from apps.workers.engine.store import DatabaseStore
        from fermi.engines import agent
        from fermi.engines.agent import environments

        agent.use(DatabaseStore())
        environments.use(DatabaseHosts())
