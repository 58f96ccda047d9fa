"""The observations of clients and parts of a lab: the prober, its readings, verdicts, logs, percentiles."""
