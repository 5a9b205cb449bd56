from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "apps.agents"

    def ready(self) -> None:
        """Have each task that a token creates checked against the token's purse."""
        from apps.agents import enforcement  # it imports models

        enforcement.connect_check()
