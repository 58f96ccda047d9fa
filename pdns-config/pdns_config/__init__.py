"""How PowerDNS is run: rendered configuration."""
