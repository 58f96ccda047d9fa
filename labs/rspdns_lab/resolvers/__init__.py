"""`rspdns-lab resolvers`: how long caching resolvers go on naming a server that has left its pool."""
