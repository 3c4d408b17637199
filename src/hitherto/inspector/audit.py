"""Who changed what: one JSON line for each action of the inspector, whether it was done or refused.

The lines go to the logger ``hitherto.audit`` at INFO. They name the conversation, which other logs of the
library do not: whoever looks for what was done to it has to find it. They never hold data, texts or errors.
"""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Final

LOGGER: Final = logging.getLogger("hitherto.audit")


def record(action: str, who: str, bot: str, what: str, outcome: str) -> None:
    """Write one line; *what* is the conversation's key, or whom the action was about."""
    line = {"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "action": action, "who": who}
    LOGGER.info("%s", json.dumps({**line, "bot": bot, "on": what, "outcome": outcome}))


def to_file(path: Path) -> logging.Handler:
    """Append the lines to a file that only its owner reads; close the handler at the end."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600))
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    return handler
