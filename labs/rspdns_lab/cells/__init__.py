"""Many cells and the handlespace above them on one machine: `rspdns-lab cells`."""
