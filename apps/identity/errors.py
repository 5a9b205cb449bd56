"""Why a sign-in by a provider is refused."""

from allauth.socialaccount.providers.oauth2.client import OAuth2Error


class SignInError(OAuth2Error):
    """A refused sign-in. `code`: what the sign-in page shows. `detail`: for the log alone, never a token."""

    def __init__(self, code: str, detail: str = "") -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code = code
        self.detail = detail
