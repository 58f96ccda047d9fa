"""lksctp-tools' own test programs, on sctpd and on a kernel."""
