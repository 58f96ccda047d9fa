"""What every long-running program of rspdns needs."""
