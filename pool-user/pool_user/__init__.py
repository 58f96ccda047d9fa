"""The belief of a pool user: the members of its pools, by the word of every registrar and by its own probes.

This is the package's door: everything that others may import. A `Belief` decides, a `PoolUser` feeds it from
the registrars, a `Prober` from the members themselves; a `BeliefChange` comes out, of `PoolView`s of
`Member`s.
`LastKnownGood` keeps that across restarts. A `Cause` says why a member is out. The
module `weights` (from load to weight) is public as it is. No DNS in it.
"""

from pool_user import weights
from pool_user.belief import (
    MAX_MEMBERS,
    Belief,
    PoolRules,
    accepted,
    spoken_for,
)
from pool_user.cause import Cause, Code
from pool_user.configuration import (
    AcceptNetworks,
    Handle,
    HandlespaceConfig,
    HandlespaceName,
    KeyFile,
    Network,
    RegistrarTexts,
    RemoteAgents,
    handlespace_problems,
    handlespaces_of,
    not_empty,
    read_trusted_network,
)
from pool_user.fairness import LONGEST_REST_S, Fairness
from pool_user.handlespaces import Handlespace, HandlespaceBeliefs, HandlespaceUsers
from pool_user.memory import LastKnownGood
from pool_user.overrides import MemberOverrides, NamedServers, OverrideAction, PoolOverride
from pool_user.probe.methods import listen_for_life
from pool_user.probe.prober import Prober
from pool_user.probe.probing import PoolProbing, ProbePlan
from pool_user.registrars.polling import Intervals
from pool_user.registrars.standing import RegistrarView, Standing
from pool_user.user import PoolUser
from pool_user.views import (
    BeliefChange,
    BeliefEvent,
    Departure,
    Member,
    OutMember,
    PoolChange,
    PoolView,
    RememberedPool,
    ServerAddress,
    TransportAddresses,
)
from pool_user.weights import OVERLOADED_AT, RELIEVED_AT, SLOW_START_S, Weighted, effective_load

__all__ = [
    "LONGEST_REST_S",
    "MAX_MEMBERS",
    "OVERLOADED_AT",
    "RELIEVED_AT",
    "SLOW_START_S",
    "AcceptNetworks",
    "Belief",
    "BeliefChange",
    "BeliefEvent",
    "Cause",
    "Code",
    "Departure",
    "Fairness",
    "Handle",
    "Handlespace",
    "HandlespaceBeliefs",
    "HandlespaceConfig",
    "HandlespaceName",
    "HandlespaceUsers",
    "Intervals",
    "KeyFile",
    "LastKnownGood",
    "Member",
    "MemberOverrides",
    "NamedServers",
    "Network",
    "OutMember",
    "OverrideAction",
    "PoolChange",
    "PoolOverride",
    "PoolProbing",
    "PoolRules",
    "PoolUser",
    "PoolView",
    "ProbePlan",
    "Prober",
    "RegistrarTexts",
    "RegistrarView",
    "RememberedPool",
    "RemoteAgents",
    "ServerAddress",
    "Standing",
    "TransportAddresses",
    "Weighted",
    "accepted",
    "effective_load",
    "handlespace_problems",
    "handlespaces_of",
    "listen_for_life",
    "not_empty",
    "read_trusted_network",
    "spoken_for",
    "weights",
]
