"""`rspdns import`: what somebody has in gdnsd, PowerDNS LUA records or Consul, as zones and agents' files.

Each reader (`gdnsd`, `powerdns`, `consul`) makes `Import`s of it; `writing` makes files of these. Nothing is
guessed: what has no counterpart is left out and told, with its file, line and reason.
"""
