"""A directory: Debian's slapd on a loopback port, with people, groups and a certificate of its own."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from apps.common.clock import now
from tests import polling

SLAPD = shutil.which("slapd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
SCHEMAS = Path("/etc/ldap/schema")
BASE = "dc=example,dc=org"
ROOT_DN, ROOT_PASSWORD = f"cn=admin,{BASE}", "the directory's own"
PEOPLE, GROUPS = f"ou=people,{BASE}", f"ou=groups,{BASE}"
PASSWORD = "correct horse battery"

_CONFIG = """
include {schemas}/core.schema
include {schemas}/cosine.schema
include {schemas}/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {folder}/slapd.pid
TLSCertificateFile {folder}/certificate.pem
TLSCertificateKeyFile {folder}/key.pem
TLSCACertificateFile {folder}/certificate.pem
database mdb
maxsize 10485760
suffix "{base}"
rootdn "{root}"
rootpw "{password}"
directory {folder}/data
access to attrs=userPassword by anonymous auth by * none
access to * by * read
"""


@dataclass
class Directory:
    """`uri`: without TLS until the client asks for it."""

    folder: Path
    port: int

    @property
    def uri(self) -> str:
        return f"ldap://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> str:
        return str(self.folder / "certificate.pem")

    def add_person(self, name: str, *, password: str = PASSWORD, **attributes: str) -> None:
        more = "".join(f"{key}: {value}\n" for key, value in attributes.items())
        self._run(
            "ldapadd",
            f"dn: uid={name},{PEOPLE}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\n"
            f"userPassword: {password}\n{more}",
        )

    def add_group(self, name: str, *members: str) -> None:
        listed = "".join(f"member: uid={one},{PEOPLE}\n" for one in members)
        self._run(
            "ldapadd", f"dn: cn={name},{GROUPS}\nobjectClass: groupOfNames\ncn: {name}\nmember: {ROOT_DN}\n{listed}"
        )

    def remove_member(self, group: str, name: str) -> None:
        self._run(
            "ldapmodify",
            f"dn: cn={group},{GROUPS}\nchangetype: modify\ndelete: member\nmember: uid={name},{PEOPLE}\n",
        )

    def delete(self, dn: str) -> None:
        self._run("ldapmodify", f"dn: {dn}\nchangetype: delete\n")

    def _run(self, program: str, ldif: str) -> None:
        given = [program, "-x", "-H", self.uri, "-D", ROOT_DN, "-w", ROOT_PASSWORD]
        subprocess.run(given, input=ldif, text=True, check=True, capture_output=True)


@contextmanager
def serve_directory(folder: Path) -> Iterator[Directory]:
    """Serve an empty directory until the block ends."""
    write_certificate(folder)
    (folder / "data").mkdir()
    given = {"schemas": SCHEMAS, "folder": folder, "base": BASE, "root": ROOT_DN, "password": ROOT_PASSWORD}
    (folder / "slapd.conf").write_text(_CONFIG.format(**given))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"ldap://127.0.0.1:{port}/"
    process = subprocess.Popen(
        [str(SLAPD), "-f", str(folder / "slapd.conf"), "-h", address, "-d", "0"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    served = Directory(folder, port)
    try:
        polling.until(lambda: _is_open(port), what="slapd")
        root = f"dn: {BASE}\nobjectClass: dcObject\nobjectClass: organization\ndc: example\no: Example\n\n"
        units = "".join(f"dn: {dn}\nobjectClass: organizationalUnit\n\n" for dn in (PEOPLE, GROUPS))
        served._run("ldapadd", root + units)
        yield served
    finally:
        process.terminate()
        process.wait(30)


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def write_certificate(folder: Path) -> None:
    """Write a key and a certificate of 127.0.0.1, which signs itself. libldap takes `localhost` for the name of the
    machine."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ldap.example.org")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now() - timedelta(days=1)).not_valid_after(now() + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = made.sign(key, hashes.SHA256())
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
