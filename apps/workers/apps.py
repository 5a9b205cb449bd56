from django.apps import AppConfig


class WorkersConfig(AppConfig):
    name = "apps.workers"

    def ready(self) -> None:
        """Give the engine of worker agents its stores."""
        from apps.workers.engine.environment_store import DatabaseHostStore
        from apps.workers.engine.store import DatabaseStore
        from fermi.engines import agent
        from fermi.engines.agent import environments

        agent.set_store(DatabaseStore())
        environments.set_hosts(DatabaseHostStore())
