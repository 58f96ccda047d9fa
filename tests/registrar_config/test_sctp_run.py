"""How programs get SCTP."""

import pytest
from daemon_kit.errors import FatalError
from registrar_config.preflight import sctp_wrapper


def test_a_wrapper_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_sctp(*_: object) -> None:
        raise OSError

    monkeypatch.setattr("registrar_config.preflight.socket.socket", no_sctp)
    monkeypatch.setenv("RSPDNS_SCTP_RUN", "/nonexistent/sctp-run")
    with pytest.raises(FatalError, match="RSPDNS_SCTP_RUN names /nonexistent/sctp-run"):
        sctp_wrapper()
    monkeypatch.setenv("RSPDNS_SCTP_RUN", "/bin/true")
    assert sctp_wrapper() == ["/bin/true"]
