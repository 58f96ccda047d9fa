"""`rspdns-lab guard`: what a guarded connection set-up looks like, and what the guard of a gateway costs."""
