"""What tests of bots need: fakes that speak real protocols, clocks that can be set, kits of clauses."""
