"""ppu-agent, the sidecar beside a client: what is sent to a server that died is redirected or refused."""
