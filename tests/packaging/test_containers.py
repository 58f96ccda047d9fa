"""Compose file and Kubernetes manifests: valid, of one mind with the images. packaging/trial runs them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from ppe_agent.configuration import load_configuration as load_agent
from registrar_config import KERNEL_TIMERS_MS, SCTPD_OPTIONS, check_rules

from tests.support.namespaces import REPOSITORY

COMPOSE = REPOSITORY / "packaging" / "compose"
KUBERNETES = REPOSITORY / "packaging" / "kubernetes"
IMAGES = REPOSITORY / "packaging" / "images"
CONTAINERFILE = (IMAGES / "Containerfile").read_text()
USER = 10053
SERVICES = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
OLDEST, NEWEST = "1.29", "1.37"
"""The versions of Kubernetes: 1.29 is the first that has sidecars by default."""


def documents(file: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return [document for document in yaml.safe_load_all((KUBERNETES / file).read_text()) if document]


def manifests() -> list[dict[str, Any]]:
    listed = yaml.safe_load((KUBERNETES / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {path.name for path in KUBERNETES.glob("*.yaml")} - {"kustomization.yaml"}
    return [document for file in listed for document in documents(file)]


def patched(objects: list[dict[str, Any]], component: str) -> list[dict[str, Any]]:
    """Return the objects as a component changes them: its JSON patches (add, replace), applied."""
    objects = deepcopy(objects)
    for patch in yaml.safe_load((KUBERNETES / component / "kustomization.yaml").read_text())["patches"]:
        target = patch["target"]
        chosen = [document for document in objects if is_meant(document, target)]
        assert chosen, f"{component}: nothing is {target}"
        for document in chosen:
            for step in yaml.safe_load(patch["patch"]):
                apply(document, step)
    return objects


def is_meant(document: dict[str, Any], target: Mapping[str, str]) -> bool:
    key, _, value = target.get("labelSelector", "").partition("=")
    return (
        target.get("kind", document["kind"]) == document["kind"]
        and target.get("name", document["metadata"]["name"]) == document["metadata"]["name"]
        and document["apiVersion"].startswith(target.get("group", ""))
        and (not key or document["metadata"].get("labels", {}).get(key) == value)
    )


def apply(to: Any, step: Mapping[str, Any]) -> None:
    *path, last = [part.replace("~1", "/") for part in step["path"].split("/")[1:]]
    for part in path:
        to = to[part]
    if isinstance(to, list):
        assert step["op"] == "add"
        to.insert(int(last), step["value"])
    else:
        assert (last in to) == (step["op"] == "replace"), step["path"]
        to[last] = deepcopy(step["value"])


def pods(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in objects:
        if template := document.get("spec", {}).get("template"):
            yield document["metadata"]["name"], template["spec"]


def containers(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        container
        for _, pod in pods(objects)
        for container in (*pod.get("initContainers", []), *pod["containers"])
    ]


VARIANTS = {
    "as they are": manifests(),
    "userland-sctp": patched(manifests(), "userland-sctp"),
    "kernel-timers": patched(manifests(), "kernel-timers"),
}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("variant", VARIANTS)
def test_manifests_are_valid(variant: str, version: str) -> None:
    for document in VARIANTS[variant]:
        kubernetes_validate.validate(document, version, strict=True)


def test_compose_file_is_valid() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "check_jsonschema",
            "--builtin-schema",
            "vendor.compose-spec",
            COMPOSE / "compose.yaml",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("variant", VARIANTS)
def test_containers_have_no_more_rights_than_they_need(variant: str) -> None:
    for name, pod in pods(VARIANTS[variant]):
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["automountServiceAccountToken"] is False, name
    for container in containers(VARIANTS[variant]):
        context, is_sctpd = container["securityContext"], container["name"] == "sctpd"
        assert context["readOnlyRootFilesystem"], container["name"]
        assert context["allowPrivilegeEscalation"] is is_sctpd, container["name"]
        assert context["capabilities"] == {"drop": ["ALL"]} | ({"add": ["NET_RAW"]} if is_sctpd else {}), (
            container["name"]
        )
        ends = container["name"] in ("gate", "key")
        assert (
            ends or container["name"] == "kamailio" or {"livenessProbe", "readinessProbe"} & set(container)
        ), container["name"]


def test_sctpd_is_there_before_all_others_with_the_timers_that_registrars_need() -> None:
    changed = dict(pods(VARIANTS["userland-sctp"]))
    assert set(changed) == {"registrar", "name-server", "kamailio"}
    for pod in changed.values():
        first = pod["initContainers"][0]
        assert (first["name"], first["restartPolicy"]) == ("sctpd", "Always")
        assert first["args"] == ["sctpd", *SCTPD_OPTIONS.split()]
    assert f'SCTPD_OPTIONS="{SCTPD_OPTIONS}"' in CONTAINERFILE
    for _, pod in pods(VARIANTS["kernel-timers"]):
        timers = {sysctl["name"]: int(sysctl["value"]) for sysctl in pod["securityContext"]["sysctls"]}
        assert timers == {f"net.sctp.{name}": value for name, value in KERNEL_TIMERS_MS.items()}


def test_images_are_those_that_are_built_and_run_as_the_user_of_the_manifests() -> None:
    built = set(re.findall(r"^FROM common AS (\S+)", CONTAINERFILE, re.MULTILINE))
    script = (REPOSITORY / "packaging/images/build.sh").read_text()
    assert [set(names.split()) for names in re.findall(r"^names=\((.*)\)$", script, re.MULTILINE)] == [built]
    compose = SERVICES.values()
    used = {
        container["image"].removeprefix("localhost/").partition(":")[0]
        for container in containers(VARIANTS["userland-sctp"])
    }
    assert used - {"kamailio"} <= built
    taken = {container["image"] for container in containers(VARIANTS["userland-sctp"])}
    assert all(image.startswith("localhost/") for image in taken), "a public image by tag can change"
    assert {re.sub(r"\$\{[^}]*\}", "", service["image"]).strip("/:") for service in compose} <= built
    assert set(re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE)) == {f"{USER}:{USER}"}


def test_every_part_has_a_user_of_its_own() -> None:
    users: dict[str, int] = {}
    for variant in VARIANTS.values():
        for name, pod in pods(variant):
            common = pod["securityContext"]
            assert common["runAsGroup"] == common["fsGroup"], (
                f"{name}: what it may write belongs to this group"
            )
            for container in (*pod.get("initContainers", []), *pod["containers"]):
                user = container["securityContext"].get("runAsUser", common["runAsUser"])
                if container["name"] in ("gate", "key"):
                    assert user == common["runAsUser"]
                elif container["name"] == "sctpd":
                    assert user == users[{"name-server": "backend", "kamailio": "ppe-agent"}.get(name, name)]
                else:
                    assert users.setdefault(container["name"], user) == user > 0, container["name"]
    assert set(users) == {"registrar", "backend", "powerdns", "kamailio", "ppe-agent"}
    assert len(set(users.values())) == len(users), users
    [powerdns] = [
        container for container in containers(VARIANTS["as they are"]) if container["name"] == "powerdns"
    ]
    assert f"--setgid={USER}" in powerdns["args"], "else the backend may not purge at the control socket"
    assert users["backend"] == USER, "it owns what volumes of earlier versions hold"


def test_every_service_of_compose_has_the_user_of_its_part() -> None:
    parts = {
        "registrar1": "10055:10053",
        "ns1-backend": "10053:10053",
        "ns1": "10054:10053",
        "web1-sidecar": "10056:10053",
        "web1": "10057:10057",
        "web1-network": "10058:10058",
        "prepare": "0:10053",
    }
    for name, user in parts.items():
        for service in {name, name.replace("1", "2")}:
            assert SERVICES[service]["user"] == user, service
    assert f"--setgid={USER}" in SERVICES["ns1"]["command"], "else the backend may not purge"
    assert SERVICES["prepare"]["cap_drop"] == ["ALL"]
    assert SERVICES["prepare"]["network_mode"] == "none"


def test_every_service_that_another_needs_runs_on() -> None:
    """podman starts no container again whose dependency has ended: a killed registrar had stayed away."""
    needed = {name for service in SERVICES.values() for name in service.get("depends_on", ())}
    assert needed >= {"ns1-network", "ns1-backend", "web1-network"}
    assert [name for name in sorted(needed) if SERVICES[name].get("restart") != "unless-stopped"] == []


def test_only_name_servers_hold_the_key_of_the_pool_in_compose() -> None:
    def volumes(service: str) -> set[str]:
        return {mount.partition(":")[0] for mount in SERVICES[service].get("volumes", ())}

    holders = {name for name in SERVICES if "pool-key" in volumes(name)}
    assert holders == {"prepare", "ns1-backend", "ns2-backend"}
    assert {name for name in SERVICES if "web1-key" in volumes(name)} == {"prepare", "web1-sidecar"}
    assert {name for name in SERVICES if "gate" in volumes(name)} == {
        "prepare",
        *("registrar1", "registrar2", "registrar3"),
    }


def test_only_the_container_that_derives_keys_has_the_key_of_the_pool_in_a_servers_pod() -> None:
    [pod] = [pod for name, pod in pods(VARIANTS["as they are"]) if name == "kamailio"]
    [secret] = [volume["name"] for volume in pod["volumes"] if "secret" in volume]
    holders = [
        container["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        if secret in {mount["name"] for mount in container["volumeMounts"]}
    ]
    assert holders == ["key"]


def pinned(folder: Path, root: Path) -> str:
    """Return what pinned.sh of the folder says of the root."""
    done = subprocess.run(
        ["sh", folder / "pinned.sh", root], capture_output=True, text=True, timeout=60, check=False
    )
    assert bool(done.stderr) == bool(done.returncode), done.stderr
    return done.stderr


def test_image_is_made_from_the_pinned_state_of_debian_only(tmp_path: Path) -> None:
    folder = shutil.copytree(IMAGES, tmp_path / "images")
    lists = tmp_path / "root/var/lib/apt/lists"
    lists.mkdir(parents=True)
    assert "no InRelease" in pinned(folder, tmp_path / "root")
    release = lists / "deb.debian.org_debian_dists_trixie_InRelease"
    release.write_text("Version: 13.8\n")
    [(suite, *_, digest)] = [
        line.split() for line in (folder / "debian.pin").read_text().splitlines() if line[0] != "#"
    ]
    assert (suite, len(bytes.fromhex(digest))) == ("trixie", 32)
    assert f"not {digest}" in pinned(folder, tmp_path / "root")
    pin = (folder / "debian.pin").read_text().replace(digest, sha256(release.read_bytes()).hexdigest())
    (folder / "debian.pin").write_text(pin)
    assert pinned(folder, tmp_path / "root") == ""


def test_recipe_looks_at_the_pin_before_it_takes_anything() -> None:
    base = [line for line in CONTAINERFILE.splitlines() if line.startswith(("FROM ", "ARG BASE"))]
    assert base[:2] == ["ARG BASE", "FROM ${BASE} AS common"], "no base unless one is given"
    assert all(line.startswith("FROM common AS ") for line in base[2:])
    for script, before, after in (
        ("install.sh", "apt-get -qq update\n", "apt-get -qq install"),
        ("build.sh", "root=$(", "podman build"),
    ):
        text = (IMAGES / script).read_text()
        assert text.index(before) < text.index("pinned.sh ") < text.index(after), script


def maps() -> dict[str, dict[str, str]]:
    return {
        document["metadata"]["name"]: document["data"]
        for document in VARIANTS["as they are"]
        if document["kind"] == "ConfigMap"
    }


def environment(container: Mapping[str, Any], name: str) -> str:
    [value] = [each["value"] for each in container["env"] if each["name"] == name]
    return str(value)


def test_registrars_are_the_same_everywhere_in_the_same_order() -> None:
    [registrar] = [
        container for container in containers(VARIANTS["as they are"]) if container["name"] == "registrar"
    ]
    addresses = environment(registrar, "RSPDNS_REGISTRARS").split(",")
    told = [
        tomllib.loads(maps()["name-server"]["rspdns.toml"]),
        tomllib.loads(maps()["kamailio"]["agent.toml"]),
    ]
    assert [configuration["registrars"] for configuration in told] == [addresses, addresses]

    registrars = [service for name, service in SERVICES.items() if name.startswith("registrar")]
    given = [service["networks"]["pools"]["ipv4_address"] for service in registrars]
    for service, own in zip(registrars, given, strict=True):
        listed = service["environment"]["RSPDNS_REGISTRARS"].split(",")
        assert (listed, service["environment"]["RSPDNS_REGISTRAR_ADDRESS"]) == (given, own)
    for file in ("rspdns.toml", "agent.toml"):
        assert tomllib.loads((COMPOSE / file).read_text())["registrars"] == given


@pytest.fixture(params=["compose", "kubernetes"])
def configuration(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with configuration files, keys and the rules of the gate, as the containers get them."""
    if request.param == "compose":
        shutil.copytree(COMPOSE, tmp_path, dirs_exist_ok=True)
        script = SERVICES["prepare"]["command"][-1]
        moved = {"/etc/rspdns/keys": "keys", "/etc/ppe-agent/keys": "run/web1-key"}
    else:
        [server] = [pod for name, pod in pods(VARIANTS["as they are"]) if name == "name-server"]
        for item in server["volumes"][0]["configMap"]["items"]:
            path = tmp_path / item["path"]
            path.parent.mkdir(exist_ok=True)
            path.write_text(maps()["name-server"][item["key"]])
        (tmp_path / "agent.toml").write_text(maps()["kamailio"]["agent.toml"])
        (tmp_path / "inventory.toml").write_text(maps()["registrar"]["inventory.toml"])
        commands = [
            [word.replace("$(POD_IP)", "10.244.1.1") for word in container["command"]]
            for container in containers(VARIANTS["as they are"])
            if container["name"] in ("gate", "key")
        ]
        script = "\n".join(map(shlex.join, [["rspdns", "key", "new", "/run/keys/sip.key"], *commands]))
        moved = {"/etc/rspdns/inventory.toml": "inventory.toml", "/run/keys": "keys"}
    moved |= {"/etc/inventory.toml": "inventory.toml", "/run/": "run/"}

    def here(text: str) -> str:
        paths = "|".join(map(re.escape, moved))
        return re.sub(paths, lambda path: f"{tmp_path}/{moved[path[0]]}", text)

    for folder in ("keys", "run/gate", "run/key", "run/web1-key", "run/web2-key"):
        (tmp_path / folder).mkdir(parents=True)
    commands_of_ours = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", here(script)],
        env={**os.environ, "PATH": commands_of_ours},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for file in (tmp_path / "agent.toml", *tmp_path.glob("zones.d/*.toml")):
        file.write_text(here(file.read_text()))
    return tmp_path


def test_configuration_is_accepted(configuration: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "rspdns.entry",
            "rspdns",
            "check",
            "--offline",
            "-c",
            configuration / "rspdns.toml",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    agent = load_agent(configuration / "agent.toml")
    zone = next(configuration.glob("zones.d/*.toml")).read_text()
    assert [f'handle = "{server.handle}"' in zone for server in agent.servers] == [True]
    [server] = agent.servers
    assert server.key is not None
    assert f'key = "{configuration}/keys/' in zone
    named = {
        service["environment"]["RSPDNS_REGISTRAR_GATE"]
        for service in SERVICES.values()
        if "environment" in service
    }
    named |= {
        environment(container, "RSPDNS_REGISTRAR_GATE")
        for container in containers(VARIANTS["as they are"])
        if container["name"] == "registrar"
    }
    rules = [*configuration.glob("run/gate/*/*.gate")]
    assert {str(path.relative_to(configuration)) for path in rules} & {path.lstrip("/") for path in named}
    for path in rules:
        check_rules(path)
        assert f"handles {server.handle} " in path.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="Debian's kamailio is not in an ordinary user's PATH")
def test_kamailio_takes_its_configuration(tmp_path: Path) -> None:
    (tmp_path / "kamailio.cfg").write_text(maps()["kamailio"]["kamailio.cfg"])
    done = subprocess.run(
        ["kamailio", "-c", "-f", tmp_path / "kamailio.cfg"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


POLICIES = {
    document["metadata"]["name"]: document["spec"]
    for document in VARIANTS["as they are"]
    if document["kind"] == "NetworkPolicy"
}
LABELS = {
    document["metadata"]["name"]: document["spec"]["template"]["metadata"]["labels"]
    for document in VARIANTS["as they are"]
    if "template" in document.get("spec", {})
}


def rules(direction: str, peers: str, pod: str) -> set[tuple[str, str, int | None]]:
    """Return the peers, protocols and ports (None: all) that a pod's policy allows in this direction."""
    numbers = {
        port["name"]: port["containerPort"]
        for container in containers(VARIANTS["as they are"])
        for port in container.get("ports", [])
    }
    return {
        (name, port["protocol"], numbers.get(port.get("port"), port.get("port")))
        for rule in POLICIES[pod][direction]
        for port in rule["ports"]
        for name in ("everyone", *LABELS)
        if peers not in rule or any(chosen(peer, name) for peer in rule[peers])
    }


def chosen(peer: Mapping[str, Any], name: str) -> bool:
    selected: dict[str, str] = peer["podSelector"]["matchLabels"]
    labels: dict[str, str] = LABELS.get(name, {})
    return selected.items() <= labels.items()


def test_network_policies_let_in_whom_the_packet_filter_lets_in() -> None:
    assert POLICIES["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}, "other pods"
    for name in LABELS:
        assert POLICIES[name]["podSelector"]["matchLabels"].items() <= LABELS[name].items()
        assert set(POLICIES[name]["policyTypes"]) == {"Ingress", "Egress"}

    def admitted(to: str, port: int | None) -> set[str]:
        """The senders that may send SCTP to this port (None: to every port)."""
        return {name for name, *where in rules("ingress", "from", to) if where == ["SCTP", port]}

    assert admitted("registrar", 3863) == {"kamailio", "name-server"}
    assert admitted("registrar", 9901) == {"registrar", "name-server"}
    assert admitted("registrar", None) == set()
    assert admitted("name-server", None) == admitted("kamailio", None) == {"registrar"}


def test_pods_may_send_what_the_others_let_in_and_nothing_else() -> None:
    sent = {name: rules("egress", "to", name) for name in LABELS}
    assert sent["kamailio"] == {("registrar", "SCTP", 3863)}
    assert sent["name-server"] == {
        ("registrar", "SCTP", 3863),
        ("registrar", "SCTP", 9901),
        *(("kamailio", protocol, 5060) for protocol in ("UDP", "TCP")),  # probes
    }
    assert sent["registrar"] == {
        ("registrar", "SCTP", 9901),
        *((name, "SCTP", None) for name in ("kamailio", "name-server")),
    }
    for sender in LABELS:
        for receiver, protocol, port in sent[sender]:
            assert (sender, protocol, port) in rules("ingress", "from", receiver), (sender, receiver)
    for receiver in LABELS:
        for sender, protocol, port in rules("ingress", "from", receiver):
            if protocol == "SCTP":
                assert (receiver, protocol, port) in sent[sender], (sender, receiver)


def test_name_servers_may_probe_where_the_members_are() -> None:
    served = tomllib.loads(maps()["kamailio"]["agent.toml"])["as"]
    ports = {port for name, protocol, port in rules("egress", "to", "name-server") if protocol != "SCTP"}
    assert ports == {server["port"] for server in served}
