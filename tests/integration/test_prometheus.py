"""Prometheus scrapes a name server from another address: TLS, token and configuration of the page."""

import json
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.support.backend import ADDRESS
from tests.support.chain import Chain
from tests.support.namespaces import REPOSITORY, Namespace, own_namespace
from tests.support.pages import blocks
from tests.support.waiting import until

PAGE = (REPOSITORY / "docs/how-to/dns/prometheus.md").read_text()
PROMETHEUS = "127.0.0.1:9090"


def block(language: str, marker: str) -> str:
    """Return the block of the page that holds `marker`."""
    (text,) = (block for block in blocks(PAGE, language) if marker in block)
    return text


def in_folder(text: str, folder: Path) -> str:
    """Return the text of the page with this test's folders and address."""
    places = {"/etc/prometheus/rspdns": folder, "/etc/rspdns": folder, "192.0.2.1": ADDRESS}
    for place, own in places.items():
        text = text.replace(place, str(own))
    return text.replace("ns1.example.net:8054", f"{ADDRESS}:8054").replace(
        "DNS:ns1.example.net", f"IP:{ADDRESS}"
    )


def scraped(namespace: Namespace, query: str) -> list[dict[str, str]]:
    """Return the labels of what Prometheus knows."""
    url = f"http://{PROMETHEUS}/api/v1/query?query={quote(query)}"
    said = namespace.run("curl", "--silent", "--fail", url).stdout
    return [each["metric"] for each in json.loads(said)["data"]["result"]] if said else []


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    commands = in_folder(block("sh", "read-tokens"), tmp_path).replace("chgrp rspdns", "chgrp root")
    subprocess.run(["/bin/sh", "-ec", commands], check=True, capture_output=True, timeout=60)
    (tmp_path / "token").write_text((tmp_path / "read-tokens").read_text())
    return tmp_path


def test_prometheus_reads_the_metrics_with_the_lines_of_the_page(prepared: Path) -> None:
    with own_namespace() as namespace:
        chain = Chain(namespace, prepared)
        text = chain.backend.config.read_text()
        table = in_folder(block("toml", "[admin]"), prepared).replace("[admin]\n", "")
        chain.backend.config.write_text(text.replace("[admin]\n", f"[admin]\n{table}"))
        checked = chain.backend.command("check", "--offline")
        assert checked.returncode == 0, checked.stderr
        chain.start()
        (prepared / "prometheus.yml").write_text(in_folder(block("yaml", "scrape_configs"), prepared))
        log = prepared / "prometheus.log"
        namespace.start(
            *("prometheus", f"--config.file={prepared}/prometheus.yml", f"--web.listen-address={PROMETHEUS}"),
            f"--storage.tsdb.path={prepared}/tsdb",
            log=log,
        )
        until(lambda: scraped(namespace, 'rspdns_uptime_seconds{job="rspdns"}'), 60, log)
        assert scraped(namespace, 'up{job="rspdns"} == 1')
