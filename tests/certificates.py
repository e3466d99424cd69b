"""Certificates for tests, made by the `openssl` command: an authority, and what it has signed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

PASSWORD = "correct horse"
"""Of the keys that are encrypted."""


class Identity(NamedTuple):
    """A certificate and its key as PEM files; the key once as it is and once encrypted."""

    certificate: Path
    key: Path
    encrypted_key: Path

    def together(self, key: Path) -> str:
        """Key and certificate as one text, in the form of Kafka's PEM key stores."""
        return key.read_text() + self.certificate.read_text()


class Authority:
    """Signs certificates; who trusts `certificate` trusts them."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", f"/CN={name}", "-keyout", str(self._key), "-out", str(self.certificate),
        )  # fmt: skip

    def sign(self, name: str, alternative_names: str = "DNS:localhost,IP:127.0.0.1") -> Identity:
        """A certificate for somebody; brokers are known by their alternative names."""
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        identity = Identity(*(self._folder / f"{name}.{kind}" for kind in ("pem", "key", "encrypted.key")))
        extensions.write_text(f"subjectAltName={alternative_names}\n")
        _openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
            "-keyout", str(identity.key), "-out", str(request),
        )  # fmt: skip
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key),
            "-CAcreateserial", "-days", "2", "-extfile", str(extensions), "-out", str(identity.certificate),
        )  # fmt: skip
        _openssl(
            "pkcs8", "-topk8", "-v1", "PBE-SHA1-3DES", "-in", str(identity.key), "-out", str(identity.encrypted_key),
            "-passout", f"pass:{PASSWORD}",
        )  # fmt: skip
        return identity


def _openssl(*arguments: str) -> None:
    assert shutil.which("openssl"), "certificates for tests are made by the openssl command: apt-get install openssl"
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
