"""Settings every test shares."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["servers_fixtures", "zygote"]

settings.register_profile("hitherto", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hitherto")


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Say a figure at the end of the run: how many states were seen, how many workers were killed."""
    return lambda figure: record_property("says", str(figure))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The figures of the tests that passed."""
    said = [
        f"{report.nodeid.rpartition('/')[2]}: {figure}"
        for report in terminalreporter.stats.get("passed", [])
        for name, figure in report.user_properties
        if name == "says"
    ]
    if said:
        terminalreporter.section("figures")
        terminalreporter.write("\n".join(said) + "\n")
