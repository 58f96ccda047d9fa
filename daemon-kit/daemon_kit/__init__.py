"""The parts that every long-running program of rspdns needs."""
