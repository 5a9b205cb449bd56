from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class PoliciesConfig(AppConfig):
    name = "apps.policies"

    def ready(self) -> None:
        """Have each sign-in begin a session anew."""
        from apps.policies.enforcement import begin_session

        user_logged_in.connect(begin_session, dispatch_uid="apps.policies")
