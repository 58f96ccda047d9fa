"""A handlespace above many cells, simulated: `rspdns-lab scale`."""
