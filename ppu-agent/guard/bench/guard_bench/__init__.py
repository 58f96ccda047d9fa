"""`make -C ppu-agent/guard bench`: what a guarded connection set-up looks like, and what the guard costs."""
