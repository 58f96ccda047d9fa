"""Connection set-up over a congested link: `link/` under web traffic, and the queues that kernels have."""
