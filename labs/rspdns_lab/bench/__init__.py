"""`rspdns-lab bench`: questions a second, changes, sizes, beside other name servers."""
