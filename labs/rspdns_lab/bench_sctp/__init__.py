"""`rspdns-lab bench-sctp`: SCTP beside kernel UDP and TCP."""
