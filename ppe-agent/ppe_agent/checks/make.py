"""From the configuration of a check to the check."""

from ppe_agent.addresses import Address
from ppe_agent.checks.base import Check, Timing
from ppe_agent.checks.configuration import (
    CheckConfig,
    ExecConfig,
    GrpcConfig,
    HttpConfig,
    IcmpConfig,
    ProcessConfig,
    SipOptionsConfig,
    SnmpConfig,
    SystemdConfig,
    TcpConfig,
    TcpHoldConfig,
    TlsConfig,
)
from ppe_agent.checks.exec_check import ExecCheck
from ppe_agent.checks.grpc import GrpcCheck
from ppe_agent.checks.icmp import IcmpCheck
from ppe_agent.checks.process import ProcessCheck
from ppe_agent.checks.sip import SipOptionsCheck
from ppe_agent.checks.snmp import SnmpCheck, SnmpQuestion
from ppe_agent.checks.systemd_unit import SystemdUnitCheck
from ppe_agent.checks.tcp import TcpCheck, TcpHoldCheck
from ppe_agent.checks.tls import ExpiryLimits, TlsCheck


def make_check(config: CheckConfig, address: Address, port: int, transport: str) -> Check:
    """Return the check that `config` describes, of an AS with `transport` at `address` and `port`."""
    timing = config.timing
    match config:
        case ProcessConfig():
            return ProcessCheck(config.pid_file, config.process, timing)
        case TcpConfig():
            return TcpCheck(address, config.port or port, timing)
        case TcpHoldConfig():
            return TcpHoldCheck(address, config.port or port, timing)
        case SipOptionsConfig():
            return SipOptionsCheck(address, config.port or port, timing, config.transport or transport)
        case ExecConfig():
            return ExecCheck(config.command, timing)
        case SystemdConfig():
            return SystemdUnitCheck(config.unit, timing, config.scope)
        case SnmpConfig():
            question = SnmpQuestion(address, config.port, config.oid, config.credentials)
            return SnmpCheck(question, config.range, timing)
        case TlsConfig():
            limits = ExpiryLimits(config.warn_days, config.fail_days)
            where = (address, config.port or port)
            return TlsCheck(*where, timing, limits, host=config.host, ca_file=config.ca_file)
        case GrpcConfig():
            return GrpcCheck(
                address,
                config.port or port,
                timing,
                service=config.service,
                host=config.host,
                is_tls=config.tls,
                ca_file=config.ca_file,
            )
        case IcmpConfig():
            return IcmpCheck(config.address or address, timing)
        case HttpConfig():
            return _http(config, address, config.port or port, timing)


def _http(config: HttpConfig, address: Address, port: int, timing: Timing) -> Check:
    from ppe_agent.checks.http import HttpCheck  # aiohttp is large

    return HttpCheck(
        address,
        port,
        timing,
        scheme=config.type,
        path=config.path,
        host=config.host,
        status=config.status,
        contains=config.contains,
        verify=config.verify,
        ca_file=config.ca_file,
    )
