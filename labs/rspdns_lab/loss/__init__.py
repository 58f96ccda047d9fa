"""`rspdns-lab loss`: a network that loses packets removes no live server."""
