"""The base of the protocol's machines, and pure decisions beside them: no sockets, no clocks.

`base` says what all machines share: messages and `now` in, actions and events out. The pure decisions are
`registrar_choice` (which registrar next), `peer_identity` (which registrar an association is with) and
`announced` (registrars that announce themselves). The machines stand with their clients in `element`, `user`
and `follower` of the package.
"""
