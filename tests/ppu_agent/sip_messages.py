"""SIP messages over TCP, as short as they may be."""


def request(branch: str = "b1", method: str = "INVITE", body: str = "", number: int = 1) -> bytes:
    lines = [
        f"{method} sip:x@as SIP/2.0",
        f"Via: SIP/2.0/TCP 10.0.0.9;branch=z9hG4bK{branch}",
        "From: <sip:a@x>;tag=1",
        "To: <sip:x@as>",
        f"Call-ID: {branch}",
        f"CSeq: {number} {method}",
        f"Content-Length: {len(body)}",
    ]
    return ("\r\n".join([*lines, "", ""]) + body).encode()


def response(status: int, branch: str = "b1", method: str = "INVITE", number: int = 1) -> bytes:
    lines = [
        f"SIP/2.0 {status} Words",
        f"v: SIP/2.0/TCP 10.0.0.9;branch=z9hG4bK{branch}",
        f"CSeq: {number} {method}",
        "l: 0",
    ]
    return "\r\n".join([*lines, "", ""]).encode()
