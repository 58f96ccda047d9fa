"""`rspdns-lab watch`: a running lab in the terminal, and keys that break it."""
