"""The protocol's machines, without sockets and clocks: messages and `now` in, actions and events out.

`base` says what all machines share. Each machine stands in one file with its theory, its states and its
table: `element` (a pool element's registration), `user` (a pool user's questions), `follower` (a passive ENRP
peer). Beside them stand pure decisions: `registrar_choice` (which registrar next), `peer_identity` (which
registrar an association is with) and `announced` (registrars that announce themselves).
"""
