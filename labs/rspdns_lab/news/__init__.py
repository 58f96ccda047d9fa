"""`rspdns-lab news`: the cost of telling thousands of clients of a change, by four transports."""
