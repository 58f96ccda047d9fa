"""The lab `rspdns-lab secondaries`: fifty name servers that transfer a live zone, and how old it is there."""
