"""The process that runs scenarios: chance and clocks are replaced before anything else is imported."""

from rspdns_lab.simulate import determinism, mutants

determinism.install()
mutants.install()

from rspdns_lab.simulate.worker import main  # noqa: E402 - see above

main()
