"""The process that runs scenarios: chance and clocks are replaced before anything else is imported."""

from rspdns_lab.simulate import broken_import, determinism

determinism.install()
broken_import.install()

from rspdns_lab.simulate.worker import main  # noqa: E402 - see above

main()
