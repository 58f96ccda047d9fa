"""nginx and HAProxy in front of servers that die, with ppu-agent beside them and without."""
