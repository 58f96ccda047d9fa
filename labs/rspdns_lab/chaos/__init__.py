"""`rspdns-lab chaos`: every fault, many times, at random moments, against bounds."""
