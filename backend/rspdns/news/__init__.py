"""News of the pools for clients that hold no connection: they poll a port that is closed until news come."""

from rspdns.hooks.configuration import read_key
from rspdns.news.client import CONNECT_TIMEOUT_S
from rspdns.news.configuration import NewsConfig
from rspdns.news.poller import Poller

__all__ = ["CONNECT_TIMEOUT_S", "NewsConfig", "Poller", "read_key"]
