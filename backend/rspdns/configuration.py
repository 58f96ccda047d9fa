"""The backend's configuration file `rspdns.toml`, key by key, and the zones it leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from daemon_kit.addresses import ListenAddress
from daemon_kit.config_file import (
    ConfigurationError,
    ConfigurationErrors,
    StrictModel,
    TomlDocument,
    duplicates,
    find,
    parse,
    read_text,
)
from daemon_kit.files import PathText, check_path
from pool_user import (
    Handlespace,
    HandlespaceConfig,
    Network,
    PoolRules,
    RegistrarTexts,
    handlespace_problems,
    handlespaces_of,
)
from pydantic import AfterValidator, Field, PrivateAttr

from rserpool import RegistrarAddress
from rspdns.admin import configuration as admin_configuration
from rspdns.admin.access import Access, read_access
from rspdns.admin.configuration import OFF, AdminConfig
from rspdns.fastpath import FastPathConfig
from rspdns.hooks.configuration import HookConfig, read_key
from rspdns.hooks.configuration import problems as hook_problems
from rspdns.news.configuration import NewsConfig
from rspdns.news.configuration import problems as news_problems
from rspdns.peers.configuration import PeerConfig, read_token
from rspdns.peers.configuration import problems as peer_problems
from rspdns.publish.configuration import PublishConfig, unknown_zone
from rspdns.publish.configuration import problems as publish_problems
from rspdns.publish.configuration import read_key as read_tsig_key
from rspdns.resolvers.configuration import ResolverConfig
from rspdns.resolvers.configuration import problems as resolver_problems
from rspdns.secondaries.configuration import SecondaryConfig, read_tsig, unknown_zones
from rspdns.secondaries.configuration import problems as secondary_problems
from rspdns.zones.configuration import PoolConfig, ZoneConfig
from rspdns.zones.loading import Progress, load_zones, where_named
from rspdns.zones.sites import SiteConfig, SiteName, Sites
from rspdns.zones.sites import problems as site_problems
from rspdns.zones.zone import Zone

__all__ = ["AdminConfig", "BackendConfig", "PoolConfig", "ZoneConfig", "load_configuration"]


def _connector(value: str) -> str:
    kind, _, address = value.partition(":")
    if kind == "unix" and address.startswith("/"):
        check_path(address)
        return value
    if kind == "http":
        if not ListenAddress.parse(address).is_loopback:
            raise ValueError("whoever reaches the connector may ask it: it must be at a loopback address")
        return value
    raise ValueError('must be "unix:/path/of/socket" or "http:127.0.0.1:8053"')


DEFAULT_PATH = Path("/etc/rspdns/rspdns.toml")
ZONES_DIR = "zones.d"


class PdnsConfig(StrictModel):
    """The PowerDNS instances this backend serves."""

    connector: Annotated[str, AfterValidator(_connector)] = "unix:/run/rspdns/remote.sock"
    """The address at which PowerDNS asks: `unix:/path/of/socket`, or `http:127.0.0.1:8053`."""
    control: tuple[PathText, ...] = ("/run/pdns/pdns.controlsocket",)
    """PowerDNS's control sockets. Names whose answers changed are purged at each."""


class StateConfig(StrictModel):
    """The state that outlives a restart."""

    path: PathText = "/var/lib/rspdns"
    """The directory for the last good members, the serial numbers, keys, the servers that were in, and the
    journal."""
    history_days: Annotated[float, Field(gt=0, le=3650)] = 90.0
    """How long the journal keeps changes for `rspdns report`; of more than 500,000 the oldest are dropped."""


class BackendConfig(StrictModel):
    """The file `rspdns.toml`; `zones` are those of its zones directory."""

    registrars: RegistrarTexts | None = None
    """IP addresses; `10.0.0.1:3864/9902` where the ports are not 3863 and 9901. The position in the list is
    the number of the registrar, so the order is the same on every host. With several handlespaces, each
    `[[handlespace]]` has its own instead."""
    named_handlespaces: tuple[HandlespaceConfig, ...] = Field(default=(), alias="handlespace")
    follow: Literal["enrp", "poll"] = "enrp"
    """How registrars are followed: as a peer that they push changes to, or by asking alone."""
    pdns: PdnsConfig = PdnsConfig()
    admin: AdminConfig = AdminConfig()
    state: StateConfig = StateConfig()
    fastpath: FastPathConfig = FastPathConfig()
    hooks: tuple[HookConfig, ...] = Field(default=(), alias="hook")
    peers: tuple[PeerConfig, ...] = Field(default=(), alias="peer")
    resolvers: tuple[ResolverConfig, ...] = Field(default=(), alias="resolver")
    secondaries: tuple[SecondaryConfig, ...] = Field(default=(), alias="secondary")
    publications: tuple[PublishConfig, ...] = Field(default=(), alias="publish")
    news: NewsConfig | None = None
    sites: tuple[SiteConfig, ...] = Field(default=(), alias="site")
    own_site: SiteName | None = None
    """The site of this name server, for pools with `order = "own-first"`."""
    zones_dir: PathText = ZONES_DIR
    """Directory of the zones; relative to this file."""
    max_stale_s: Annotated[float, Field(gt=0)] = 3600.0
    """How long the last view is served without any registrar; SERVFAIL after that."""
    poll_hot_ms: Annotated[int, Field(ge=10, le=60_000)] = 50
    """Time between two handle resolutions of a pool that was looked up lately."""
    poll_hot_for_s: Annotated[float, Field(ge=0)] = 60.0
    """How long after a look-up a pool counts as looked up lately."""
    poll_idle_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time between two handle resolutions of every other pool."""
    resolve_timeout_ms: Annotated[int, Field(ge=50, le=10_000)] = 300
    """How long a registrar has to answer a handle resolution."""
    probes_per_s: Annotated[int, Field(ge=1, le=10_000)] = 1000
    """The most probes of members that the backend sends a second, for all pools together."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least level that is logged."""
    _zones: tuple[Zone, ...] = PrivateAttr(default=())
    _access: Access = PrivateAttr(default_factory=Access)
    _page_errors: tuple[ConfigurationError, ...] = PrivateAttr(default=())

    @classmethod
    def document_problems(cls, document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield what is wrong between keys: a registrar or control socket named twice."""
        yield from handlespace_problems(document)
        if document.get("follow", "enrp") == "enrp":
            yield from _same_enrp_port_twice(document)
        yield from duplicates(document, ("pdns", "control", "*"))
        yield from admin_configuration.problems(document)
        yield from hook_problems(document)
        yield from peer_problems(document)
        yield from resolver_problems(document)
        yield from secondary_problems(document)
        yield from publish_problems(document)
        yield from news_problems(document)
        yield from site_problems(document)

    @property
    def zones(self) -> tuple[Zone, ...]:
        """The zones with their static records, sorted by name; set by `load_configuration()`."""
        return self._zones

    @property
    def access(self) -> Access:
        """The rights to use the admin API; set by `load_configuration()`."""
        return self._access

    @property
    def page_errors(self) -> tuple[ConfigurationError, ...]:
        """Errors in [admin] and in its files, which switch off live page, API and metrics, never DNS."""
        return self._page_errors

    def with_files(
        self,
        zones: tuple[Zone, ...],
        access: Access,
        page_errors: Sequence[ConfigurationError] = (),
        other: BackendConfig | None = None,
    ) -> BackendConfig:
        """The same configuration with these zones, tokens, certificate, errors of these, and the hooks,
        peers, resolvers, secondaries and publications of `other`."""
        update = {key: getattr(other, key) for key in _READ_ANEW} if other else {}
        if other is not None:  # those that stay have other registrars only after a restart
            kept = {handlespace.name: handlespace for handlespace in self.named_handlespaces}
            update["named_handlespaces"] = tuple(
                kept.get(handlespace.name, handlespace) for handlespace in other.named_handlespaces
            )
        copy = self.model_copy(update=update)
        copy._zones = zones
        copy._access = access
        copy._page_errors = tuple(page_errors)
        return copy

    @property
    def handlespaces(self) -> tuple[Handlespace, ...]:
        """The handlespaces, each with its registrars: at least one."""
        return handlespaces_of(self.registrars, self.named_handlespaces)

    @property
    def all_registrars(self) -> tuple[str, ...]:
        """The registrars of all handlespaces."""
        return tuple(text for handlespace in self.handlespaces for text in handlespace.registrars)

    @property
    def pool_rules(self) -> Mapping[str, PoolRules]:
        """The rules of the belief for every pool handle of every zone."""
        return {
            handle: PoolRules(
                pool.config.accept,
                pool.config.verify is not None,
                pool.config.max_members,
                frozenset(pool.config.remote_agents),
                keys=pool.config.key.keys if pool.config.key is not None else (),
            )
            for zone in self.zones
            for site in zone.sites
            for pool in site.pools
            for handle in pool.config.shards
        }

    @property
    def accept_by_handle(self) -> Mapping[str, tuple[Network, ...]]:
        """Every pool handle of every zone, with the networks its PEs must be in."""
        return {
            handle: pool.config.accept
            for zone in self.zones
            for site in zone.sites
            for pool in site.pools
            for handle in pool.config.shards
        }


_READ_ANEW = ("hooks", "peers", "resolvers", "secondaries", "publications", "news", "sites", "own_site")
"""The keys, beside zones and [admin]'s files, that a reload reads anew, or that another service reads."""
_ACCESS_FILES = ("read_tokens", "write_tokens", "tls_certificate", "tls_key")


def _same_enrp_port_twice(document: dict[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Followed by ENRP, each registrar has an ENRP port of its own."""
    seen: dict[tuple[str, int], RegistrarAddress] = {}
    listed = (
        *find(document, ("registrars", "*")),
        *find(document, ("handlespace", "*", "registrars", "*")),
    )
    for location, text in listed:
        try:
            registrar = RegistrarAddress.parse(str(text))
        except ValueError:
            continue  # reported at its own line
        first = seen.setdefault(registrar.enrp_endpoint, registrar)
        if first.endpoint != registrar.endpoint:
            words = (
                f"the same address and ENRP port {registrar.enrp_port} as {first}: write the right port after"
            )
            yield location, words + f' a slash, "{text}/9902" say, or set follow = "poll"'


def load_configuration(
    path: str | Path,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    *,
    without_page: bool = False,
) -> BackendConfig:
    """Read `path` and the zones it leads to; `on_progress` is told how far it is.

    With `without_page`, errors in [admin] and in its files alone are no reason to refuse: they are in
    `page_errors`, and nothing listens. Raises ConfigurationErrors: with every error of all files, or only
    that `path` itself can't be read.
    """
    path = Path(path)
    errors: list[ConfigurationError] = []
    page_errors: list[ConfigurationError] = []
    config, zones = None, None
    text = read_text(path)  # once: it may be written to meanwhile
    try:
        config = parse(text, str(path), BackendConfig)
    except ConfigurationErrors as error:
        for problem in error.errors:
            (page_errors if problem.key.partition(".")[0] == "admin" else errors).append(problem)
    document = _readable(path, text)
    directory = path.parent / _zones_dir(document)
    try:
        sites = None if config is None else Sites.of(config.sites, config.own_site)
        handlespaces = None if config is None else tuple(each.name for each in config.handlespaces)
        zones = load_zones(directory, on_progress, sites, handlespaces)
    except ConfigurationErrors as error:
        errors += where_named(document, error.errors, {str(directory): ("zones_dir",)})
    else:
        for position, publication in enumerate(config.publications if config is not None else ()):
            words = unknown_zone(publication, [zone.name for zone in zones])
            if words is not None:
                errors.append(document.error(("publish", position, "zone"), words))
    files = _access_files(document)
    access, refused = read_access(path.parent, *(files.get(key) for key in _ACCESS_FILES))
    named = {str(path.parent / file): ("admin", key) for key, file in files.items()}
    page_errors += where_named(document, refused, named)
    if config is not None and not without_page:
        page_errors += _secret_errors(document, config)
        page_errors += _certificate_errors(document, path.parent, config)
        if zones is not None:
            served = {zone.name for zone in zones}
            page_errors += (document.error(*error) for error in unknown_zones(config.secondaries, served))
    if errors or (page_errors and not without_page):
        raise ConfigurationErrors([*errors, *page_errors])
    if page_errors:
        return _without_page(document).with_files(
            zones or (), Access(), ConfigurationErrors(page_errors).errors
        )
    assert config is not None and zones is not None  # noqa: S101, PT018 - there was no error
    return config.with_files(zones, access)


def _secret_errors(document: TomlDocument, config: BackendConfig) -> Iterator[ConfigurationError]:
    """The errors in the files that hooks, peers, resolvers, secondaries, publications and news name, which
    never stop DNS."""
    for position, hook in enumerate(config.hooks):
        try:
            if hook.secret is not None:
                read_key(hook.secret)
        except ValueError as problem:
            yield document.error(("hook", position, "secret"), str(problem))
    for position, peer in enumerate(config.peers):
        try:
            read_token(peer.token)
        except ValueError as problem:
            yield document.error(("peer", position, "token"), str(problem))
    for position, resolver in enumerate(config.resolvers):
        try:
            resolver.read_files()
        except ValueError as problem:
            yield document.error(("resolver", position, "key"), str(problem))
    for position, secondary in enumerate(config.secondaries):
        try:
            if secondary.tsig is not None:
                read_tsig(secondary.tsig)
        except ValueError as problem:
            yield document.error(("secondary", position, "tsig"), str(problem))
    for position, publication in enumerate(config.publications):
        try:
            if publication.key is not None:
                read_tsig_key(publication.key)
        except ValueError as problem:
            yield document.error(("publish", position, "key"), str(problem))
    for zone, path in (config.news.keys if config.news is not None else {}).items():
        try:
            read_key(path)
        except ValueError as problem:
            yield document.error(("news", "keys", zone), str(problem))


def _certificate_errors(
    document: TomlDocument, folder: Path, config: BackendConfig
) -> list[ConfigurationError]:
    """The errors in the files of the certificate of [news.push]."""
    push = config.news.push if config.news is not None else None
    if push is None:
        return []
    named: dict[str, tuple[str | int, ...]] = {
        str(folder / file): ("news", "push", key) for key, file in push.files.items()
    }
    return where_named(document, push.access(folder)[1], named)


def _without_page(document: TomlDocument) -> BackendConfig:
    """The configuration of a file whose errors are all in [admin]; of that table only the socket for
    commands is kept."""
    admin = document.data.get("admin")
    socket = admin.get("socket") if isinstance(admin, dict) else None
    kept = {"socket": socket} if isinstance(socket, str) and socket and "\0" not in socket else {}
    return BackendConfig.model_validate({**document.data, "admin": {"listen": OFF, **kept}})


def differing(old: BackendConfig, new: BackendConfig) -> list[str]:
    """The keys whose values differ and count only after a restart, dotted."""
    left_out = {*_READ_ANEW, "named_handlespaces"}
    before, after = old.model_dump(exclude=left_out), new.model_dump(exclude=left_out)
    for handlespace in new.named_handlespaces:
        is_there = any(handlespace.name == other.name for other in old.named_handlespaces)
        if is_there and handlespace not in old.named_handlespaces:
            before["handlespace"], after["handlespace"] = None, handlespace.name
    if new.page_errors:
        after["admin"] = before["admin"]
    at_once = {"read_tokens", "write_tokens"}
    if old.admin.tls_certificate and new.admin.tls_certificate:
        at_once |= {"tls_certificate", "tls_key"}
    for key in at_once:
        before["admin"].pop(key, None), after["admin"].pop(key, None)
    problems = []
    for key in after:
        if isinstance(after[key], dict):
            inner = (name for name in after[key] if before[key][name] != after[key][name])
            problems += [f"{key}.{name}" for name in inner]
        elif before[key] != after[key]:
            problems.append(key)
    return problems


def control_path(path: Path) -> str:
    """The socket at which the backend of this configuration answers, also when something else in the file
    is wrong."""
    admin = TomlDocument(str(path), read_text(path)).data.get("admin")
    socket = admin.get("socket") if isinstance(admin, dict) else None
    return socket if isinstance(socket, str) else AdminConfig().socket


def zones_directory(path: Path) -> Path:
    """The zones directory that the configuration file `path` leads to; the file may have errors elsewhere."""
    try:
        text = read_text(path)
    except ConfigurationErrors:
        text = ""
    return path.parent / _zones_dir(_readable(path, text))


def _readable(path: Path, text: str) -> TomlDocument:
    """The text as it is; empty when it is no TOML."""
    try:
        return TomlDocument(str(path), text)
    except ConfigurationErrors:
        return TomlDocument(str(path), "")


def _zones_dir(document: TomlDocument) -> str:
    """The zones directory named also in a file with errors elsewhere: those of the zones are wanted too."""
    named = document.data.get("zones_dir")
    return named if isinstance(named, str) and named and "\0" not in named else ZONES_DIR


def _access_files(document: TomlDocument) -> dict[str, str]:
    """The files of tokens, certificate and key named also in a file with errors elsewhere."""
    admin = document.data.get("admin")
    named = {key: admin.get(key) for key in _ACCESS_FILES} if isinstance(admin, dict) else {}
    files = {key: file for key, file in named.items() if isinstance(file, str) and file and "\0" not in file}
    for key, other in (("tls_certificate", "tls_key"), ("tls_key", "tls_certificate")):
        if other not in files:
            files.pop(key, None)
    return files
