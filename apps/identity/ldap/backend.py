"""Django's backend for passwords of the directory. It stands behind the one for local accounts."""

import logging
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django_auth_ldap.backend import LDAPBackend

from apps.accounts.models import User
from apps.common.texts import render_text
from apps.identity.ldap.accounts import LdapRefusedError, store_person
from apps.identity.ldap.directory import make_settings, read_person

log = logging.getLogger(__name__)

MAX_LOGIN_LENGTH = 254


class LdapBackend(LDAPBackend):
    _settings: Any = None

    @property
    def settings(self) -> Any:
        if self._settings is None:
            self._settings = make_settings(settings.LDAP)
        return self._settings

    def authenticate(
        self, request: Any, username: str | None = None, password: str | None = None, **credentials: Any
    ) -> User | None:
        """Return whom the directory knows by this name and password, None for a wrong one. Raises ValidationError with
        the reason where the password is right, or where the directory does not answer."""
        name = username or credentials.get("email")
        if not isinstance(name, str) or not name.strip() or len(name) > MAX_LOGIN_LENGTH or not password:
            return None
        try:
            return super().authenticate(request, username=name, password=password)
        except LdapRefusedError as error:
            log.warning("a sign-in by LDAP was refused: %s", error)
            raise ValidationError(" ".join(render_text(error.code)), code=error.code.lower()) from error

    def get_or_build_user(self, username: str, ldap_user: Any) -> tuple[User, bool]:
        """Return the account; django-auth-ldap calls it when the password was right. Raises LdapRefusedError."""
        person = read_person(ldap_user)
        return store_person(person, create=settings.LDAP is not None and settings.LDAP.create_users), False

    def get_user(self, user_id: int) -> User | None:
        """Return the user of a session, unless deactivated."""
        return User.objects.filter(pk=user_id, is_active=True).first()
