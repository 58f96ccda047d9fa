"""The admin address, as long as the backend runs. DNS never depends on it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import replace

from daemon_kit.config_file import ConfigurationError
from daemon_kit.http_server import HttpServer, PageServer, own_names
from daemon_kit.logs import get_logger
from daemon_kit.metrics import registry
from prometheus_client.registry import Collector

from rspdns.admin.access import Access
from rspdns.admin.api import Api, BackendService
from rspdns.admin.configuration import AdminConfig
from rspdns.event_log import EventLog

PROBLEM = "live page, API and metrics"
"""How a problem begins that is about the admin address."""


class AdminServer:
    """Serves the API at the address in `config`; where that is taken, it tries again."""

    def __init__(
        self,
        config: AdminConfig,
        access: Access,
        service: BackendService,
        log: EventLog,
        collector: Collector,
    ) -> None:
        self._problem: str | None = None
        """Why nothing is served at the admin address."""
        self._errors: Sequence[ConfigurationError] = ()
        self._config = config
        self._access = access
        address = config.address
        names = own_names(address, config.names) if address else frozenset[str]()
        self.api = Api(service, log, access, names, registry(collector))
        self._tls: ssl.SSLContext | None = None
        self._server: PageServer | None = None
        self._log = get_logger("admin")

    @property
    def problem(self) -> str | None:
        """Why nothing is served at the admin address, or a reload did not change it; None: all is well."""
        if self._errors:
            return f"{PROBLEM}: {'; '.join(map(str, self._errors))}; see rspdns check"
        if self._server is not None and self._server.problem is not None:
            return f"{PROBLEM}: {self._server.problem}; see admin.listen"
        return self._problem

    async def start(self) -> None:
        """Begin to serve."""
        address = self._config.address
        if address is None:
            return
        try:
            self._tls = self._access.tls()
        except OSError as error:
            self._problem = f"{PROBLEM}: admin.tls_certificate can't be used: {error}; then restart"
            self._log.error("page_not_changed", problems=[self._problem])
            return
        self._server = PageServer(
            lambda: HttpServer(self.api.application(), address, tls=self._tls), "admin", "admin.listen"
        )
        await self._server.start()

    async def close(self) -> None:
        """Serve no more."""
        self.api.streams.close()
        if self._server is not None:
            await self._server.close()

    def set_access(self, access: Access, errors: Sequence[ConfigurationError] = ()) -> None:
        """Take new tokens, and the certificate as its file is now; with errors in [admin] keep what was.

        The address stays as it is, so outside loopback reading still needs a token.
        """
        self._errors = errors
        if errors:
            self._log.error("page_not_changed", problems=[str(error) for error in errors])
            return
        address = self._config.address
        if address is not None and not address.is_loopback:
            access = replace(access, reading_needs_token=True)
        self.api.guard.access = access
        if self._tls is not None:
            try:
                access.load_certificate(self._tls)
            except OSError as error:
                self._log.warning("certificate_not_read", problem=str(error))
