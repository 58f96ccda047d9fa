"""Hostile bytes in agent.toml are read or refused; nothing else is raised."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ppe_agent import configuration, consistency
from ppe_agent.configuration import AgentConfig
from pydantic import ValidationError

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=True),
        st.text(max_size=5),
        st.sampled_from(
            ["auto", "udp", "tcp", "10.0.0.1", "10.0.0.1:3863", "[::1", "least-used", "priority"]
        ),
        st.sampled_from(
            ["cpu", "file", "tcp-hold", "sip-options", "tls", "icmp", "fe80::1%eth0", "0.0.0.0", "h" * 33]
        ),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["name", "handle", "type", "source", "port", "path"]), inner, max_size=3
        ),
    ),
    max_leaves=4,
)
SERVER_KEYS = ["name", "handle", "transport", "address", "port", "policy", "weight", "check", "load", "x"]
servers = st.dictionaries(st.sampled_from(SERVER_KEYS), values, max_size=8)
documents = st.fixed_dictionaries(
    {},
    optional={
        "registrars": st.one_of(values, st.lists(values, max_size=3)),
        "as": st.one_of(values, st.lists(st.one_of(servers, values), max_size=3)),
        "state": values,
        "control": values,
        "reregistration_ms": values,
    },
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_on_this_host", lambda address: True)


@settings(max_examples=300, deadline=None)
@given(documents)
def test_any_document_is_read_or_refused(document: dict[str, object]) -> None:
    list(consistency.problems(document))
    with contextlib.suppress(ValidationError):
        AgentConfig.model_validate(document)
