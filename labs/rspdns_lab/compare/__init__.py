"""`rspdns-lab compare`: how long a voice is gone, by DNS and by address takeover."""
