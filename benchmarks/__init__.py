"""Measuring hitherto beside its peers and beside the limits of what lies under it: ``make bench``."""
