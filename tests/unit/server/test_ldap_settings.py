"""FERMI_LDAP_… become settings, or a sentence about what is wrong."""

from pathlib import Path

import pytest

from server import ldap_settings
from server.env import InvalidSettingError

GIVEN = {"FERMI_LDAP_URI": "ldaps://ldap.example.org", "FERMI_LDAP_USER_SEARCH": "ou=people,dc=example,dc=org"}


@pytest.fixture(autouse=True)
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ldap_settings, "find_spec", lambda name: name)


def read(monkeypatch: pytest.MonkeyPatch, **values: str) -> ldap_settings.LdapSettings | None:
    for name, value in {**GIVEN, **values}.items():
        monkeypatch.setenv(name, value)
    return ldap_settings.read_ldap()


def test_without_an_address_there_is_no_directory() -> None:
    assert ldap_settings.read_ldap() is None


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ldap_settings, "find_spec", lambda name: None)
    with pytest.raises(InvalidSettingError, match="django-auth-ldap"):
        read(monkeypatch)


def test_tls_is_begun_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        read(monkeypatch),
        read(monkeypatch, FERMI_LDAP_URI="ldap://one.example.org ldap://two.example.org:1389"),
        read(monkeypatch, FERMI_LDAP_URI="ldap://one.example.org", FERMI_LDAP_TLS="off"),
    ]
    assert [one and one.start_tls for one in found] == [False, True, False]


def test_the_password_comes_from_a_file_and_is_in_no_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("very secret\n")
    found = read(monkeypatch, FERMI_LDAP_BIND_DN="cn=fermi", FERMI_LDAP_BIND_PASSWORD_FILE=str(file))
    assert found is not None
    assert found.bind_password == "very secret"
    assert "very secret" not in repr(found)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FERMI_LDAP_URI", "ldap.example.org"),
        ("FERMI_LDAP_URI", "http://ldap.example.org"),
        ("FERMI_LDAP_URI", "ldaps://one.example.org ldap://two.example.org"),
        ("FERMI_LDAP_USER_SEARCH", "people"),
        ("FERMI_LDAP_USER_FILTER", "(uid=ada)"),
        ("FERMI_LDAP_USER_FILTER", "(uid=%(name)s)"),
        ("FERMI_LDAP_USER_FILTER", "(uid=%s)"),
        ("FERMI_LDAP_USER_FILTER", "uid=%(user)s"),
        ("FERMI_LDAP_GROUP_TYPE", "group"),
        ("FERMI_LDAP_TLS", "no"),
        ("FERMI_LDAP_BIND_DN", "cn=fermi"),
        ("FERMI_LDAP_BIND_PASSWORD_FILE", "/no/such/file"),
        ("FERMI_LDAP_CA_FILE", "/no/such/file"),
    ],
)
def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    with pytest.raises(InvalidSettingError, match="FERMI_LDAP_"):
        read(monkeypatch, **{name: value})
