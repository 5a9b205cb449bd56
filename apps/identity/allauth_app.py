"""The configuration of allauth's app of accounts at providers."""

from allauth.socialaccount.apps import SocialAccountConfig as AllauthConfig


class SocialAccountConfig(AllauthConfig):
    """Leaves the providers' code, with its HTTP client, to processes that serve pages: they load it with the URLs."""

    def ready(self) -> None:
        from allauth.socialaccount import checks  # noqa: F401  # registers them
