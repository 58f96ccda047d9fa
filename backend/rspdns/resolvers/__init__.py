"""Resolvers whose caches forget what changed."""

from rspdns.resolvers.configuration import ResolverConfig
from rspdns.resolvers.keeper import Resolvers

__all__ = ["ResolverConfig", "Resolvers"]
