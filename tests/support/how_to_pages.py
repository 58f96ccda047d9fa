"""Which pages of docs/how-to are walked, on which hosts, and why the others are not.

A journey is a list of pages that a reader follows one after the other, on the same hosts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from tests.support.how_to import HOSTS, Site, Walk, blocks
from tests.support.quickstart import kamailio_cfg, page

REGISTRARS = ("r1", "r2", "r3")
SRV = "_sip._udp.as.ims.example.net"
SUBNET = "10.20.0.0/16"
UPPER = ("u1", "u2", "u3")
CELLS = "\n".join(
    [
        'zone = "ims.example.net"',
        *(f'[[upper.registrar]]\nname = "{name}"\naddress = "{HOSTS[name]}"' for name in UPPER),
        f'[[upper.backend]]\nname = "upper-name-servers"\naddresses = ["{HOSTS["ns1"]}"]',
        f'[[cell]]\nname = "eu1"\ngateways = ["{HOSTS["gateway"]}"]\nname_servers = ["10.1.0.21"]',
        *(f'[[cell.registrar]]\nname = "{name}"\naddress = "{HOSTS[name]}"' for name in REGISTRARS),
        f'[[cell.agent]]\nname = "servers"\naddresses = ["{SUBNET}"]\nhandles = ["sip-as-udp"]',
    ]
)
"""A file of one cell, for `rspdns-registrar render`."""


# --- steps that pages give in prose


def add_client(site: Site) -> None:
    """A client's host gets an entry in the inventory."""
    path = site["r1"].root / "root/inventory.toml"
    entry = f'\n[[client]]\nname = "clients"\naddresses = ["{HOSTS["client"]}"]\n'
    path.write_text(path.read_text() + entry)


def bring_rendered(site: Site) -> None:
    """The files of `rspdns-registrar render` go to their hosts, as the table of the page says."""
    entries = {"as": "servers", "cl": "clients", "ns": "name-servers"}
    for name in site.machines:
        if name not in REGISTRARS and not re.fullmatch(r"(as|ns)\d|client", name):
            continue
        folder = f"/root/rendered/{entries.get(name[:2], name)}"
        if name in REGISTRARS:
            for kind in ("env", "gate"):
                file = f"registrar-{name}.{kind}"
                site.copy("r1", f"{folder}/{file}", name, f"/etc/rspdns/{file}")
            if name != "r1":
                site.copy("r1", "/root/inventory.toml", name, "/root/inventory.toml")
        site.copy("r1", f"{folder}/rspdns.nft", name, "/etc/rspdns/rspdns.nft")
        for file in ("sysctl.d/90-rspdns-sctp.conf", "modules-load.d/rspdns-sctp.conf"):
            site.copy("r1", f"{folder}/{file}", name, f"/etc/{file}")


def start_servers(site: Site) -> None:
    """Kamailio with the lines of the page on servers."""
    for name in (name for name in site.machines if name.startswith("as")):
        site[name].write("/etc/kamailio/kamailio.cfg", kamailio_cfg(HOSTS[name]))
        site.paste(name, "kamailio -c; systemctl restart kamailio")


def start_kamailio(site: Site) -> None:
    """Kamailio, and its `[[as]]` in agent.toml."""
    start_servers(site)
    for name in (name for name in site.machines if name.startswith("as")):
        site[name].write("/etc/ppe-agent/agent.toml", page("kamailio"))


def start_web_servers(site: Site) -> None:
    """The reader's upstreams."""
    for name in ("as1", "as2"):
        site.paste(name, "mkdir /root/web; systemd-run --unit=web python3 -m http.server -d /root/web 8080")


def serve_postgresql(site: Site) -> None:
    """PowerDNS as the reader has it: with zones in PostgreSQL, one of them example.net."""
    settings = "host=127.0.0.1 dbname=pdns user=pdns password=SECRET"
    lines = "".join(f"gpgsql-{setting}\n" for setting in settings.split())
    site["ns1"].write("/etc/powerdns/pdns.conf", f"launch=gpgsql\n{lines}local-address=192.0.2.1\n")
    site.paste(
        "ns1",
        f"""
        systemd-tmpfiles --create postgresql.conf || install -d -o postgres -g postgres /run/postgresql
        systemctl start postgresql@15-main
        as_postgres='runuser -u postgres --'
        $as_postgres psql -c "CREATE ROLE pdns LOGIN PASSWORD 'SECRET'"
        $as_postgres createdb --owner pdns pdns
        schema=/usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql
        psql 'postgresql://pdns:SECRET@127.0.0.1/pdns' -q -f $schema
        chgrp pdns /etc/powerdns/pdns.conf; chmod 640 /etc/powerdns/pdns.conf
        pdnsutil create-zone example.net ns1.example.net
        pdnsutil add-record example.net ns1 A {HOSTS["ns1"]}
        pdnsutil add-record example.net www A 10.0.1.80
        systemctl start pdns
        """,
    )


def start_resolvers(site: Site) -> None:
    """Unbound and BIND that ask ns1 for the zone, as the reader has them."""
    for name in ("cache1", "cache2"):
        site[name].write("/etc/resolv.conf", f"nameserver {HOSTS[name]}\n")
    site["cache1"].write(
        "/etc/unbound/unbound.conf.d/ims.conf",
        f"server:\n    interface: {HOSTS['cache1']}\n    access-control: 10.0.0.0/8 allow\n"
        '    module-config: "iterator"\n'
        f'stub-zone:\n    name: "ims.example.net"\n    stub-addr: {HOSTS["ns1"]}\n',
    )
    site["cache2"].write(
        "/etc/bind/named.conf.local",
        f'zone "ims.example.net" {{ type forward; forward only; forwarders {{ {HOSTS["ns1"]}; }}; }};\n',
    )
    site["cache2"].write(
        "/etc/bind/named.conf.options",
        'options { directory "/var/cache/bind"; dnssec-validation no; allow-recursion { any; }; };\n',
    )
    site.paste("cache1", "systemctl restart unbound")
    site.paste("cache2", "systemctl restart named")


def bring_certificates(site: Site) -> None:
    for file in ("unbound_server.pem", "unbound_control.pem", "unbound_control.key"):
        site.copy("cache1", f"/etc/unbound/{file}", "ns1", f"/root/{file}")


def bring_rndc_key(site: Site) -> None:
    site.copy("ns1", "/root/rndc.key", "cache2", "/etc/bind/rspdns.key")


def bring_zone(site: Site) -> None:
    """Both files of the zone go to the second name server."""
    for kind in ("toml", "zone"):
        path = f"/etc/rspdns/zones.d/ims.example.net.{kind}"
        site.copy("ns1", path, "ns2", path)


def make_write_tokens(site: Site) -> None:
    """The file of `write_tokens`, as the page says in a table."""
    site.paste(
        "ns1",
        """
        openssl rand -base64 30 > /etc/rspdns/write-tokens
        chgrp rspdns /etc/rspdns/write-tokens && chmod 640 /etc/rspdns/write-tokens
        cp /etc/rspdns/write-tokens /root/
        printf '[admin]\\nwrite_tokens = "write-tokens"\\n' >> /etc/rspdns/rspdns.toml
        rspdns reload
        """,
    )


def restart_everything(site: Site) -> None:
    """The commands of the table, host by host."""
    for name, unit in (
        ("ns1", "rspdns"),
        ("as1", "ppe-agent"),
        *((r, f"rspdns-registrar@{r}") for r in REGISTRARS),
    ):
        site.paste(name, f"systemctl restart {unit}")
        if unit.startswith("rspdns-registrar"):
            site.until_settled(name)


def notify_secret(site: Site) -> str:
    (secret,) = re.findall(r'secret "(.*)"', (site["ns1"].root / "etc/rspdns/keys/notify.key").read_text())
    return str(secret)


def write_own_check(site: Site) -> None:
    """The reader's command."""
    site["as1"].write("/usr/local/bin/can-it-call", "#!/bin/sh\necho trunks are up\n")
    site.paste("as1", "chmod 755 /usr/local/bin/can-it-call")


def report_sessions(site: Site) -> None:
    """The reader's count, and the table of the page for it in the place of Kamailio's."""
    site["as1"].write("/usr/local/bin/active-sessions", "#!/bin/sh\necho 20\n")
    site.paste("as1", "chmod 755 /usr/local/bin/active-sessions")
    table = text_of("servers/report-load.md", "active-sessions")
    path = site["as1"].root / "etc/ppe-agent/agent.toml"
    path.write_text(re.sub(r"\[as\.load\].*?(?=\n\[|\Z)", table, path.read_text(), flags=re.S))


def bring_server_key(site: Site) -> None:
    site.copy("ns1", "/root/sip-1.key", "as1", "/root/sip-1.key")


def name_server_key(site: Site) -> None:
    key = text_of("servers/keyed-pools.md", "[[as]]").removeprefix("[[as]]\n")
    path = site["as1"].root / "etc/ppe-agent/agent.toml"
    path.write_text(path.read_text().replace("[[as]]\n", f"[[as]]\n{key}", 1))


def name_pool_key(site: Site) -> None:
    key = text_of("servers/keyed-pools.md", "[[pool]]").removeprefix("[[pool]]\n")
    path = site["ns1"].root / "etc/rspdns/zones.d/ims.example.net.toml"
    path.write_text(path.read_text().replace("[[pool]]\n", f"[[pool]]\n{key}", 1))


def restrict_agents(site: Site) -> None:
    """The entry of the servers in the inventory, as the page has it."""
    entry = text_of("registrars/gate.md", "[[agent]]")
    path = site["r1"].root / "root/inventory.toml"
    path.write_text(re.sub(r"\[\[agent\]\].*?\n(?=\n)", entry, path.read_text(), flags=re.S))


def bring_and_restart(site: Site) -> None:
    """The rendered files go to their hosts; the registrars are restarted, one after the other."""
    bring_rendered(site)
    for name in REGISTRARS:
        site.paste(name, f"systemctl restart rspdns-registrar@{name}")
        site.until_settled(name)


def replace_r2(site: Site) -> None:
    """r2 moves to another address, as the list of the page says."""
    old, new = HOSTS["r2"], "10.0.0.4"
    site.paste("ns1", "rspdns status")
    site.paste("r2", f"systemctl disable --now rspdns-registrar@r2; ip address add {new}/32 dev eth0")
    render = "rspdns-registrar render inventory.toml --output rendered"
    site.paste("r1", f"sed -i 's/{old}\\b/{new}/' inventory.toml; {render}")
    bring_rendered(site)
    for name in site.machines:
        site.paste(name, "systemctl reload-or-restart rspdns-filter")
    site.paste("r2", "systemctl enable --now rspdns-registrar@r2")
    site.until_settled("r2")
    site.paste("ns1", f"sed -i 's/{old}\\b/{new}/' /etc/rspdns/rspdns.toml; systemctl restart rspdns")
    for name in (name for name in site.machines if name.startswith("as")):
        site.paste(name, f"sed -i 's/{old}\\b/{new}/' /etc/ppe-agent/agent.toml; systemctl reload ppe-agent")


def sign_capable_ns2(site: Site) -> None:
    """Step 1 of the second name server."""
    site.paste("ns2", "rspdns pdns-conf --signed --listen 198.51.100.1 > /etc/powerdns/pdns.conf")
    site.paste("ns2", "systemctl restart pdns")


def bring_key(site: Site) -> None:
    site.copy("ns1", "/root/key", "ns2", "/root/key")


def bring_token(site: Site) -> None:
    site.copy("ns1", "/etc/rspdns/admin.pem", "client", "/root/admin.pem")
    site.copy("ns1", "/etc/rspdns/read-tokens", "client", "/root/token")


def name_job(site: Site) -> None:
    site["client"].write("/etc/prometheus/prometheus.yml", text_of("dns/prometheus.md", "job_name"))
    # In a chroot no user namespace can be made.
    drop_in = "/etc/systemd/system/prometheus.service.d/here.conf"
    site["client"].write(drop_in, "[Service]\nPrivateUsers=no\n")
    site.paste("client", "systemctl daemon-reload")


def serve_primary(site: Site) -> None:
    """BIND with the reader's zone, in which the pool is to appear."""
    zone = "$TTL 300\n@ SOA ns1 hostmaster 1 7200 900 1209600 1\n@ NS ns1\nns1 A 10.0.0.53\n"
    site["cache1"].write("/var/lib/bind/ims.example.net", zone)
    site.paste("cache1", "chown -R bind:bind /var/lib/bind; systemctl start named")


def bring_update_key(site: Site) -> None:
    site.copy("cache1", "/etc/bind/rspdns.key", "ns1", "/etc/rspdns/keys/primary.key")


def allow_transfers(site: Site) -> None:
    """The first step of the page."""
    site.paste(
        "ns1", "rspdns pdns-conf --axfr 192.0.2.0/24 > /etc/powerdns/pdns.conf; systemctl restart pdns"
    )


def bring_distributor_conf(site: Site) -> None:
    site.copy("ns1", "/root/named.conf", "distributor", "/etc/bind/named.conf")


def start_cell(site: Site) -> None:
    """The hosts of a cell and the upper registrars, by one file; a server in the cell."""
    site["r1"].write("/root/cells.toml", CELLS)
    site.paste("r1", "rspdns-registrar render cells.toml --output rendered")
    names = {name: f"eu1/{name}" for name in REGISTRARS} | {name: f"upper/{name}" for name in UPPER}
    for name, folder in names.items():
        for kind in ("env", "gate"):
            file = f"registrar-{name}.{kind}"
            site.copy("r1", f"/root/rendered/{folder}/{file}", name, f"/etc/rspdns/{file}")
    names |= {"as1": "eu1/servers", "gateway": "eu1/gateways", "ns1": "upper/upper-name-servers"}
    for name, folder in names.items():
        site.copy("r1", f"/root/rendered/{folder}/rspdns.nft", name, "/etc/rspdns/rspdns.nft")
    for name in (*REGISTRARS, *UPPER):
        site.paste(name, f"systemctl enable --now rspdns-registrar@{name}")
    start_kamailio(site)
    site.paste("as1", "systemctl enable --now ppe-agent")


def start_upper_name_server(site: Site) -> None:
    """A name server as any other, with the upper registrars and a master file."""
    registrars = [HOSTS[name] for name in UPPER]
    site["ns1"].write("/etc/rspdns/rspdns.toml", f"registrars = {json.dumps(registrars)}\n")
    fixed = f"$TTL 3600\n@ SOA ns1 hostmaster 1 7200 900 1209600 1\n@ NS ns1\nns1 A {HOSTS['ns1']}\n"
    site["ns1"].write("/etc/rspdns/zones.d/ims.example.net.zone", fixed)
    site.paste(
        "ns1",
        """
        cp /usr/local/share/doc/rspdns/examples/pdns.conf /etc/powerdns/pdns.conf
        systemctl enable --now rspdns
        systemctl restart pdns
        """,
    )


def order_sites(site: Site) -> None:
    """The pool's table in the zone's file, as the page has it, with a server at each site."""
    pool = text_of("dns/sites.md", "[[pool]]").replace("min_in = 2", "min_in = 1")
    for words, instead in (("10.1.0.0/16", f"{HOSTS['as1']}/32"), ("10.2.0.0/16", f"{HOSTS['as2']}/32")):
        pool = pool.replace(words, instead)
    path = site["ns1"].root / "etc/rspdns/zones.d/ims.example.net.toml"
    path.write_text(path.read_text().partition("[[pool]]")[0] + pool)


def write_tables(site: Site) -> None:
    """The tables that the reader has."""
    site["ns1"].write("/root/table.csv", "10.2.0.0/16,us,eu\n10.1.0.0/16,eu\n")
    site["ns1"].write("/root/countries.csv", "10.2.0.0/16,AU\n10.1.0.0/16,DE\n")


def text_of(page_path: str, words: str) -> str:
    """The first block of a page with these words."""
    return next(block.text for block in blocks(f"how-to/{page_path}") if words in block.text)


# --- looks at results


def targets(site: Site, name: str, server: str, owner: str = SRV) -> set[str]:
    """The targets of the SRV records that a name server or resolver answers."""
    said = site[name].run("dig", "+short", "+tries=1", "+time=2", f"@{server}", owner, "SRV")
    return set(re.findall(r"^\d+ \d+ \d+ (\S+)$", said, re.M))


def news_reach_a_client(site: Site) -> None:
    site.copy("ns1", "/etc/rspdns/news-ims.key", "client", "/root/news.key")
    watch = "rspdns watch sip-as-udp --from 192.0.2.1:8056 --key /root/news.key"
    site.paste("client", f"{watch} --exec 'cat > /root/told; kill $PPID' || test -s /root/told")


def gateway_guards(site: Site) -> None:
    site["client"].until(
        lambda: "gateway eth0: guarded" in site["client"].try_run("ppu-agent", "status").stdout
    )


def clear_overrides(site: Site) -> None:
    site.paste("ns1", "rspdns override clear --all")


def distributor_follows(site: Site) -> None:
    """It has the serial of PowerDNS, and a server that is stopped leaves it."""
    assert len(targets(site, "ns1", HOSTS["distributor"])) == 2
    site.paste("as1", "systemctl stop kamailio")
    site["ns1"].until(lambda: len(targets(site, "ns1", HOSTS["distributor"])) == 1)
    site.paste("as1", "systemctl start kamailio")


def upper_name_leads_to_the_cell(site: Site) -> None:
    site["ns1"].until(lambda: targets(site, "ns1", HOSTS["ns1"]) == {"as.eu1.ims.example.net."})


def prometheus_scrapes(site: Site) -> None:
    query = "http://127.0.0.1:9090/api/v1/query?query=rspdns_pool_members"
    site["client"].until(lambda: '"value"' in site["client"].try_run("curl", "-s", query).stdout)


THREE_REGISTRARS = Walk(
    "registrars/three-registrars.md",
    host="r1",
    hosts={"rspdns-registrar@r1": REGISTRARS},
    by_hand={"2. Render and copy": add_client, "3. Start": bring_rendered},
    left_out={"By hand": "another way"},
)
CONNECT_A_SERVER = Walk(
    "servers/connect-a-server.md",
    host=("as1", "as2"),
    by_hand={"ppe-agent check": start_kamailio},
    left_out=dict.fromkeys(
        ("OpenSIPS", "Asterisk", "FreeSWITCH, others", "Web service", "Over TLS"), "another server"
    ),
)
BASE = (THREE_REGISTRARS, CONNECT_A_SERVER)
ADD_A_ZONE = Walk(
    "dns/add-a-zone.md",
    host=("ns1", "ns2"),
    hosts={"rspdns zone add ims": "ns1"},
    by_hand={"rspdns reload": bring_zone},
    left_out={
        "dig as.ims.example.net": "no resolver is here",
        "dig _sip._udp.as.ims.example.net": "no resolver is here",
    },
)
ONE_NAME_SERVER = Walk(
    "dns/add-a-zone.md",
    hosts={"rspdns zone add ims": "ns1"},
    words={"--ns ns2=198.51.100.1 ": ""},
    left_out=ADD_A_ZONE.left_out,
)
BESIDE_POSTGRESQL = Walk("dns/beside-postgresql.md", by_hand={"": serve_postgresql})
TELL_RESOLVERS = Walk(
    "dns/tell-resolvers.md",
    hosts={
        "unbound-control-setup": "cache1",
        "/etc/unbound/unbound.conf.d/remote-control.conf": "cache1",
        "systemctl restart unbound": "cache1",
        "chgrp bind": "cache2",
        "at the end of /etc/bind/named.conf": "cache2",
        "systemctl reload named": "cache2",
    },
    by_hand={
        "": start_resolvers,
        "install -m 640 -g rspdns unbound_server.pem": bring_certificates,
        "chgrp bind": bring_rndc_key,
    },
)
MAINTAIN_A_SERVER = Walk(
    "dns/maintain-a-server.md",
    words={"10.20.0.11": "10.20.0.5", "10.20.0.12": "10.20.0.6", "10.20.0.13": "10.20.0.6"},
    left_out={"At every name server": "peers have certificates: tests/integration/test_peers.py"},
)
LOOK_BACK = Walk("dns/look-back.md", words={"10.20.0.11": "10.20.0.5"})
WATCH = Walk("dns/watch.md", by_hand={"curl": make_write_tokens})
UPGRADE = Walk("dns/upgrade-and-back-up.md", by_hand={"sqlite3": restart_everything})

SECONDARIES = Walk(
    "dns/secondaries.md",
    hosts={
        kind: host
        for host, kinds in {
            "bind": ("/etc/bind/named.conf", "systemctl restart named"),
            "nsd": ("/etc/nsd/nsd.conf", "systemctl restart nsd"),
            "knot": ("/etc/knot/knot.conf", "systemctl restart knot"),
        }.items()
        for kind in kinds
    },
    words={"secret: SECRET": lambda site: f"secret: {notify_secret(site)}"},
    left_out={
        "Many secondaries: a distributor": "walked by itself",
        "The distributor signs": "tests/integration/test_secondaries.py",
    },
)

PUBLISH = Walk(
    "dns/publish-by-dns-update.md",
    hosts={
        "tsig-keygen": "cache1",
        "at the end of /etc/bind/named.conf": "cache1",
        "systemctl reload named": "cache1",
        "/usr/local/sbin/withdraw-pools": "cache1",
    },
    by_hand={"": serve_primary, "chgrp rspdns /etc/rspdns/keys": bring_update_key},
    left_out={"pdnsutil": "PowerDNS as the primary: tests/integration/test_publish.py"},
)
SITES = Walk(
    "dns/sites.md",
    appended=("[[site]]",),
    words={
        "10.1.0.0/16": f"{HOSTS['as1']}/32",
        "10.2.0.0/16": f"{HOSTS['as2']}/32",
        "@NAMESERVER": f"@{HOSTS['ns1']}",
        " --everywhere": "",
    },
    by_hand={"rspdns check": order_sites, "rspdns near import": write_tables},
    ends=clear_overrides,
)
DISTRIBUTOR = Walk(
    "dns/secondaries.md",
    hosts={"systemctl restart named": "distributor"},
    by_hand={"": allow_transfers, "systemctl restart named": bring_distributor_conf},
    left_out={
        "Tell the secondaries": "walked before, on other hosts",
        "The distributor signs": "tests/integration/test_secondaries.py",
    },
    ends=distributor_follows,
)
NEWS = Walk(
    "dns/act-on-a-change.md",
    left_out={
        "Run a command": "runs until it is stopped: tests/integration/test_act_on_a_change.py",
        "When it runs": "the unit of a command that is below",
        "HAProxy": "tests/integration/test_act_on_a_change.py",
        "Kamailio": "the same",
        "rspdns watch": "runs until it is stopped",
        "DNS Push Notifications": "the same test",
        "Tell a web service": "its receiver is of the reader's: the same test",
        "A chat": "the same",
    },
    ends=news_reach_a_client,
)
NO_CALL_WAITS = Walk(
    "clients/no-call-waits.md", host="client", words={"ppu-agent check": "sctp-run ppu-agent check"}
)
ONE_ADDRESS = Walk(
    "clients/one-address.md", host="client", words={"ppu-agent check": "sctp-run ppu-agent check"}
)
GATEWAY = Walk(
    "clients/gateway.md",
    host="client",
    words={"eth1": "eth0", "/usr/share/doc/ppu-agent/examples": "/usr/local/share/doc/rspdns/examples"},
    left_out={"A bridge": "the hosts have none"},
    ends=gateway_guards,
)
MAINTENANCE = Walk(
    "servers/maintenance.md",
    host="as1",
    left_out={"Gone for good": "the server stays: tests/integration/test_admin.py"},
    words={
        "asterisk -rx 'core show channels count'": "ppe-agent status",
        "systemctl restart asterisk": "systemctl restart kamailio",
    },
)
OWN_CHECK = Walk("servers/own-check.md", host="as1", appended=("can-it-call",), by_hand={"": write_own_check})
REPORT_LOAD = Walk(
    "servers/report-load.md",
    host="as1",
    hosts={"rspdns status": "as1"},
    words={"rspdns status ": "true "},
    by_hand={"ppe-agent check": report_sessions},
)
KEYED_POOLS = Walk(
    "servers/keyed-pools.md",
    hosts={"install -m 640 -g ppe-agent": "as1", "systemctl reload ppe-agent": "as1"},
    by_hand={
        "install -m 640 -g ppe-agent": bring_server_key,
        "systemctl reload ppe-agent": name_server_key,
        "rspdns reload": name_pool_key,
    },
)
PROTECT = Walk("registrars/protect.md", host=REGISTRARS)
GATE = Walk(
    "registrars/gate.md",
    host="r1",
    words={"rspdns-registrar status": "sctp-run rspdns-registrar status"},
    by_hand={"": restrict_agents, "See what it drops": bring_and_restart},
    left_out={"rspdns-lab bench": "measures"},
)
REPLACE = Walk("registrars/replace.md", host=REGISTRARS, by_hand={"": replace_r2})
SIGN = Walk(
    "dns/sign.md",
    host="ns1",
    hosts={
        "pdnsutil import-zone-key": "ns2",
    },
    by_hand={"pdnsutil export-zone-key": sign_capable_ns2, "pdnsutil import-zone-key": bring_key},
)
PROMETHEUS = Walk(
    "dns/prometheus.md",
    appended=("[admin]",),
    hosts={"2. On Prometheus's host": "client"},
    by_hand={"2. On Prometheus's host": bring_token, "promtool": name_job},
    ends=prometheus_scrapes,
)
FAST_PATH = Walk(
    "dns/answers-from-the-kernel.md",
    appended=("[fastpath]",),
    words={" --address 2001:db8::1": ""},
    left_out={"rspdns-fastpath trace": "runs until it is stopped"},
)
WHY_NOT = Walk(
    "why-not-in-dns.md",
    hosts={"3. Is it the sidecar?": "as1"},
    words={"10.20.0.7": "10.20.0.5"},
    left_out={"dig @RESOLVER": "no resolver is here"},
)
CELL_GATEWAY = Walk(
    "registrars/cell-gateways.md",
    host="gateway",
    appended=("ns.eu1",),
    hosts={"The upper zone": "ns1"},
    others=(*REGISTRARS, *UPPER, "as1"),
    words={
        **{f'"10.1.0.1{number}"': f'"10.0.0.{number}"' for number in (1, 2, 3)},
        'accept = ["10.1.0.0/16"]': f'accept = ["{SUBNET}"]',
    },
    by_hand={"": start_cell, "The upper zone": start_upper_name_server},
    ends=upper_name_leads_to_the_cell,
)
INSTALL = Walk(
    "install.md",
    host=REGISTRARS,
    hosts={"A name server": "ns1", "Beside an application server": "as1"},
    by_hand={"Beside an application server": start_servers},
    left_out={
        "editor ": "the examples have the addresses of this page",
        "Every host, by packages": "packages: make test-packages",
        "Beside a client": "the example of an inventory has none: clients/no-call-waits.md",
    },
)
TWO_NAME_SERVERS = Walk("dns/two-name-servers.md", host=("ns1", "ns2"), words={"KEY": "c2VjcmV0c2VjcmV0"})
REVERSE_PROXIES = Walk(
    "clients/reverse-proxies.md",
    host=("as1", "as2"),
    hosts={"/etc/ppu-agent/ppu-agent.toml": "client", "ppu-agent check": "client"},
    words={"ppu-agent check": "sctp-run ppu-agent check"},
    by_hand={"": start_web_servers},
)
ONE_SERVER = replace(CONNECT_A_SERVER, host="as1")

JOURNEYS: Mapping[str, tuple[Walk, ...]] = {
    "powerdns with sql": (
        *BASE,
        BESIDE_POSTGRESQL,
        TELL_RESOLVERS,
        MAINTAIN_A_SERVER,
        LOOK_BACK,
        WATCH,
        UPGRADE,
    ),
    "two name servers": (*BASE, ADD_A_ZONE, SIGN, TWO_NAME_SERVERS),
    "secondaries": (*BASE, ONE_NAME_SERVER, SECONDARIES),
    "distributor": (*BASE, ONE_NAME_SERVER, DISTRIBUTOR),
    "publish": (*BASE, ONE_NAME_SERVER, PUBLISH, SITES),
    "sip servers": (
        THREE_REGISTRARS,
        ONE_SERVER,
        ONE_NAME_SERVER,
        WHY_NOT,
        MAINTENANCE,
        OWN_CHECK,
        REPORT_LOAD,
        KEYED_POOLS,
    ),
    "s-cscf": (*BASE, NO_CALL_WAITS, ONE_ADDRESS, GATEWAY),
    "registrars": (*BASE, ONE_NAME_SERVER, PROTECT, GATE, REPLACE),
    "a cell": (CELL_GATEWAY,),
    "installed": (INSTALL,),
    "web": (THREE_REGISTRARS, REVERSE_PROXIES),
    "watched": (*BASE, ONE_NAME_SERVER, NEWS, PROMETHEUS, FAST_PATH),
}
NOT_WALKED: Mapping[str, str] = {
    "before-production.md": "a list without commands of its own",
    "clients/discover-servers.md": "its lines run in rspdns-lab discover, with a pool of 40",
    "clients/voice-through-firewalls.md": "a lab of its own: tests/integration/test_voip.py",
    "clients/web-servers.md": "a pool's table, which tests/integration/test_svcb.py serves",
    "clients/which-mechanism.md": "a table without commands",
    "congested-uplink.md": "needs cake or HTB, and a full uplink: rspdns-lab uplink runs its lines",
    "containers.md": "needs podman and images: make test-images",
    "dns/anycast.md": "needs routers: tests/integration/test_anycast.py runs bird and exabgp with its lines",
    "dns/cells.md": "needs registrars of two cells: tests/integration/test_handlespaces.py",
    "dns/connect-resolvers.md": "settings to leave or to change, and a loop without end",
    "dns/migrate.md": "stages, each with a page of its own",
    "dns/try-beside.md": "needs gdnsd, Consul or LUA records of the reader: tests/backend imports them",
    "dns/verify-members.md": "a key of the zone's file: tests/integration/test_verify.py",
    "dns/withstand-floods.md": "dnsdist is not among the test's packages",
    "faq.md": "answers that lead to other pages",
    "install-with-ansible.md": "needs Ansible: make test-ansible",
    "kubernetes.md": "needs a cluster",
    "registrars/wireguard.md": "needs WireGuard in the kernel: tests/integration/test_wireguard.py",
    "servers/remote.md": "needs a server without a sidecar: tests/integration/test_agent_remote.py",
    "servers/stateful-servers.md": "tables of two pools: tests/integration/test_admin.py and test_sites.py",
    "tcp-over-sctp.md": "needs two networks: sctp-userland's tests and rspdns-lab shim",
    "without-sctp.md": "every walk stands on it; its own commands run until they are stopped",
}
"""Pages that are not walked, with the reason."""
