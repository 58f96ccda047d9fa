"""Hooks: web services that are told of each change of the members."""

from rspdns.hooks.configuration import HookConfig
from rspdns.hooks.keeper import Hooks

__all__ = ["HookConfig", "Hooks"]
