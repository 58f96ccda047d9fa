"""`rspdns-lab shim`: TCP, Multipath TCP, and TCP's programs over SCTP, on links that lose or are cut."""
