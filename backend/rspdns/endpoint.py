"""An address and a port as people write them."""


def endpoint(address: str, port: int) -> str:
    """Return "10.0.0.1:5060" or "[2001:db8::1]:5060"."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
