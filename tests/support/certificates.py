"""Certificates that openssl makes for a test."""

import subprocess
from pathlib import Path

NAME = "as.example"
"""The name that each certificate holds, beside the address 127.0.0.1."""
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def authority(folder: Path, name: str) -> Path:
    """Make an authority; return its certificate, beside which its key is."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    openssl("req", "-x509", *KEY, "-days", "60", "-subj", f"/CN={name}", "-keyout", key, "-out", certificate)
    return certificate


def certificate_of(folder: Path, issuer: Path, days: int) -> dict[str, Path]:
    """Make a certificate that is valid for `days` from now on, negative: no longer."""
    request, key, certificate = (folder / f"{days}{end}" for end in (".csr", ".key", ".crt"))
    names = f"subjectAltName=DNS:{NAME},IP:127.0.0.1"
    openssl("req", *KEY, "-subj", "/CN=as", "-addext", names, "-keyout", key, "-out", request)
    by = ("-CA", issuer, "-CAkey", issuer.with_suffix(".key"), "-copy_extensions", "copyall")
    openssl("x509", "-req", "-in", request, *by, "-days", str(days), "-out", certificate)
    return {"crt": certificate, "key": key}
