"""The whole chain on one virtual clock, from one seed: real classes, and models of the world around them."""
