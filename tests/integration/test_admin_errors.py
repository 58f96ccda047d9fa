"""Errors in [admin] and in its files switch off the page, never DNS; `rspdns check` finds them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backend.configuration_files import GOOD, head, write
from tests.backend.making import UDP
from tests.support.backend import OWNER, POOL, ZONE
from tests.support.chain import Chain
from tests.support.waiting import until


@pytest.mark.parametrize("wrong", ['read_tokens = "nowhere"', 'listen = "192.0.2.1:8054"', "nonsense = 1"])
def test_an_error_in_admin_switches_off_the_page_and_never_dns(chain: Chain, wrong: str) -> None:
    text = chain.backend.config.read_text()
    chain.backend.config.write_text(text.replace("[admin]\n", f"[admin]\n{wrong}\n"))
    chain.backend.start()
    chain.pdns.start(ZONE)
    until(lambda: (chain.backend.status() or {}).get("problems"))  # the page's part starts last
    (problem,) = (chain.backend.status() or {})["problems"]
    assert problem.startswith("live page, API and metrics: ")
    assert f"admin.{wrong.partition(' ')[0]}" in problem
    chain.backend.write_zone(POOL + POOL.replace('"as"', '"new"').replace("sip-udp", "new"))
    assert f"serving {ZONE}" in chain.backend.command("reload").stdout
    until(lambda: "status: NXDOMAIN" not in chain.pdns.dig(OWNER.replace(".as.", ".new."), "SRV"))


PROGRAM = """
import sys
from rspdns import cli
cli.DEFAULT_PATH, cli.UNIT_USER = sys.argv[1], "nobody"
cli.main(["check", "--offline", "-c", sys.argv[1]])
"""


def test_root_checks_the_services_file_as_the_user_of_the_service(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o755)
    path = write(tmp_path, GOOD + '[admin]\nread_tokens = "tokens"\n', one=head() + UDP)
    tokens = tmp_path / "tokens"
    tokens.write_text("reader-0123456789abcdef\n")
    tokens.chmod(0o600)

    def check() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", PROGRAM, str(path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    refused = check()
    assert refused.returncode == 1
    assert f"admin.read_tokens: {tokens}: can't be read: Permission denied" in refused.stderr
    assert "read as nobody, the user of the service" in refused.stderr
    tokens.chmod(0o640)
    subprocess.run(["chgrp", "nogroup", str(tokens)], check=True)
    assert "no errors" in check().stdout
