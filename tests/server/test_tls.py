"""HTTPS, with a certificate of one's own."""

from __future__ import annotations

import datetime
import http.client
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.server.support import serving
from truecopy.metastore.tokens import Tokens
from truecopy.model.errors import UsageError
from truecopy.server.settings import ServerSettings


def _issue(folder: Path) -> tuple[str, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "truecopy")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    issued = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, secret = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(certificate), str(secret)


def test_a_server_speaks_https_and_its_cookies_stay_there(tmp_path: Path) -> None:
    certificate, key = _issue(tmp_path)
    token = Tokens().add("ada", "view", 60)
    with serving(certificate=certificate, key=key) as ask:
        context = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", ask.port, context=context)
        body = f'{{"token": "{token}"}}'
        connection.request("POST", "/api/session", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        assert "Secure" in (answer.getheader("set-cookie") or "")
        connection.close()


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(UsageError, match="TLS needs both"):
        ServerSettings(certificate="server.crt")
