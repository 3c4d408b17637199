"""Settings every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = ["servers_fixtures", "zygote"]

settings.register_profile("hitherto", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hitherto")
