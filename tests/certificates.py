"""Certificates for tests: self-signed, and valid for as long as a test says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(ends: datetime | None = None, name: str = "fermi") -> tuple[bytes, bytes]:
    """PEM, and PEM of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    ends = ends or datetime.now(UTC) + timedelta(days=1)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=365))
        .not_valid_after(ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return made.public_bytes(serialization.Encoding.PEM), private


def written(folder: Path) -> tuple[Path, Path]:
    """One certificate and its key, as files."""
    paths = folder / "tls.crt", folder / "tls.key"
    for path, text in zip(paths, certificate(), strict=True):
        path.write_bytes(text)
    return paths
