"""Real servers for the tests: Redis, Valkey, clusters, sentinels, PostgreSQL, and a proxy that does what networks do."""
