"""`make -C sctp-userland bench`: SCTP beside kernel UDP and TCP."""
