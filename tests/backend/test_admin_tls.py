"""The admin API with TLS, elsewhere than on loopback, and where it cannot listen."""

import asyncio
import ssl
import subprocess
from pathlib import Path

from rspdns.admin.access import Access, Right, read_access
from rspdns.admin.configuration import AdminConfig
from rspdns.admin.server import AdminServer
from rspdns.event_log import EventLog
from rspdns.up.run import live_page

from tests.backend.admin_paper import READER, Admin, NoMetrics, Paper, tokens


async def test_tls_with_a_certificate_that_is_renewed(tmp_path: Path) -> None:
    def certificate(name: str) -> None:
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ]
        command += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", f"/CN={name}"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)

    def name_shown(host: str) -> str:
        address, _, port = host.partition(":")
        shown = ssl.get_server_certificate((address, int(port)), timeout=30)
        found = subprocess.run(
            ["openssl", "x509", "-noout", "-subject"], input=shown, capture_output=True, text=True, check=True
        )
        return found.stdout.strip()

    certificate("first")
    read = tokens(tmp_path, "read", READER)
    admin = Admin(tmp_path, read_tokens=read, tls_certificate="cert.pem", tls_key="key.pem")
    files = (tmp_path, read, None, "cert.pem", "key.pem")
    access, errors = read_access(*files)
    assert not errors
    server = AdminServer(admin.config, access, admin.service, admin.log, NoMetrics())
    await server.start()
    try:
        url = f"https://{admin.host}/v1/pools"
        async with admin.client.get(url, ssl=False) as answer:
            assert answer.status == 401
        headers = {"Authorization": f"Bearer {READER}", "Origin": f"https://{admin.host}"}
        async with admin.client.get(url, ssl=False, headers=headers) as answer:
            assert answer.status == 200
        assert "first" in await asyncio.to_thread(name_shown, admin.host)
        certificate("second")
        server.set_access(read_access(*files)[0])
        assert "second" in await asyncio.to_thread(name_shown, admin.host)
    finally:
        await admin.client.close()
        await server.close()


async def test_reading_elsewhere_than_on_loopback_needs_a_token_whatever_is_reloaded(tmp_path: Path) -> None:
    outside = AdminConfig(listen="192.0.2.1:8054")
    server = AdminServer(outside, Access(reading_needs_token=True), Paper(), EventLog([]), NoMetrics())
    server.set_access(Access())
    assert server.api.guard.access.right_of(None) is Right.NOTHING


async def test_a_taken_address_is_a_problem_and_not_the_end(admin: Admin, tmp_path: Path) -> None:
    second = AdminServer(admin.config, admin.server.api.guard.access, admin.service, admin.log, NoMetrics())
    await second.start()
    assert second.problem is not None
    assert f"can't listen at {admin.host}" in second.problem
    assert "is at http" not in live_page([second.problem]), "`rspdns up` points at no other program's page"
    assert "no live page" in live_page([second.problem])
    assert live_page(["another"]) == "The live page is at http://127.0.0.1:8054/"
    await second.close()
