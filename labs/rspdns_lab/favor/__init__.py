"""Connection set-up over a congested link: the disciplines of `link/` under web traffic, and the queues that
kernels have for an uplink."""
