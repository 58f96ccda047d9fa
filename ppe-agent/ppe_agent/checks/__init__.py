"""Health checks: is the server alive? One file per kind; `base.py` decides when that changes its state."""
