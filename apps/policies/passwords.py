"""The policy's rule for new passwords. That a password is not a common one is Django's own rule."""

from django.contrib.auth.password_validation import MinimumLengthValidator

from apps.policies.policy import get_policy


class PolicyLengthValidator(MinimumLengthValidator):
    """Refuses passwords that are shorter than the policy says."""

    def __init__(self) -> None:
        super().__init__()

    @property
    def min_length(self) -> int:
        """Return the number of characters that a password needs."""
        return get_policy().password_length

    @min_length.setter
    def min_length(self, value: int) -> None:
        """Django's default, which the policy replaces."""
