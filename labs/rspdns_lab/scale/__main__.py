"""The process that plays the cells: chance and clocks are replaced before anything else is imported."""

from rspdns_lab.simulate import determinism

determinism.install()

from rspdns_lab.scale.world import main  # noqa: E402 - see above

main()
