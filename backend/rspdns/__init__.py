"""The DNS side of rspdns: a PowerDNS remote backend that answers from the live pools."""
