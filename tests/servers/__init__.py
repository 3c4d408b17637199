"""Real servers for the tests, and a proxy that does to them what networks do."""
