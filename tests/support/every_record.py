"""A zone with every kind of record and of pool."""

from rserpool import Protocol
from tests.backend.making import member, view

OTHER = "other.example"
FIXED = r"""
$TTL 3600
@        SOA    ns1 hostmaster 1 7200 900 1209600 300
@        NS     ns1
@        MX     10 mail
@        CAA    0 issue "ca.example.net"
ns1      A      10.0.1.1
ns1      AAAA   2001:db8:1::1
as       TXT    "beside the pool"
as       NAPTR  50 50 "s" "H323+D2U" "" _h323._udp.as
mail     A      10.0.1.3
alias    CNAME  mail
away     CNAME  www.example.com.
old      DNAME  new.example.com.
txt      TXT    "one" "two; \"three\"" "\195\164"
ptr      PTR    mail
host     HINFO  "PC" "Linux"
rp       RP     admin.example.net. txt
afs      AFSDB  1 mail
loc      LOC    52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m
ssh      SSHFP  1 1 123456789abcdef67890123456789abcdef67890
tls      TLSA   3 1 1 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
uri      URI    10 1 "https://www.example.com/path"
spf      SPF    "v=spf1 -all"
kx       KX     10 mail
cert     CERT   1 0 0 MxFcby9k/yvedMfQgKzhH5er0Mu/vILz45IkskceFGgiWCn/GxHhai6VAuHAoNUz
pgp      OPENPGPKEY AQMFEg==
svcb     SVCB   1 mail alpn="h2"
https    HTTPS  1 . alpn="h2,h3" port="8443"
eui      EUI48  00-11-22-33-44-55
fixed    SRV    0 5 5060 mail
private  TYPE65400 \# 4 0A000001
*.wild   MX     10 mail
*.wild   A      10.0.1.7
a.wild   TXT    "in the way of the wildcard"
sub      NS     ns.sub
sub      NS     ns.example.com.
ns.sub   A      10.0.1.9
signed   NS     ns.example.com.
signed   DS     12345 13 2 10bdbc7827d9efb7ec0deee234671a8f0fb0a83126268eb5d9ed8cd4982aacbf
a.b.c    A      10.0.1.2
"""


def pool(handle: str, service: str, label: str, name: str = "as", more: str = "") -> str:
    return (
        f'[[pool]]\nhandle = "{handle}"\nlabel = "{label}"\nservice = "{service}"\nname = "{name}"\n'
        f'accept = ["10.0.0.0/8", "2001:db8::/32"]\nslow_start_s = 0\n{more}\n'
    )


POOLS = (
    pool("sip-udp", "_sip._udp", "u")
    + pool("sip-tcp", "_sip._tcp", "t", more="naptr_preference = 20")
    + pool("sip-sctp", "_sip._sctp", "s", more="naptr_order = 20")
    + pool("sips-tcp", "_sips._tcp", "x")
    + pool("diameter", "_diameter._sctp", "d", "hss", 'naptr_service = "aaa+ap1:diameter.sctp"')
    + pool("empty", "_ldap._tcp", "l", "dir", 'when_empty = "nodata"')
    + pool("apex", "_http._tcp", "h", "@")
)
ALL_SHOWN = "slow_start_s = 0\nmax_addresses = 16"
"""In the place of its first line: no address is left out by chance, so a zone transfer holds no other."""
SVCB_POOLS = (
    pool("https", "_https._tcp", "y", "www", 'svcb = { alpn = ["h3", "h2"] }')
    + pool("alt", "_alt._tcp", "q", "alt", 'svcb = { alpn = ["h2"], url_port = 8443 }')
    + pool("dns", "_domain-s._tcp", "z", "res", 'svcb = { alpn = ["dot"], scheme = "dns" }')
)
SVCB_VIEWS = (
    view(
        member(1, "10.0.8.1", protocol=Protocol.TCP, port=443),
        member(2, "2001:db8:8::2", protocol=Protocol.TCP, port=443),
        handle="https",
    ),
    view(
        member(1, "10.0.8.3", "2001:db8:8::3", protocol=Protocol.TCP, port=8443),
        member(2, "10.0.8.4", protocol=Protocol.TCP, port=8444),
        handle="alt",
    ),
    view(member(1, "10.0.8.5", protocol=Protocol.TCP, port=853), handle="dns"),
)
"""The views of these pools."""
