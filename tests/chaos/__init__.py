"""The harness of hitherto.testing.chaos with servers of its own, and on what others have written."""
