"""Wrong stores whose ``accept`` is mistaken: grants, duplicates, policies, leftovers."""

from __future__ import annotations

import asyncio
import json

from msgspec.structs import replace

from hitherto import protocol
from hitherto.addresses import Address, encode
from hitherto.overlap import Burst, ByFlow, Concurrent, Debounce, Queue, Reject
from hitherto.protocol import Event
from hitherto.records import BLANK
from kit.wrong import Bent, Shared, answering, asked, makes, sees, wrong


def changed(document, **to):
    """A document of the next version."""
    return replace(document, version=document.version + 1, **to)


def entries(document, function):
    """The document with every entry of the inbox replaced by what *function* makes of it, or left out."""
    inbox = tuple([new for new in map(function, document.inbox) if new is not None])
    return replace(document, inbox=inbox)


def is_waiting(entry):
    """Whether an entry waits."""
    return not entry.claimed and entry.lone_until is None


# ------------------------------------------------------------------------------------------------ grants


@answering("test_a_refused_event_is_handled_when_it_comes_again")
def everything_is_lone(doing, answer, now):
    if doing != "accept" or answer.grant is None:
        return answer
    return replace(answer, grant=replace(answer.grant, lone=True))


@answering("test_a_grant_begins_without_a_record")
def grants_a_blank_record(doing, answer, now):
    if answer.grant is None or answer.grant.record is not None:
        return answer
    return replace(answer, grant=replace(answer.grant, record=BLANK))


@answering("test_a_grant_carries_the_record")
def grants_no_record(doing, answer, now):
    return answer if answer.grant is None else replace(answer, grant=replace(answer.grant, record=None))


@answering("test_concurrent_carries_the_record")
def lone_turns_get_no_record(doing, answer, now):
    lone = answer.grant is not None and answer.grant.lone
    return replace(answer, grant=replace(answer.grant, record=None)) if lone else answer


@answering("test_a_hand_off_carries_the_new_record")
def hand_offs_get_no_record(doing, answer, now):
    handed = doing == "settle" and answer.grant is not None
    return replace(answer, grant=replace(answer.grant, record=None)) if handed else answer


@asked("test_a_grant_lasts_for_the_lease")
def leases_of_thirty(doing, given, document):
    return {**given, "terms": replace(given["terms"], lease=30.0)} if "terms" in given else given


@answering("test_answers_carry_the_time")
def refusals_without_time(doing, answer, now):
    return replace(answer, at=0.0) if answer.status in ("duplicate", "busy", "nothing") else answer


@answering("test_entries_carry_the_time_of_acceptance")
def accepted_when_granted(doing, answer, now):
    if answer.grant is None:
        return answer
    handed = tuple([replace(entry, accepted_at=now) for entry in answer.grant.entries])
    return replace(answer, grant=replace(answer.grant, entries=handed))


@makes("test_a_transaction_sees_the_newest", "test_epochs_only_grow")
def epochs_start_again(doing, before, after, answer, now):
    free = after is not before and after.lease is None
    return (replace(after, epoch=0) if free else after), answer


@answering("test_a_free_conversation_is_granted", "test_a_redelivery_takes_over", "test_places_only_grow")
def places_are_depths(doing, answer, now):
    return replace(answer, seq=answer.depth) if doing == "accept" else answer


@answering("test_the_first_attempt_is_counted")
def attempts_from_zero(doing, answer, now):
    if answer.grant is None:
        return answer
    handed = tuple([replace(entry, attempts=entry.attempts - 1) for entry in answer.grant.entries])
    return replace(answer, grant=replace(answer.grant, entries=handed))


@wrong("test_conversations_do_not_wait_for_each_other")
class OneLockForAll(Shared):
    async def accept(self, address, event, overlap, owner, op, terms):
        return await super().accept(Address(address.bot, "", ()), event, overlap, owner, op, terms)


@wrong("test_a_commit_sets_data")
class OneLockPerText(Shared):
    """``7`` and ``"7"`` are one conversation to it."""

    async def accept(self, address, event, overlap, owner, op, terms):
        key = tuple([str(part) for part in address.key]) if isinstance(address.key, tuple) else address.key
        return await super().accept(Address(address.bot, "", key), event, overlap, owner, op, terms)


@wrong("test_one_of_many_deliveries_is_granted", "test_one_of_many_is_granted")
class AcceptsThenWrites(Shared):
    """Decides, is interrupted, and writes what it decided."""

    async def accept(self, address, event, overlap, owner, op, terms):
        before = await self.load(address)
        after, answer = protocol.accept(before, self.clock(), op, event, overlap, owner, terms)
        await asyncio.sleep(0)
        if after is not before:
            self._put(encode(address), after)
        return answer


@asked("test_a_free_conversation_is_granted", "test_payloads_are_kept_to_the_byte")
def payloads_rewritten(doing, given, document):
    if doing != "accept":
        return given
    event = given["event"]
    return {**given, "event": Event(event.id, json.dumps(json.loads(event.payload)).encode())}


# -------------------------------------------------------------------------------------------- duplicates


@asked("test_a_redelivery_takes_over")
def claimed_ids_are_new(doing, given, document):
    claimed = {entry.event_id for entry in document.inbox if entry.claimed}
    if doing != "accept" or given["event"].id not in claimed:
        return given
    return {**given, "event": Event(f"{given['event'].id}+", given["event"].payload)}


@asked("test_a_redelivery_takes_over_what_comes_before_it", "test_a_waiting_event_is_a_duplicate")
def waiting_ids_are_new(doing, given, document):
    waiting = {entry.event_id for entry in document.inbox if is_waiting(entry)}
    if doing != "accept" or given["event"].id not in waiting:
        return given
    return {**given, "event": Event(f"{given['event'].id}+", given["event"].payload)}


@asked("test_a_handled_event_is_a_duplicate")
def seen_ids_are_new(doing, given, document):
    if doing != "accept" or given["event"].id not in document.seen:
        return given
    return {**given, "event": Event(f"{given['event'].id}+", given["event"].payload)}


@asked("test_a_lone_event_is_a_duplicate", "test_a_redelivery_takes_over_a_lone_turn")
def lone_ids_are_new(doing, given, document):
    lone = {entry.event_id for entry in document.inbox if entry.lone_until is not None}
    if doing != "accept" or given["event"].id not in lone:
        return given
    return {**given, "event": Event(f"{given['event'].id}+", given["event"].payload)}


@asked("test_an_event_without_an_id_repeated")
def no_id_is_an_id(doing, given, document):
    if doing != "accept" or given["event"].id is not None:
        return given
    return {**given, "event": Event("None", given["event"].payload)}


@wrong(
    "test_conversations_do_not_wait_for_each_other",
    "test_different_operations_do_not_meet",
    "test_ids_belong_to_their_conversation",
)
class OneWindowForAll(Shared):
    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.ids = {}

    async def accept(self, address, event, overlap, owner, op, terms):
        if self.ids.setdefault(event.id, address) != address and event.id is not None:
            return protocol.Answer("duplicate")
        return await super().accept(address, event, overlap, owner, op, terms)


@asked("test_ids_are_compared_exactly")
def ids_trimmed(doing, given, document):
    if doing != "accept" or given["event"].id is None:
        return given
    return {**given, "event": Event(given["event"].id.strip().lower(), given["event"].payload)}


# -------------------------------------------------------------------------------------- the seen window


@asked("test_the_window_holds_the_newest", "test_the_window_is_ordered_within_a_moment")
def a_window_of_one_more(doing, given, document):
    terms = given.get("terms")
    return given if terms is None else {**given, "terms": replace(terms, seen_limit=terms.seen_limit + 1)}


@asked("test_the_window_ends_with_age")
def a_window_that_never_ends(doing, given, document):
    if doing != "accept":
        return given
    return {**given, "terms": replace(given["terms"], seen_age=1e12)}


@asked("test_the_window_ends_with_age")
def a_window_that_ends_early(doing, given, document):
    if doing != "accept":
        return given
    return {**given, "terms": replace(given["terms"], seen_age=given["terms"].seen_age - 1)}


@asked("test_old_ids_leave_the_window")
def old_ids_stay(doing, given, document):
    if doing != "settle":
        return given
    return {**given, "terms": replace(given["terms"], seen_age=1e12)}


@asked("test_a_smaller_window_is_trimmed")
def windows_never_shrink(doing, given, document):
    if doing != "settle":
        return given
    limit = max(given["terms"].seen_limit, len(document.seen) + 1) if given["terms"].seen_limit == 2 else 0
    return {**given, "terms": replace(given["terms"], seen_limit=limit)} if limit else given


@makes("test_the_window_is_ordered_within_a_moment")
def a_window_sorted_by_id(doing, before, after, answer, now):
    if after is before:
        return after, answer
    return replace(after, seen=dict(sorted(after.seen.items(), key=lambda pair: (pair[1], pair[0])))), answer


# ------------------------------------------------------------------------------------- reject and queue


@asked("test_a_lease_ends_at_its_deadline", "test_a_rejected_event_is_handled_when_it_comes_again")
def reject_queues(doing, given, document):
    return {**given, "overlap": Queue()} if given.get("overlap") == Reject() else given


@makes("test_concurrent_has_a_limit", "test_reject_answers_busy")
def rejected_is_seen(doing, before, after, answer, now):
    if answer is None or doing != "accept" or answer.status != "busy":
        return after, answer
    return changed(after, next_seq=after.next_seq + 1), answer


@wrong("test_a_rejected_event_is_handled_when_it_comes_again")
class MarksRejected(Bent):
    async def accept(self, address, event, overlap, owner, op, terms):
        answer = await super().accept(address, event, overlap, owner, op, terms)
        if answer.status in ("busy", "full") and event.id is not None:
            document = await self.load(address)
            self._put(encode(address), changed(document, seen={**document.seen, event.id: self.clock()}))
        return answer


@answering("test_queue_lets_it_wait")
def depths_are_zero(doing, answer, now):
    return replace(answer, depth=0)


@wrong("test_a_full_queue_refuses", "test_a_refused_event_is_handled_when_it_comes_again")
class FullTakesItAnyway(Bent):
    async def accept(self, address, event, overlap, owner, op, terms):
        answer = await super().accept(address, event, overlap, owner, op, terms)
        if answer.status == "full":
            await super().accept(address, event, Queue(), owner, op, terms)
        return answer


@asked("test_below_the_limit_nothing_is_dropped")
def what_runs_counts(doing, given, document):
    policy = given.get("overlap")
    if not isinstance(policy, Queue) or policy.limit < 2 or policy.on_full != "reject":
        return given
    claimed = sum(entry.claimed for entry in document.inbox)
    return {**given, "overlap": Queue(max(policy.limit - claimed, 1))}


@asked("test_what_runs_does_not_count")
def a_queue_of_one_more(doing, given, document):
    policy = given.get("overlap")
    more = isinstance(policy, Queue) and policy.on_full == "reject"
    return {**given, "overlap": replace(policy, limit=policy.limit + 1)} if more else given


@asked("test_drop_newest_gives_up_the_newest", "test_drop_oldest_gives_up_the_oldest")
def drops_the_wrong_end(doing, given, document):
    policy = given.get("overlap")
    if not isinstance(policy, Queue) or policy.on_full == "reject":
        return given
    other = "drop_newest" if policy.on_full == "drop_oldest" else "drop_oldest"
    return {**given, "overlap": replace(policy, on_full=other)}


@asked("test_below_the_limit_nothing_is_dropped")
def drops_below_the_limit(doing, given, document):
    policy = given.get("overlap")
    if not isinstance(policy, Queue) or policy.on_full == "reject" or policy.limit < 3:
        return given
    return {**given, "overlap": replace(policy, limit=1)}


@answering("test_what_killed_its_workers_is_given_up")
def drops_silently(doing, answer, now):
    return replace(answer, dropped=())


@makes("test_debounce_lets_only_the_newest_wait", "test_drop_newest_gives_up_the_newest")
def drops_without_a_mark(doing, before, after, answer, now):
    dropped = {drop.event_id for drop in getattr(answer, "dropped", ()) if drop.reason != "dead"}
    if not dropped:
        return after, answer
    return replace(after, seen={name: at for name, at in after.seen.items() if name not in dropped}), answer


@sees("test_expired_entries_do_not_count")
def expired_entries_count(doing, document, now):
    return entries(document, lambda e: replace(e, expires_at=None)) if doing == "accept" else document


@sees("test_expired_entries_are_not_handed_on")
def expired_entries_are_handed_on(doing, document, now):
    return entries(document, lambda e: replace(e, expires_at=None)) if doing == "settle" else document


@sees("test_expired_entries_are_not_taken_over")
def expired_entries_are_taken_over(doing, document, now):
    return entries(document, lambda e: replace(e, expires_at=None)) if doing == "take_over" else document


@makes("test_a_refusal_tells_what_expired")
def refusals_keep_what_expired(doing, before, after, answer, now):
    refused = doing == "accept" and answer.status == "busy"
    return (before if refused else after), answer


@sees("test_expired_entries_do_not_count", "test_what_is_claimed_does_not_expire")
def claimed_entries_expire(doing, document, now):
    if doing != "accept":
        return document
    return entries(document, lambda e: None if e.expires_at is not None and e.expires_at <= now else e)


@sees("test_what_has_no_time_waits_for_ever")
def a_day_is_enough(doing, document, now):
    if doing != "settle":
        return document
    return entries(document, lambda e: None if is_waiting(e) and e.accepted_at < now - 86_400 else e)


# ----------------------------------------------------------------------------------------------- debounce


@asked("test_debounce_of_a_free_conversation_runs_at_once")
def debounce_waits_always(doing, given, document):
    policy = given.get("overlap")
    if not isinstance(policy, Debounce) or document.lease is not None or document.inbox:
        return given
    return {**given, "overlap": Burst(policy.window, gather=True)}


@asked("test_debounce_lets_only_the_newest_wait", "test_debounce_waits_for_its_window")
def debounce_queues(doing, given, document):
    return {**given, "overlap": Queue()} if isinstance(given.get("overlap"), Debounce) else given


@sees("test_burst_waits_for_its_window")
def windows_are_not_waited_for(doing, document, now):
    if doing not in ("settle", "take_over"):
        return document
    return entries(document, lambda e: replace(e, not_before=0.0) if e.gather and not e.attempts else e)


@makes("test_debounce_waits_in_a_free_conversation_too")
def debounce_keeps_its_window(doing, before, after, answer, now):
    old = [entry.not_before for entry in before.inbox if entry.gather == "debounce"]
    if doing != "accept" or not old or answer.status != "debounced":
        return after, answer
    kept = entries(after, lambda e: replace(e, not_before=old[0]) if e.gather == "debounce" else e)
    return kept, replace(answer, wake_at=protocol.wake_at(kept))


@sees("test_debounce_restarts_its_window", "test_debounce_that_is_over_is_handed_on")
def debounce_is_never_handed_on(doing, document, now):
    if doing != "settle":
        return document
    return entries(document, lambda e: replace(e, not_before=now + 5) if e.gather == "debounce" else e)


@sees("test_a_window_is_not_ended_by_a_redelivery")
def windows_end_with_the_lease(doing, document, now):
    if doing != "accept" or document.lease is not None:
        return document
    return entries(document, lambda e: replace(e, not_before=0.0) if e.gather and not e.attempts else e)


@makes("test_a_queued_event_repeated", "test_debounce_leaves_the_queue_alone")
def debounce_replaces_all(doing, before, after, answer, now):
    if doing != "accept" or answer.status != "debounced":
        return after, answer
    newest = after.inbox[-1]
    return entries(after, lambda e: None if is_waiting(e) and e.seq != newest.seq else e), answer


@sees("test_others_pass_an_open_window")
def windows_hold_up_the_line(doing, document, now):
    if doing != "accept" or document.lease is not None:
        return document
    return entries(document, lambda e: replace(e, blocks=True) if e.gather else e)


@asked("test_different_operations_do_not_meet")
def a_redelivery_ends_the_window(doing, given, document):
    if doing == "accept" and any(entry.event_id == given["event"].id for entry in document.inbox):
        return {**given, "event": Event(None, given["event"].payload), "overlap": Queue()}
    return given


# -------------------------------------------------------------------------------------------------- burst


@asked("test_burst_of_a_free_conversation_runs_at_once")
def burst_waits_always(doing, given, document):
    policy = given.get("overlap")
    if not isinstance(policy, Burst) or policy.window == 0:
        return given
    return {**given, "overlap": replace(policy, gather=True)}


@asked("test_burst_folds_what_waits", "test_burst_joins_in_a_free_conversation_too")
def burst_queues(doing, given, document):
    return {**given, "overlap": Queue()} if isinstance(given.get("overlap"), Burst) else given


@makes("test_burst_is_committed_as_one")
def a_burst_acknowledges_one(doing, before, after, answer, now):
    mine = [entry.event_id for entry in before.inbox if entry.claimed]
    if doing != "settle" or answer.status != "committed" or len(mine) < 2:
        return after, answer
    return replace(after, seen={name: at for name, at in after.seen.items() if name != mine[0]}), answer


@makes("test_burst_joins_in_a_free_conversation_too", "test_burst_opens_its_window_once")
def burst_restarts_its_window(doing, before, after, answer, now):
    if doing != "accept" or answer.status != "queued" or not after.inbox[-1].gather:
        return after, answer
    window = 5.0 if after.inbox[-1].not_before else 0.0
    return entries(after, lambda e: replace(e, not_before=now + window) if window and e.gather else e), answer


@asked("test_burst_has_a_limit")
def a_burst_of_any_size(doing, given, document):
    policy = given.get("overlap")
    return {**given, "overlap": replace(policy, limit=1000)} if isinstance(policy, Burst) else given


@asked("test_burst_may_gather")
def bursts_do_not_gather(doing, given, document):
    policy = given.get("overlap")
    return {**given, "overlap": replace(policy, gather=False)} if isinstance(policy, Burst) else given


@sees("test_burst_stays_in_order")
def bursts_reach_over_others(doing, document, now):
    bursting = any(entry.gather == "burst" for entry in document.inbox)
    if doing != "settle" or not bursting:
        return document
    return entries(document, lambda e: replace(e, gather="burst"))


@sees("test_burst_folds_what_waits")
def leftover_bursts_stay_alone(doing, document, now):
    return entries(document, lambda e: replace(e, gather="")) if doing == "accept" else document


# --------------------------------------------------------------------------------------------- concurrent


@asked("test_concurrent_has_a_limit")
def concurrent_queues(doing, given, document):
    return {**given, "overlap": Queue()} if isinstance(given.get("overlap"), Concurrent) else given


@makes("test_concurrent_takes_no_lease")
def concurrent_takes_the_lease(doing, before, after, answer, now):
    grant = getattr(answer, "grant", None)
    if doing != "accept" or grant is None or not grant.lone or after.lease is not None:
        return after, answer
    return replace(after, lease=protocol.Lease("lone", grant.deadline)), answer


@makes("test_a_lone_turn_commits", "test_concurrent_runs_beside_the_others")
def concurrent_renews_the_lease(doing, before, after, answer, now):
    grant = getattr(answer, "grant", None)
    if doing != "accept" or grant is None or not grant.lone or after.lease is None:
        return after, answer
    return replace(after, lease=replace(after.lease, deadline=now + 60), epoch=after.epoch + 1), answer


@asked("test_a_lone_turn_can_be_renewed", "test_concurrent_turns_past_their_time_do_not_count")
def any_number_at_once(doing, given, document):
    policy = given.get("overlap")
    return {**given, "overlap": Concurrent(1000)} if isinstance(policy, Concurrent) else given


@sees("test_a_redelivery_takes_over_a_lone_turn")
def lone_turns_count_for_ever(doing, document, now):
    if doing != "accept":
        return document
    return entries(document, lambda e: replace(e, lone_until=1e12) if e.lone_until is not None else e)


# -------------------------------------------------------------------------------------- policies by flow


@asked("test_a_flow_may_have_its_own_policy")
def only_the_default(doing, given, document):
    policy = given.get("overlap")
    return {**given, "overlap": policy.default} if isinstance(policy, ByFlow) else given


@asked("test_a_flow_that_is_over_has_no_policy")
def expired_flows_count(doing, given, document):
    policy, record = given.get("overlap"), document.record
    if not isinstance(policy, ByFlow) or record is None or record.flow is None:
        return given
    return {**given, "overlap": policy.flows.get(record.flow, policy.default)}


# --------------------------------------------------------------------------------- leases and leftovers


@sees("test_a_lease_ends_at_its_deadline", "test_a_living_lease_is_not_taken_over")
def leases_die_early(doing, document, now):
    if doing != "accept" or document.lease is None:
        return document
    return replace(document, lease=replace(document.lease, deadline=document.lease.deadline - 0.25))


@sees("test_epochs_only_grow")
def leases_die_late(doing, document, now):
    if doing not in ("accept", "take_over", "acquire") or document.lease is None:
        return document
    return replace(document, lease=replace(document.lease, deadline=document.lease.deadline + 0.25))


@sees("test_a_redelivery_takes_over_what_comes_before_it")
def leftovers_wait_for_ever(doing, document, now):
    free = document.lease is None or document.lease.deadline <= now
    if doing != "accept" or not free:
        return document
    return replace(document, inbox=(), lease=None)


@wrong("test_what_was_given_back_comes_before_the_new_event")
class NewestFirst(Bent):
    """Grants the new event of a free conversation before what was left over."""

    async def accept(self, address, event, overlap, owner, op, terms):
        document = await self.load(address)
        known = event.id is not None and any(entry.event_id == event.id for entry in document.inbox)
        if protocol.is_busy(document, self.clock()) or known or not isinstance(overlap, Queue):
            return await super().accept(address, event, overlap, owner, op, terms)
        late = entries(document, lambda e: replace(e, not_before=1e12) if e.lone_until is None else e)
        after, answer = protocol.accept(late, self.clock(), op, event, overlap, owner, terms)
        before = {entry.seq: entry for entry in document.inbox}
        self._put(encode(address), entries(after, lambda e: replace(before.get(e.seq, e), claimed=e.claimed)))
        return answer


@makes(
    "test_an_accept_that_took_over_repeated",
    "test_leftovers_come_before_the_new_event",
    "test_leftovers_come_oldest_first",
)
def leftovers_upside_down(doing, before, after, answer, now):
    if doing not in ("accept", "take_over") or getattr(answer, "grant", None) is None:
        return after, answer
    waiting = [entry.seq for entry in after.inbox if is_waiting(entry)]
    inbox = {entry.seq: entry for entry in after.inbox}
    turned = dict(zip(waiting, reversed(waiting), strict=True))
    return replace(after, inbox=tuple([inbox[turned.get(e.seq, e.seq)] for e in after.inbox])), answer


@sees("test_leftovers_come_oldest_first")
def redeliveries_never_take_over(doing, document, now):
    if doing != "accept" or document.lease is None or document.lease.deadline > now:
        return document
    return replace(document, lease=replace(document.lease, deadline=1e12))


@asked("test_an_event_without_an_id_is_never_a_duplicate")
def redeliveries_wait_like_others(doing, given, document):
    if doing == "accept" and any(entry.event_id == given["event"].id for entry in document.inbox):
        return {**given, "overlap": Reject(), "terms": replace(given["terms"], retry_in_order=True)}
    return given


@sees("test_a_redelivery_ends_the_wait_for_a_retry")
def retries_wait_out_their_time(doing, document, now):
    return (
        entries(document, lambda e: replace(e, attempts=0) if is_waiting(e) else e)
        if doing == "accept"
        else document
    )


@makes(
    "test_a_claimed_event_is_a_duplicate",
    "test_a_redelivery_to_a_busy_conversation_waits_on",
    "test_a_waiting_event_is_a_duplicate",
)
def redeliveries_end_the_wait(doing, before, after, answer, now):
    if doing != "accept" or answer.status != "duplicate" or before.lease is None:
        return after, answer
    woken = entries(before, lambda e: replace(e, not_before=now))
    return (changed(before, inbox=woken.inbox) if woken != before else before), answer


@makes("test_a_lone_turn_can_be_renewed")
def lone_turns_survive(doing, before, after, answer, now):
    """A concurrent turn that was taken over may still commit."""
    grant = getattr(answer, "grant", None)
    lone = {entry.seq for entry in before.inbox if entry.lone_until is not None}
    if grant is None or doing == "settle" or not lone & {entry.seq for entry in grant.entries}:
        return after, answer
    kept = entries(
        after, lambda e: replace(e, lone_until=1.0, attempts=1, claimed=False) if e.seq in lone else e
    )
    return kept, answer


@asked("test_attempts_are_bounded", "test_what_killed_its_workers_is_given_up")
def tries_for_ever(doing, given, document):
    return {**given, "terms": replace(given["terms"], max_attempts=10**6)} if "terms" in given else given


@makes("test_what_is_given_up_lets_the_next_through")
def gives_up_on_the_whole_line(doing, before, after, answer, now):
    """When the oldest is given up nothing else is granted."""
    grant = getattr(answer, "grant", None)
    gave_up = any(drop.reason == "dead" for drop in getattr(answer, "dropped", ()))
    if doing != "accept" or grant is None or not gave_up:
        return after, answer
    return replace(after, lease=None), replace(answer, grant=None)


@sees("test_a_held_up_line_answers_by_policy")
def held_up_lines_have_no_limit(doing, document, now):
    if doing != "accept" or document.lease is not None or not any(e.blocks for e in document.inbox):
        return document
    return replace(document, inbox=())


@wrong("test_a_held_up_line_answers_by_policy")
class PassesAHeldUpLine(Bent):
    async def accept(self, address, event, overlap, owner, op, terms):
        document = await self.load(address)
        self._put(encode(address), entries(document, lambda e: replace(e, blocks=False)))
        return await super().accept(address, event, overlap, owner, op, terms)
