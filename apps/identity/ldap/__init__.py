"""Sign-in with a password of an LDAP directory, by django-auth-ldap. Only `directory` and `backend` import it: it is
there only where FERMI_LDAP_URI is set."""
