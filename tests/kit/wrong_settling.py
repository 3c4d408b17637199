"""Wrong stores that end turns, keep leases or repeat operations mistakenly."""

from __future__ import annotations

import asyncio
import json

from msgspec.structs import replace

from hitherto import protocol
from hitherto.addresses import encode
from hitherto.errors import DataError
from hitherto.overlap import Concurrent
from hitherto.protocol import EMPTY, Dead, Grant, Lease
from hitherto.records import BLANK, NO_PATCH, Patch
from kit.wrong import Bent, Shared, answering, asked, makes, sees, wrong
from kit.wrong_accepting import changed, entries, is_waiting


def repatched(given, **to):
    """What is asked, with another patch."""
    return {**given, "patch": replace(given["patch"], **to)}


# --------------------------------------------------------------------------------------------- the patch


@asked("test_a_commit_repeated_late", "test_a_commit_sets_data")
def commits_replace(doing, given, document):
    simple = doing == "settle" and given["patch"] and not given["patch"].moved
    return repatched(given, cleared=True) if simple else given


@asked("test_a_commit_removes_data")
def removes_nothing(doing, given, document):
    return repatched(given, removed=()) if doing == "settle" else given


@asked("test_a_commit_moves")
def moves_without_version(doing, given, document):
    return repatched(given, version=1) if doing == "settle" else given


@asked("test_a_commit_that_does_not_move_keeps_the_state")
def moves_always(doing, given, document):
    return repatched(given, moved=True) if doing == "settle" and given["patch"].set else given


@makes("test_a_commit_may_clear")
def clearing_leaves_a_blank(doing, before, after, answer, now):
    gone = doing == "settle" and before.record is not None and after.record is None
    return (replace(after, record=BLANK) if gone else after), answer


@asked("test_a_commit_may_clear_and_start")
def starting_does_not_clear(doing, given, document):
    return repatched(given, cleared=False) if doing == "settle" and given["patch"].moved else given


@makes("test_an_empty_patch_writes_no_record")
def commits_write_a_record(doing, before, after, answer, now):
    bare = doing == "settle" and after is not before and after.record is None
    return (replace(after, record=BLANK) if bare else after), answer


@wrong("test_a_commit_is_a_patch")
class CommitsTheWholeRecord(Bent):
    """Writes the record that the turn began with, and the patch on top: others' updates are lost."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.begun = {}

    def makes(self, doing, before, after, answer, now):
        if doing == "accept" and answer.grant is not None:
            self.begun[answer.grant.epoch] = answer.grant.record
        return after, answer

    def sees(self, doing, document, now):
        if doing != "settle" or document.epoch not in self.begun or document.record is None:
            return document
        return replace(document, record=self.begun[document.epoch])


@wrong("test_a_commit_on_a_cleared_record_makes_one")
class BringsBackTheCleared(CommitsTheWholeRecord):
    def sees(self, doing, document, now):
        if doing != "settle" or document.record is not None:
            return document
        return replace(document, record=self.begun.get(document.epoch))


@asked("test_data_is_committed_exactly")
def patches_in_doubles(doing, given, document):
    if doing != "settle":
        return given
    fields = given["patch"].set.items()
    return repatched(
        given, set={name: json.dumps(json.loads(v, parse_int=float)).encode() for name, v in fields}
    )


@wrong("test_a_record_over_the_limit_is_refused")
class TooLargeIsCommitted(Bent):
    async def settle(self, address, claim, op, terms, *, patch=NO_PATCH, **how):
        try:
            return await super().settle(address, claim, op, terms, patch=patch, **how)
        except DataError:
            return await super().settle(address, claim, op, terms, **how)


@wrong("test_records_expire")
class ReadsWhatExpired(Shared):
    async def read(self, address):
        return (await self.load(address)).record


@sees("test_an_expired_record_does_not_come_back")
def writes_on_what_expired(doing, document, now):
    if doing not in ("write", "settle") or document.record is None:
        return document
    return replace(document, record=replace(document.record, expires_at=None))


# ------------------------------------------------------------------------------------------------ fencing


@makes("test_a_commit_acknowledges")
def commits_leave_the_lease(doing, before, after, answer, now):
    if doing != "settle" or after is before or after.lease is not None or before.lease is None:
        return after, answer
    return replace(after, lease=replace(before.lease, deadline=now)), answer


@makes("test_a_busy_lease_cannot_be_taken")
def fenced_but_acknowledged(doing, before, after, answer, now):
    if doing != "settle" or answer.status != "fenced" or not before.inbox:
        return after, answer
    return changed(before, seen={**before.seen, before.inbox[0].event_id or "": now}), answer


@makes("test_a_turn_commits_once")
def fenced_but_applied(doing, before, after, answer, now):
    if doing != "settle" or answer.status != "fenced":
        return after, answer
    return changed(before, record=BLANK), answer


@wrong("test_who_was_freed_commits_and_drains_nothing", "test_who_was_taken_over_is_fenced")
class ValidByTheClock(Bent):
    """Whoever once held a lease commits until its deadline."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.until = {}

    def makes(self, doing, before, after, answer, now):
        grant = getattr(answer, "grant", None)
        if grant is not None:
            self.until[grant.epoch] = grant.deadline
        return after, answer

    def asked(self, doing, given, document):
        alive = doing == "settle" and self.until.get(given["claim"].epoch, 0) > self.clock()
        if not alive or given["claim"].lone or not any(entry.claimed for entry in document.inbox):
            return given
        return {**given, "claim": replace(given["claim"], epoch=document.epoch)}


@sees("test_who_was_late_but_not_taken_over_commits")
def late_is_fenced(doing, document, now):
    late = document.lease is not None and document.lease.deadline <= now
    return replace(document, lease=None) if doing == "settle" and late else document


@sees("test_a_late_lone_turn_commits")
def late_lone_turns_are_fenced(doing, document, now):
    if doing != "settle":
        return document
    return entries(document, lambda e: replace(e, attempts=9) if (e.lone_until or now + 1) <= now else e)


@wrong("test_a_turn_commits_once", "test_one_of_many_commits_wins")
class CommittedForGood(Bent):
    """A claim that was committed once is committed again."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.good = set()

    async def settle(self, address, claim, op, terms, **how):
        answer = await super().settle(address, claim, op, terms, **how)
        if answer.status == "committed" and answer.grant is None:
            self.good.add((address, claim))
        return replace(answer, status="committed") if (address, claim) in self.good else answer


@asked("test_a_turn_commits_once_though_its_lease_goes_on")
def claims_by_epoch_only(doing, given, document):
    if doing not in ("settle", "release") or given["claim"].lone:
        return given
    claimed = tuple([entry.seq for entry in document.inbox if entry.claimed])
    same = given["claim"].epoch == document.epoch and document.lease is not None
    return {**given, "claim": replace(given["claim"], seqs=claimed)} if same else given


@asked("test_a_later_epoch_is_no_right")
def later_epochs_are_good(doing, given, document):
    later = doing == "settle" and given["claim"].epoch > document.epoch and not given["claim"].lone
    return {**given, "claim": replace(given["claim"], epoch=document.epoch)} if later else given


@makes("test_a_claim_to_nothing_is_fenced")
def refusing_leaves_a_document(doing, before, after, answer, now):
    nothing = before is EMPTY and after is before and getattr(answer, "status", "") == "fenced"
    return (changed(before, epoch=1, touched=now) if nothing else after), answer


@makes("test_nothing_is_taken_over_where_nothing_is_due")
def looking_leaves_a_document(doing, before, after, answer, now):
    nothing = before is EMPTY and after is before and doing == "take_over"
    return (changed(before, epoch=1, touched=now) if nothing else after), answer


# ----------------------------------------------------------------------------------------------- hand-off


@asked("test_debounce_that_is_over_is_handed_on")
def hands_nothing_on(doing, given, document):
    return {**given, "keep": False} if doing == "settle" else given


@asked("test_a_new_event_joins_the_leftover_burst", "test_what_was_given_back_comes_before_the_new_event")
def always_hands_on(doing, given, document):
    return {**given, "keep": True} if doing == "settle" else given


@makes("test_nobody_slips_in")
def frees_what_it_hands_on(doing, before, after, answer, now):
    handed = doing == "settle" and answer.grant is not None
    return (replace(after, lease=replace(after.lease, deadline=now)) if handed else after), answer


@makes("test_what_waits_is_handed_on")
def hands_on_under_a_new_epoch(doing, before, after, answer, now):
    if doing != "settle" or answer.grant is None:
        return after, answer
    grant = replace(answer.grant, epoch=after.epoch + 1)
    return replace(after, epoch=after.epoch + 1), replace(answer, grant=grant)


@makes("test_a_hand_off_renews_the_lease")
def hands_on_the_old_lease(doing, before, after, answer, now):
    if doing != "settle" or answer.grant is None:
        return after, answer
    return replace(after, lease=before.lease), answer


@makes("test_a_hand_off_carries_the_new_record")
def hands_on_the_old_record(doing, before, after, answer, now):
    if doing != "settle" or answer.grant is None:
        return after, answer
    return after, replace(answer, grant=replace(answer.grant, record=before.record))


@sees("test_events_are_handed_on_in_order")
def hands_on_the_newest(doing, document, now):
    if doing != "settle":
        return document
    waiting = [entry for entry in document.inbox if is_waiting(entry)]
    rest = [entry for entry in document.inbox if not is_waiting(entry)]
    return replace(document, inbox=(*rest, *reversed(waiting)))


@answering("test_the_answer_says_how_many_wait")
def counts_what_runs(doing, answer, now):
    return replace(answer, depth=answer.depth + 1) if answer.grant is not None else answer


@wrong("test_nothing_is_stranded_by_the_last_commit")
class LooksThenReleases(Shared):
    """Looks whether something waits, is interrupted, and releases the lease."""

    async def settle(self, address, claim, op, terms, **how):
        waits = protocol.depth(await self.load(address)) > 0
        await asyncio.sleep(0)
        answer = await super().settle(address, claim, op, terms, **{**how, "keep": waits})
        return answer if waits else replace(answer, grant=None)

    async def accept(self, address, event, overlap, owner, op, terms):
        answer = await super().accept(address, event, overlap, owner, op, terms)
        await asyncio.sleep(0)
        return answer


# ------------------------------------------------------------------------------------------------ failure


@makes("test_a_retry_leaves_no_mark")
def retries_are_seen(doing, before, after, answer, now):
    back = [e.event_id for e in after.inbox if is_waiting(e) and e.attempts and e.event_id is not None]
    if doing != "settle" or not back:
        return after, answer
    return replace(after, seen={**after.seen, **dict.fromkeys(back, now)}), answer


@asked("test_a_retry_lets_others_pass")
def retries_come_at_once(doing, given, document):
    return {**given, "delay": 0.0} if doing == "settle" else given


@answering("test_debounce_waits_for_its_window")
def nobody_is_woken(doing, answer, now):
    return replace(answer, wake_at=None)


@makes("test_a_retry_without_delay_comes_next")
def retries_go_to_the_end(doing, before, after, answer, now):
    if doing != "settle" or answer.status != "committed" or answer.grant is None:
        return after, answer
    again = {e.seq for e in before.inbox if e.claimed} & {e.seq for e in answer.grant.entries}
    waiting = next((e for e in after.inbox if is_waiting(e)), None)
    if not again or waiting is None:
        return after, answer
    seqs = {*again, waiting.seq}
    turned = entries(after, lambda e: replace(e, claimed=not e.claimed) if e.seq in seqs else e)
    return turned, replace(answer, grant=replace(answer.grant, entries=(replace(waiting, claimed=True),)))


@asked("test_a_redelivery_to_a_busy_conversation_waits_on", "test_a_retry_lets_others_pass")
def retries_hold_up_the_line(doing, given, document):
    return {**given, "terms": replace(given["terms"], retry_in_order=True)} if "terms" in given else given


@asked("test_a_retry_in_order_holds_up_the_line")
def retries_never_hold_up(doing, given, document):
    return {**given, "terms": replace(given["terms"], retry_in_order=False)} if "terms" in given else given


@sees("test_a_retry_is_handed_on_when_its_time_has_come")
def retries_come_last(doing, document, now):
    if doing != "settle":
        return document
    fresh = [entry for entry in document.inbox if not (is_waiting(entry) and entry.attempts)]
    tried = [entry for entry in document.inbox if is_waiting(entry) and entry.attempts]
    return replace(document, inbox=(*fresh, *tried))


@makes("test_a_retry_does_not_expire")
def retries_expire(doing, before, after, answer, now):
    old = {entry.seq: entry.expires_at for entry in before.inbox if entry.claimed}
    if doing != "settle" or after is before:
        return after, answer
    return entries(after, lambda e: replace(e, expires_at=old[e.seq]) if e.seq in old else e), answer


@asked("test_a_failure_commits_what_its_patch_says")
def failures_clear_the_record(doing, given, document):
    return repatched(given, cleared=True) if doing == "settle" and given["verdict"] != "done" else given


@makes("test_a_folded_turn_fails_as_one")
def a_folded_turn_retries_its_first(doing, before, after, answer, now):
    mine = [entry.seq for entry in before.inbox if entry.claimed]
    if doing != "settle" or answer.status != "committed" or len(mine) < 2:
        return after, answer
    return entries(after, lambda e: None if e.seq in mine[1:] else e), answer


@makes("test_a_discarded_event_is_seen", "test_attempts_are_bounded")
def everything_leaves_a_letter(doing, before, after, answer, now):
    if doing != "settle" or after is before or after.dead:
        return after, answer
    letters = [Dead(e.seq, e.event_id, b"", now, 1, "", now) for e in before.inbox if e.claimed]
    return replace(after, dead=tuple(letters)), answer


@makes("test_a_dead_lease_can_be_taken_over", "test_a_retry_waits_for_its_time")
def attempts_are_not_counted(doing, before, after, answer, now):
    first = entries(after, lambda e: replace(e, attempts=min(e.attempts, 1)))
    grant = getattr(answer, "grant", None)
    if after is before or grant is None:
        return after, answer
    handed = tuple([replace(entry, attempts=1) for entry in grant.entries])
    return first, replace(answer, grant=replace(grant, entries=handed))


# ------------------------------------------------------------------------------------------- dead letters


@makes("test_a_dead_letter_keeps_everything")
def letters_without_a_text(doing, before, after, answer, now):
    if doing != "settle" or not after.dead:
        return after, answer
    return replace(after, dead=tuple([replace(one, error=one.error[:10]) for one in after.dead])), answer


@makes("test_a_dead_event_is_seen")
def the_dead_are_forgotten(doing, before, after, answer, now):
    gone = {letter.event_id for letter in after.dead}
    if doing != "settle" or not gone:
        return after, answer
    return replace(after, seen={name: at for name, at in after.seen.items() if name not in gone}), answer


@asked("test_dead_letters_are_bounded")
def any_number_of_letters(doing, given, document):
    return {**given, "terms": replace(given["terms"], dead_limit=10**6)} if "terms" in given else given


@makes("test_a_dead_letter_may_be_tried_again")
def letters_keep_their_attempts(doing, before, after, answer, now):
    if doing != "retry_dead" or after is before:
        return after, answer
    return entries(
        after, lambda e: replace(e, attempts=e.attempts or 1) if e.seq == answer.seq else e
    ), answer


@makes("test_a_dead_letter_tried_again_is_due")
def letters_wait_for_a_while(doing, before, after, answer, now):
    if doing != "retry_dead" or after is before:
        return after, answer
    late = entries(after, lambda e: replace(e, not_before=now + 60) if e.seq == answer.seq else e)
    return late, replace(answer, wake_at=protocol.wake_at(late))


@makes("test_an_unknown_dead_letter_is_nothing")
def dropping_drops_all(doing, before, after, answer, now):
    return (replace(after, dead=()) if doing == "drop_dead" else after), answer


@makes("test_a_dead_letter_may_be_dropped")
def dropping_unmarks(doing, before, after, answer, now):
    return (replace(after, seen={}) if doing == "drop_dead" and after is not before else after), answer


@asked("test_an_unknown_dead_letter_is_nothing")
def any_letter_will_do(doing, given, document):
    if doing not in ("retry_dead", "drop_dead") or not document.dead:
        return given
    known = {letter.seq for letter in document.dead}
    return given if given["seq"] in known else {**given, "seq": document.dead[0].seq}


# --------------------------------------------------------------------------------------- renew, release


@makes("test_a_lease_can_be_renewed")
def renewing_does_nothing(doing, before, after, answer, now):
    return (before if doing == "renew" else after), answer


@makes("test_a_lease_can_be_renewed", "test_a_renewal_changes_nothing_else")
def renewing_adds_up(doing, before, after, answer, now):
    if doing != "renew" or after is before or before.lease is None:
        return after, answer
    return replace(after, lease=replace(after.lease, deadline=before.lease.deadline + 30)), answer


@makes("test_a_lost_lease_cannot_be_renewed", "test_a_renewal_changes_nothing_else")
def renewing_takes_the_name(doing, before, after, answer, now):
    if doing != "renew" or after.lease is None:
        return after, answer
    return replace(after, lease=replace(after.lease, owner="whoever")), answer


@wrong("test_many_leases_are_renewed_together")
class RenewsAllOrNone(Shared):
    async def renew(self, claims, terms):
        answers = await super().renew(claims, terms)
        return [all(answers)] * len(answers)


@sees("test_a_late_renewal_is_good_if_nobody_came")
def late_renewals_fail(doing, document, now):
    late = document.lease is not None and document.lease.deadline <= now
    return replace(document, lease=None) if doing == "renew" and late else document


@makes("test_who_runs_what_was_forgotten_is_fenced")
def renewing_always_works(doing, before, after, answer, now):
    return after, True if doing == "renew" else answer


@wrong("test_who_runs_what_was_forgotten_is_fenced")
class RenewsLeasesOnly(Shared):
    async def renew(self, claims, terms):
        leases = [(address, claim) for address, claim in claims if not claim.lone]
        await super().renew(leases, terms)
        return [True] * len(claims)


@makes("test_a_turn_can_be_given_back")
def giving_back_counts(doing, before, after, answer, now):
    mine = {entry.seq for entry in before.inbox if entry.claimed}
    if doing != "release" or after is before:
        return after, answer
    return entries(after, lambda e: replace(e, attempts=1) if e.seq in mine else e), answer


@makes("test_what_was_given_back_cannot_be_committed")
def giving_back_keeps_the_right(doing, before, after, answer, now):
    """What was given back is claimed until somebody else comes."""
    if doing != "release" or after is before or before.lease is None:
        return after, answer
    return replace(before, version=after.version, lease=replace(before.lease, deadline=now)), answer


@makes("test_a_stale_holder_frees_nothing")
def anybody_may_release(doing, before, after, answer, now):
    if doing != "release" or answer.status != "fenced":
        return after, answer
    return changed(before, lease=None), answer


@makes("test_a_lone_turn_can_be_given_back", "test_giving_back_repeated_late")
def lone_turns_release_the_lease(doing, before, after, answer, now):
    if doing != "release" or answer.status != "released":
        return after, answer
    return entries(replace(after, lease=None), lambda e: replace(e, claimed=False)), answer


@makes("test_a_stuck_conversation_can_be_freed")
def freeing_leaves_the_epoch(doing, before, after, answer, now):
    return (replace(after, epoch=before.epoch) if doing == "force_release" else after), answer


@makes("test_who_was_freed_commits_and_drains_nothing")
def freeing_only_ends_the_lease(doing, before, after, answer, now):
    if doing != "force_release" or before.lease is None:
        return after, answer
    return replace(before, version=after.version, lease=replace(before.lease, deadline=now)), answer


@wrong("test_a_free_conversation_needs_no_freeing")
class FreesWhatIsFree(Bent):
    def makes(self, doing, before, after, answer, now):
        free = doing == "force_release" and after is before and before is not EMPTY
        return (changed(before, epoch=before.epoch + 1), answer) if free else (after, answer)


@makes("test_lone_turns_are_freed_too")
def freeing_spares_lone_turns(doing, before, after, answer, now):
    lone = {entry.seq: entry for entry in before.inbox if entry.lone_until is not None}
    if doing != "force_release" or not lone:
        return after, answer
    return entries(after, lambda e: lone.get(e.seq, e)), answer


# ------------------------------------------------------------------------------------------ take the lease


@makes("test_the_lease_can_be_taken_without_an_event")
def eventless_turns_hide_the_record(doing, before, after, answer, now):
    if doing != "acquire" or answer.grant is None:
        return after, answer
    return after, replace(answer, grant=replace(answer.grant, record=None))


@sees("test_a_busy_lease_cannot_be_taken", "test_nobody_slips_in", "test_one_of_many_takes_the_lease")
def anybody_takes_the_lease(doing, document, now):
    return replace(document, lease=None) if doing == "acquire" else document


@makes("test_what_was_left_is_handed_on_by_an_eventless_turn")
def eventless_turns_drop_the_rest(doing, before, after, answer, now):
    return (replace(after, inbox=()) if doing == "acquire" and answer.grant else after), answer


@makes("test_effect_and_acknowledgement_are_one")
def taking_over_leaves_the_epoch(doing, before, after, answer, now):
    if doing != "take_over" or answer.grant is None:
        return after, answer
    return replace(after, epoch=before.epoch), replace(
        answer, grant=replace(answer.grant, epoch=before.epoch)
    )


@sees("test_a_living_lease_is_not_taken_over", "test_one_of_many_takes_over")
def takes_over_the_living(doing, document, now):
    return replace(document, lease=None) if doing == "take_over" else document


@makes("test_a_retry_waits_for_its_time", "test_burst_waits_for_its_window")
def takes_over_nothing(doing, before, after, answer, now):
    idle = doing == "take_over" and answer.status == "nothing" and before.inbox and before.lease is None
    if not idle:
        return after, answer
    lease = Lease("bob", now + 30)
    taken = changed(before, epoch=before.epoch + 1, lease=lease)
    return taken, replace(
        answer, status="granted", grant=Grant(taken.epoch, (), taken.record, lease.deadline)
    )


@makes("test_a_dead_lease_with_nothing_due_is_let_go")
def dead_leases_stay(doing, before, after, answer, now):
    idle = doing == "take_over" and answer.status == "nothing" and not answer.dropped
    return (before if idle else after), answer


# ---------------------------------------------------------------------------------------------- lone turns


@asked("test_a_lone_turn_commits")
def lone_turns_change_nothing(doing, given, document):
    return {**given, "patch": Patch()} if doing == "settle" and given["claim"].lone else given


@wrong("test_a_lone_turn_can_be_given_back")
class LoneCommitsEndTheLease(Bent):
    async def settle(self, address, claim, op, terms, **how):
        answer = await super().settle(address, claim, op, terms, **how)
        document = await self.load(address)
        if claim.lone and document.lease is not None:
            freed = entries(changed(document, lease=None), lambda e: replace(e, claimed=False))
            self._put(encode(address), freed)
        return answer


@asked("test_a_lone_turn_commits_once")
def any_lone_turn_will_do(doing, given, document):
    lone = [entry.seq for entry in document.inbox if entry.lone_until is not None]
    if doing != "settle" or not given["claim"].lone or given["claim"].seqs[0] in lone or not lone:
        return given
    return {**given, "claim": replace(given["claim"], seqs=(lone[0],))}


@makes("test_a_dead_lone_turn_is_taken_over")
def lone_turns_are_not_counted(doing, before, after, answer, now):
    lone = {entry.seq for entry in before.inbox if entry.lone_until is not None}
    grant = getattr(answer, "grant", None)
    if doing != "take_over" or grant is None or not lone:
        return after, answer
    handed = tuple([replace(entry, attempts=1) for entry in grant.entries])
    return after, replace(answer, grant=replace(grant, entries=handed))


@makes("test_a_lone_turn_may_fail")
def lone_retries_stay_lone(doing, before, after, answer, now):
    lone = {entry.seq: entry for entry in before.inbox if entry.lone_until is not None}
    if doing != "settle" or after is before:
        return after, answer
    return entries(after, lambda e: lone.get(e.seq, e)), answer


# --------------------------------------------------------------------------------------------- housekeeping


@wrong("test_expire_removes_what_is_over", "test_who_is_late_after_expire_is_fenced")
class NeverTidies(Shared):
    async def expire(self, bot, limit, terms):
        return 0


@makes("test_expire_keeps_what_is_not", "test_expire_removes_what_is_over")
def tidies_too_much(doing, before, after, answer, now):
    return (changed(before, inbox=(), dead=(), lease=None) if doing == "expire" else after), answer


@makes("test_who_is_late_after_expire_is_fenced")
def tidying_hides_leases(doing, before, after, answer, now):
    """The lease is gone for everybody who looks, and its holder may still commit."""
    if doing != "expire" or before.lease is None or after.lease is not None:
        return after, answer
    return replace(after, epoch=before.epoch, lease=before.lease), answer


@wrong("test_epochs_outlive_expire")
class BuriesItsEpochs(Bent):
    async def expire(self, bot, limit, terms):
        changed_ = await super().expire(bot, limit, terms)
        for text, document in list(self._documents.items()):
            if document.lease is None and document.record is None and not (document.inbox or document.seen):
                del self._documents[text]
        return changed_


@makes("test_forget_erases_everything")
def forgetting_keeps_the_window(doing, before, after, answer, now):
    return (replace(after, seen=before.seen) if doing == "forget" and after is not before else after), answer


@makes("test_forget_erases_everything")
def forgetting_keeps_the_dead(doing, before, after, answer, now):
    return (replace(after, dead=before.dead) if doing == "forget" and after is not before else after), answer


@makes("test_who_runs_what_was_forgotten_is_fenced")
def forgetting_fences_nobody(doing, before, after, answer, now):
    if doing != "forget" or after is before:
        return after, answer
    return replace(after, epoch=before.epoch, lease=before.lease, inbox=before.inbox), answer


@wrong("test_a_forgotten_conversation_starts_afresh")
class ForgetsTheEpoch(Bent):
    async def forget(self, address):
        self._documents.pop(encode(address), None)
        self._active.discard(encode(address))


@wrong("test_forget_is_of_one_conversation")
class ForgetsTheNeighbours(Shared):
    async def forget(self, address):
        for text in list(self._documents):
            if text.startswith(f"{address.bot}/"):
                del self._documents[text]


# ------------------------------------------------------------------------------------------- repetitions


def _deaf(name, clause):
    def function(doing, given, document):
        return {**given, "op": None} if doing == name else given

    function.__name__ = f"repeats_{name}"
    return asked(clause)(function)


for _name, _clause in {
    "accept": "test_a_queued_event_repeated",
    "settle": "test_a_commit_repeated",
    "acquire": "test_taking_the_lease_repeated",
    "take_over": "test_taking_over_repeated",
    "release": "test_giving_back_repeated",
    "force_release": "test_freeing_repeated",
    "retry_dead": "test_dead_letters_repeated",
    "drop_dead": "test_dead_letters_repeated",
}.items():
    _deaf(_name, _clause)


@asked("test_an_event_without_an_id_repeated")
def repeats_what_has_no_id(doing, given, document):
    return {**given, "op": None} if doing == "accept" and given["event"].id is None else given


@asked("test_a_granted_event_repeated", "test_an_accept_that_took_over_repeated")
def repeats_what_waits(doing, given, document):
    return {**given, "op": None} if doing == "accept" and document.lease is not None else given


@asked("test_a_dropped_event_repeated")
def repeats_what_was_dropped(doing, given, document):
    full = doing == "accept" and getattr(given["overlap"], "on_full", "reject") != "reject"
    return {**given, "op": None} if full else given


@asked("test_a_lone_event_repeated")
def repeats_lone_turns(doing, given, document):
    lone = doing == "accept" and isinstance(given["overlap"], Concurrent)
    return {**given, "op": None} if lone else given


@asked("test_a_granted_event_repeated")
def repeats_what_took_over(doing, given, document):
    return {**given, "op": None} if doing == "accept" and document.inbox else given


@asked("test_a_commit_that_handed_on_repeated")
def repeats_what_handed_on(doing, given, document):
    waits = doing == "settle" and protocol.depth(document) > 0
    return {**given, "op": None} if waits else given


@asked("test_a_failure_repeated")
def repeats_failures(doing, given, document):
    return {**given, "op": None} if doing == "settle" and given["verdict"] != "done" else given


@wrong("test_places_only_grow")
class RemembersTheLastOnly(Bent):
    """Only the newest operation of a conversation is remembered."""

    def makes(self, doing, before, after, answer, now):
        return (after if after is before else replace(after, ops=after.ops[-1:])), answer

    def asked(self, doing, given, document):
        return {**given, "op": given["op"] or "none"} if given.get("op", "") is None else given


@wrong("test_a_refusal_is_not_remembered")
class RemembersRefusals(Bent):
    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.refused = {}

    async def accept(self, address, event, overlap, owner, op, terms):
        if op in self.refused:
            return self.refused[op]
        answer = await super().accept(address, event, overlap, owner, op, terms)
        if op is not None and answer.status == "busy":
            self.refused[op] = answer
        return answer


@wrong("test_a_grant_repeated_after_it_was_lost")
class GrantsForEver(Bent):
    """Answers a repetition as it answered first, although the lease was lost meanwhile."""

    def __init__(self, *, clock):
        super().__init__(clock=clock)
        self.answers = {}

    async def accept(self, address, event, overlap, owner, op, terms):
        if (address, op) not in self.answers or op is None:
            self.answers[address, op] = await super().accept(address, event, overlap, owner, op, terms)
        return self.answers[address, op]


@wrong("test_a_refusal_is_not_remembered")
class OneOperationForAll(GrantsForEver):
    """Operation ids of one conversation are taken for those of another."""

    async def accept(self, address, event, overlap, owner, op, terms):
        if op is not None and (None, op) in self.answers:
            return self.answers[None, op]
        answer = await Bent.accept(self, address, event, overlap, owner, op, terms)
        self.answers[None, op] = answer
        return answer
