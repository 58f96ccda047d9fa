"""Application servers behind several ways to serve DNS at once; only the name server differs."""
