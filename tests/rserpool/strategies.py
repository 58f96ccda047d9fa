"""Hypothesis strategies for everything that ASAP and ENRP can carry."""

from dataclasses import fields
from typing import TypeVar

from hypothesis import strategies as st
from rserpool.errors import ErrorCause
from rserpool.parameters import PoolElement, Protocol, ServerInformation, Transport, UnknownParameter
from rserpool.wire import ParameterType

from rserpool import asap, enrp, policies

T = TypeVar("T")

uint16 = st.integers(0, 0xFFFF)
uint32 = st.integers(0, 0xFFFFFFFF)
fraction = uint32.map(lambda number: number / 0xFFFFFFFF)
handles = st.binary(min_size=0, max_size=40)


def few(elements: st.SearchStrategy[T], least: int = 0) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(elements, min_size=least, max_size=3).map(tuple)


unknown_parameters = few(
    st.builds(
        UnknownParameter,
        st.integers(0x8000, 0xFFFF).filter(lambda number: number != ParameterType.ITEM_COUNT),
        st.binary(max_size=9),
    )
)


def policies_of(policy: type[policies.KnownPolicy]) -> st.SearchStrategy[policies.Policy]:
    return st.builds(policy, *(fraction if field.type is float else uint32 for field in fields(policy)))


known_policies = st.one_of([policies_of(policy) for policy in policies.POLICIES.values()])
unknown_policies = st.builds(
    policies.UnknownPolicy,
    uint32.filter(lambda number: number not in policies.POLICIES),
    st.binary(max_size=9),
)
any_policy = known_policies | unknown_policies

addresses = few(st.ip_addresses())
with_control_channel = st.sampled_from([Protocol.SCTP, Protocol.TCP])
plain = st.sampled_from([Protocol.UDP, Protocol.UDP_LITE])
transports = st.one_of(
    st.builds(Transport, with_control_channel, uint16, addresses, st.booleans(), unknown=unknown_parameters),
    st.builds(Transport, plain, uint16, addresses, unknown=unknown_parameters),
    st.builds(
        Transport,
        st.just(Protocol.DCCP),
        uint16,
        addresses,
        service_code=uint32,
        unknown=unknown_parameters,
    ),
)
pool_elements = st.builds(
    PoolElement, uint32, uint32, uint32, transports, any_policy, st.none() | transports, unknown_parameters
)
servers = st.builds(ServerInformation, uint32, transports, unknown_parameters)
causes = st.builds(ErrorCause, uint16, st.binary(max_size=9))
no_error_or_more = few(causes)
errors = few(causes, least=1)

about_element = (handles, uint32, unknown_parameters)
asap_messages: dict[type, st.SearchStrategy[asap.AsapMessage]] = {
    asap.Registration: st.builds(asap.Registration, handles, pool_elements, unknown_parameters),
    asap.Deregistration: st.builds(asap.Deregistration, *about_element),
    asap.RegistrationResponse: st.builds(
        asap.RegistrationResponse, handles, uint32, st.booleans(), no_error_or_more, unknown_parameters
    ),
    asap.DeregistrationResponse: st.builds(
        asap.DeregistrationResponse, handles, uint32, no_error_or_more, unknown_parameters
    ),
    asap.HandleResolution: st.builds(
        asap.HandleResolution, handles, st.none() | uint32, st.booleans(), unknown_parameters
    ),
    asap.HandleResolutionResponse: st.builds(
        asap.HandleResolutionResponse,
        handles,
        st.none() | any_policy,
        few(pool_elements),
        no_error_or_more,
        st.booleans(),
        unknown_parameters,
    ),
    asap.EndpointKeepAlive: st.builds(
        asap.EndpointKeepAlive, uint32, handles, st.none() | uint32, st.booleans(), unknown_parameters
    ),
    asap.EndpointKeepAliveAck: st.builds(asap.EndpointKeepAliveAck, *about_element),
    asap.EndpointUnreachable: st.builds(asap.EndpointUnreachable, *about_element),
    asap.ServerAnnounce: st.builds(asap.ServerAnnounce, uint32, few(transports), unknown_parameters),
    asap.Cookie: st.builds(asap.Cookie, st.binary(max_size=99), unknown_parameters),
    asap.CookieEcho: st.builds(asap.CookieEcho, st.binary(max_size=99), unknown_parameters),
    asap.BusinessCard: st.builds(
        asap.BusinessCard, handles, any_policy, few(pool_elements), unknown_parameters
    ),
    asap.AsapError: st.builds(asap.AsapError, errors, unknown_parameters),
}

ends = (uint32, uint32)
pool_entries = st.builds(enrp.PoolEntry, handles, few(pool_elements))
about_target = (*ends, uint32, unknown_parameters)
enrp_messages: dict[type, st.SearchStrategy[enrp.EnrpMessage]] = {
    enrp.Presence: st.builds(
        enrp.Presence, *ends, uint16, st.none() | servers, st.booleans(), unknown_parameters
    ),
    enrp.HandleTableRequest: st.builds(enrp.HandleTableRequest, *ends, st.booleans(), unknown_parameters),
    enrp.HandleTableResponse: st.builds(
        enrp.HandleTableResponse, *ends, few(pool_entries), st.booleans(), st.booleans(), unknown_parameters
    ),
    enrp.HandleUpdate: st.builds(
        enrp.HandleUpdate,
        *ends,
        st.sampled_from(enrp.UpdateAction),
        handles,
        pool_elements,
        st.booleans(),
        unknown_parameters,
    ),
    enrp.ListRequest: st.builds(enrp.ListRequest, *ends, unknown_parameters),
    enrp.ListResponse: st.builds(enrp.ListResponse, *ends, few(servers), st.booleans(), unknown_parameters),
    enrp.InitTakeover: st.builds(enrp.InitTakeover, *about_target),
    enrp.InitTakeoverAck: st.builds(enrp.InitTakeoverAck, *about_target),
    enrp.TakeoverServer: st.builds(enrp.TakeoverServer, *about_target),
    enrp.EnrpError: st.builds(enrp.EnrpError, *ends, errors, unknown_parameters),
}
any_asap = st.one_of(list(asap_messages.values()))
any_enrp = st.one_of(list(enrp_messages.values()))
