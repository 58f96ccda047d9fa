"""The bench as a program: `python -m bench_sctp`."""

from rspdns_lab.ending import end_on_signals

from bench_sctp.cli import bench_sctp

end_on_signals()
bench_sctp(prog_name="bench")
