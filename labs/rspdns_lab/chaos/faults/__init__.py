"""The faults that chaos strikes with, and the bounds each has to keep."""
