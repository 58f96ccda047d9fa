"""The bench as a program: `python -m guard_bench`."""

from rspdns_lab.ending import end_on_signals

from guard_bench.report import guard

end_on_signals()
guard(prog_name="bench")
