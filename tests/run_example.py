"""Runs an example as a program of its own, against the server that API names.

A webhook example listens on the socket whose number is FD.
"""

from __future__ import annotations

import runpy
import warnings
from os import environ
from pathlib import Path


def main(name: str) -> None:
    """As `python FILE`, or as `uvicorn FILE:app`; aiogram has no setting for another server."""
    warnings.simplefilter("ignore")
    file = Path(name)
    if file.stem.startswith("aiogram"):
        from aiogram.client.telegram import PRODUCTION

        object.__setattr__(PRODUCTION, "base", f"{environ['API']}/bot{{token}}/{{method}}")
    if file.stem.startswith("ptb"):
        environ["API"] += "/bot"
    if "FD" not in environ:
        runpy.run_path(str(file), run_name="__main__")
        return
    import uvicorn

    app = runpy.run_path(str(file))["app"]
    uvicorn.run(app, fd=int(environ["FD"]), log_level="warning")
