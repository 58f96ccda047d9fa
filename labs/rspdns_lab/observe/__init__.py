"""What clients and parts of a lab saw: the prober, its observations, verdicts, logs, percentiles."""
