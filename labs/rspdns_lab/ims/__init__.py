"""`rspdns-lab ims`: calls through an unmodified S-CSCF while application servers fail."""
