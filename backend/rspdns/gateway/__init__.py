"""The gateway of a cell: a Proxy Pool Element (RFC 5351). A pool user of the cell's registrars below, and one
pool element for each pool in the upper handlespace above. No DNS in it.
"""
