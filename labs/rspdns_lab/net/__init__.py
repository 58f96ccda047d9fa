"""The base of every lab: hosts as network namespaces, their programs, privileges, packet filters, clocks."""
