"""What a lab stands on: hosts as network namespaces, their programs, privileges, packet filters, clocks."""
