"""Metrics and traces: what a keeper tells its listeners, as Prometheus and OpenTelemetry show it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hitherto import Keeper, MemoryStore
from hitherto.errors import MissingExtra
from hitherto.metrics import Metrics
from hitherto.testing import ManualClock
from hitherto.tracing import Tracing
from keeping import Talk, update

ROOT = Path(__file__).parent.parent


@pytest.fixture
def registry():
    return CollectorRegistry()


async def order(turn):
    if turn.event["message"]["text"] == "fail":
        raise LookupError("no such thing")
    if turn.flow is None:
        turn.start(Talk)
    else:
        turn.transition(Talk.middle)


async def test_turns_events_and_waits_are_counted(registry):
    async with (
        Keeper("bot", flows=[Talk], handler=order) as keeper,
        Metrics(keeper, registry=registry) as metrics,
    ):
        await keeper.handle(update(1))
        await keeper.handle(update(1))
        await keeper.handle(update(2))
        with pytest.raises(LookupError):
            await keeper.handle(update(3, chat=8, text="fail"))
        await metrics.count()

        def value(name, **labels):
            return registry.get_sample_value(name, {"bot": "bot", **labels})

        assert value("hitherto_events_total", answer="granted") == 3
        assert value("hitherto_events_total", answer="duplicate") == 1
        assert value("hitherto_turns_total", flow="talk", result="committed") == 2
        assert value("hitherto_turns_total", flow="", result="failed") == 1
        assert value("hitherto_turn_duration_seconds_count", flow="talk") == 2
        assert value("hitherto_turn_wait_seconds_count") == 3
        assert value("hitherto_queue_depth_count") == 4
        assert value("hitherto_conversations", flow="talk", state="middle") == 1
        assert value("hitherto_running_turns") == 0
        assert value("hitherto_healthy") == 1


async def test_a_place_that_is_empty_again_says_so(registry):
    async with Keeper("bot", flows=[Talk], handler=order) as keeper:
        metrics = Metrics(keeper, registry=registry)
        await keeper.handle(update(1))
        await metrics.count()
        await keeper.handle(update(2))
        await metrics.count()
    place = {"bot": "bot", "flow": "talk"}
    assert registry.get_sample_value("hitherto_conversations", {**place, "state": "hello"}) == 0
    assert registry.get_sample_value("hitherto_conversations", {**place, "state": "middle"}) == 1


async def test_what_is_given_up_and_taken_over_is_counted(registry):
    clock = ManualClock()
    store = MemoryStore(clock=clock)
    from hitherto import Queue
    from hitherto.addresses import Address
    from hitherto.document import Event, Terms

    at, terms = Address("bot", "", (7, 7)), Terms(lease=5.0)
    await store.accept(at, Event("1", b"{}"), Queue(), "dead worker", None, terms)
    clock.advance(10)
    seen = []

    async def handler(turn):
        seen.append(turn.attempt)

    keeper = Keeper("bot", store, handler=handler, clock=clock, lease=5.0)
    async with keeper:
        Metrics(keeper, registry=registry)
        await keeper.sweep()
        assert await keeper.idle()
    assert seen == [2]
    assert registry.get_sample_value("hitherto_recovered_total", {"bot": "bot"}) == 1


async def test_several_keepers_share_a_registry_and_stop_alone(registry):
    async with (
        Keeper("one", flows=[Talk], handler=order) as one,
        Keeper("two", flows=[Talk], handler=order) as two,
    ):
        first, _ = Metrics(one, registry=registry), Metrics(two, registry=registry)
        first.stop()
        await one.handle(update(1))
        await two.handle(update(1))
    assert registry.get_sample_value("hitherto_events_total", {"bot": "one", "answer": "granted"}) is None
    assert registry.get_sample_value("hitherto_events_total", {"bot": "two", "answer": "granted"}) == 1


async def test_no_id_key_or_text_is_a_label(registry):
    async with (
        Keeper("bot", flows=[Talk], handler=order) as keeper,
        Metrics(keeper, registry=registry) as metrics,
    ):
        await keeper.handle(update(987654, chat=55512345, text="a secret"))
        await metrics.count()
        text = generate_latest(registry).decode()
    assert "987654" not in text
    assert "55512345" not in text
    assert "secret" not in text


def test_the_dashboard_shows_metrics_that_exist(registry):
    metrics = Metrics(Keeper("bot"), registry=registry)
    families = [family.name for family in registry.collect()]
    metrics.stop()
    text = (ROOT / "docs" / "grafana.json").read_text()
    named = set(re.findall(r"hitherto_\w+", text))
    assert len(named) >= 8
    for name in named:
        base = re.sub(r"_(total|bucket|count|sum)$", "", name)
        assert base in families, name
    assert json.loads(text)["panels"]


@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [("prometheus_client", Metrics, "prometheus"), ("opentelemetry", Tracing, "otel")],
)
def test_a_missing_extra_is_one_sentence(monkeypatch, package, make, extra):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf'pip install "hitherto\[{extra}\]"'):
        make(Keeper("bot"))


# ---------------------------------------------------------------------------------------------------- traces


@pytest.fixture
def traced():
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


async def test_a_turn_is_a_span_and_what_happens_in_it_lies_inside(traced):
    exporter, provider = traced
    tracer = provider.get_tracer("test")

    async def handler(turn):
        with tracer.start_as_current_span("inside"):
            await order(turn)

    async with Keeper("bot", flows=[Talk], handler=handler) as keeper:
        tracing = Tracing(keeper, tracer_provider=provider)
        await keeper.handle(update(1))
        tracing.stop()
        await keeper.handle(update(2))
    inside, turn, after = exporter.get_finished_spans()
    assert (inside.name, turn.name, after.name) == ("inside", "hitherto.turn", "inside")
    assert inside.parent.span_id == turn.context.span_id
    assert after.parent is None
    said = turn.attributes
    assert (said["hitherto.result"], said["hitherto.flow.after"], said["hitherto.state.after"]) == (
        "committed", "talk", "hello",
    )  # fmt: skip
    assert (said["hitherto.flow"], said["hitherto.attempt"]) == ("", 1)


async def test_a_failed_turn_is_an_error_without_the_text(traced):
    exporter, provider = traced
    async with Keeper("bot", flows=[Talk], handler=order) as keeper:
        Tracing(keeper, tracer_provider=provider)
        with pytest.raises(LookupError):
            await keeper.handle(update(1, text="fail"))
    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok
    assert span.status.description == "LookupError"
    assert span.attributes["hitherto.result"] == "failed"


async def test_turns_of_one_caller_do_not_nest(traced):
    exporter, provider = traced
    async with Keeper("bot", flows=[Talk], handler=order) as keeper:
        Tracing(keeper, tracer_provider=provider)
        for number in range(3):
            await keeper.handle(update(number, chat=number + 1))
    assert [span.parent for span in exporter.get_finished_spans()] == [None] * 3
