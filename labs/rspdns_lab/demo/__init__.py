"""`rspdns-lab demo`: the whole chain, one fault after the other, told in the terminal."""
