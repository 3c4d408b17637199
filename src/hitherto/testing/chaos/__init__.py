"""A black-box harness: workers that die, pause and repeat themselves over one store, and a verdict.

Handlers append their event's id to ``data.log``, so that the state is the history.
:func:`hitherto.testing.chaos.run.run` does one run and answers a
:class:`hitherto.testing.chaos.report.Report`.
"""
