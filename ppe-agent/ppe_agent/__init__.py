"""The sidecar that makes an unmodified application server a pool element."""
