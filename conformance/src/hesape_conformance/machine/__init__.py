"""The state machine: random steps on a store, each compared with what a pure model says of it."""
