"""The conformance kit run on our own stores, and on wrong ones to prove that it catches them."""
