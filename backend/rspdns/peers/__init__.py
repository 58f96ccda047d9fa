"""Peers: the other name servers, at which an override can be set too."""

from rspdns.peers.configuration import PeerConfig
from rspdns.peers.shared import SharedOverrides

__all__ = ["PeerConfig", "SharedOverrides"]
