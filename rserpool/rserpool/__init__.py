"""RSerPool (RFC 5351 to 5356): the protocol, nothing else."""
