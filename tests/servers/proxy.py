"""The proxy of :mod:`hitherto.testing.proxy`, under the name that the tests of servers know."""

from hitherto.testing.proxy import Counts, Loss, Proxy

__all__ = ["Counts", "Loss", "Proxy"]
