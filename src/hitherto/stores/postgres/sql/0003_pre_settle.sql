-- Forget the oldest seen ids of a conversation beyond the limit, and those that are too old.
CREATE FUNCTION "hitherto".trim_seen_v1(which bigint, seen_limit integer, horizon double precision) RETURNS void
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    known record;
    upto bigint;
    gone integer;
    first record;
BEGIN
    SELECT d.seen_count, d.seen_floor INTO known FROM "hitherto".document AS d WHERE d.id = which;
    SELECT max(o.number) INTO upto FROM (
        SELECT s.number FROM "hitherto".seen AS s WHERE s.conversation = which AND s.number >= known.seen_floor
        ORDER BY s.number LIMIT greatest(known.seen_count - seen_limit, 0)
    ) AS o;
    SELECT s.number INTO first FROM "hitherto".seen AS s
        WHERE s.conversation = which AND s.number > coalesce(upto, known.seen_floor - 1) AND s.at > horizon
        ORDER BY s.number LIMIT 1;
    DELETE FROM "hitherto".seen AS s
        WHERE s.conversation = which AND s.number < coalesce(first.number, 9223372036854775807);
    GET DIAGNOSTICS gone = ROW_COUNT;
    UPDATE "hitherto".document AS d
        SET seen_count = d.seen_count - gone, seen_floor = coalesce(first.number, d.seen_next),
            seen_oldest = (
                SELECT s.at FROM "hitherto".seen AS s
                WHERE s.conversation = which AND s.number = first.number
            )
        WHERE d.id = which;
END
$$;

-- Settle turns of many conversations in one call: each answers as hitherto.protocol.settle does, or 'slow'.
-- Patches are laid end to end: item n sets set_names[k] to set_texts[k] for set_upto[n-1] < k <= set_upto[n].
CREATE FUNCTION "hitherto".settle_v1(
    moment double precision,
    lease double precision,
    max_attempts integer,
    seen_limit integer,
    seen_age double precision,
    ops_age double precision,
    ops_limit integer,
    record_ttl double precision,
    max_size integer,
    digests bytea[],
    operations text[],
    epochs bigint[],
    claims text[],
    verdicts text[],
    delays double precision[],
    keeps boolean[],
    patched boolean[],
    cleared boolean[],
    moved boolean[],
    flows text[],
    states text[],
    record_versions bigint[],
    set_upto integer[],
    set_names text[],
    set_texts text[],
    removed_upto integer[],
    removed text[]
) RETURNS TABLE (
    place integer, status text, depth integer, wake_at double precision, at double precision,
    epoch bigint, deadline double precision, recorded boolean, flow text, state text, record_version bigint,
    names text[], texts text[], expires_at double precision, seq bigint, event_id text, long_id text,
    payload bytea, accepted_at double precision, attempts integer, not_before double precision,
    entry_expires_at double precision, gather text, blocks boolean
)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    r record;
    locked bigint[];
    now double precision;
    last_id bigint := -1;
    changed boolean;
    slow boolean;
    keeps_lease boolean;
    new_size integer;
    version bigint;
    k integer;
    done_ids bigint[] := '{}'; done_seqs bigint[] := '{}'; back_ids bigint[] := '{}'; back_seqs bigint[] := '{}';
    back_until double precision[] := '{}'; next_ids bigint[] := '{}'; next_seqs bigint[] := '{}';
    mark_ids bigint[] := '{}'; mark_events text[] := '{}'; mark_longs text[] := '{}';
    mark_numbers bigint[] := '{}'; full_ids bigint[] := '{}'; free_ids bigint[] := '{}';
    wake_ids bigint[] := '{}'; wake_times double precision[] := '{}';
    o_place integer[] := '{}'; o_id bigint[] := '{}'; o_version bigint[] := '{}'; o_epoch bigint[] := '{}';
    o_next bigint[] := '{}'; t_id bigint[] := '{}'; t_version bigint[] := '{}';
BEGIN
    SELECT array_agg(l.id) INTO locked FROM (
        SELECT d.id FROM "hitherto".document AS d WHERE d.digest = ANY (digests) ORDER BY d.digest FOR NO KEY UPDATE
    ) AS l;
    now := coalesce(moment, extract(epoch FROM clock_timestamp()));

    -- A statement of its own, so that it sees what was committed while the locks were waited for; see accept_v1.
    FOR r IN
        SELECT p.place, p.op, p.epoch AS shown, p.claim::bigint[] AS claim, p.verdict, p.delay, p.keep, p.patched,
            p.cleared, p.moved, p.set_upto, p.removed_upto, d.id, d.version, d.epoch, d.deadline, d.owner,
            d.recorded, d.flow, d.state, d.record_version, d.names, d.texts, d.size, d.expires_at, d.seen_count,
            d.seen_next, d.seen_oldest, i.*, n.seq AS next_seq, n.event_id AS next_event, n.long_id AS next_long,
            n.payload, n.accepted_at, n.attempts, n.not_before, n.expires_at AS next_expires, n.gather,
            EXISTS (
                SELECT FROM "hitherto".operation AS o WHERE o.conversation = d.id AND o.id = p.op
            ) AS repeated,
            EXISTS (
                SELECT FROM "hitherto".seen AS s WHERE s.conversation = d.id AND s.event_id = ANY (i.events)
            ) AS marked
        FROM unnest(digests, operations, epochs, claims, verdicts, delays, keeps, patched, cleared, moved, set_upto,
                removed_upto)
            WITH ORDINALITY AS p (digest, op, epoch, claim, verdict, delay, keep, patched, cleared, moved, set_upto,
                removed_upto, place)
        JOIN "hitherto".document AS d ON d.digest = p.digest AND d.id = ANY (locked)
        CROSS JOIN LATERAL (
            SELECT coalesce(array_agg(e.seq ORDER BY e.seq) FILTER (WHERE e.claimed), '{}') AS mine,
                array_agg(e.event_id ORDER BY e.seq) FILTER (WHERE e.claimed) AS events,
                array_agg(e.long_id ORDER BY e.seq) FILTER (WHERE e.claimed) AS longs,
                coalesce(max(e.attempts) FILTER (WHERE e.claimed), 0) AS tries,
                count(*)::integer AS total,
                (count(*) FILTER (WHERE NOT e.claimed))::integer AS waiting,
                min(e.not_before) FILTER (WHERE NOT e.claimed) AS soonest,
                min(e.seq) FILTER (WHERE NOT e.claimed AND e.not_before <= now) AS due,
                coalesce(bool_or(e.lone_until IS NOT NULL OR e.blocks
                    OR e.expires_at <= now AND NOT e.claimed), false) AS odd
            FROM "hitherto".inbox AS e WHERE e.conversation = d.id
        ) AS i
        LEFT JOIN "hitherto".inbox AS n ON n.conversation = d.id AND n.seq = i.due
        ORDER BY p.digest, p.place
    LOOP
        IF r.id <> last_id THEN
            last_id := r.id; changed := false;
        END IF;
        place := r.place; at := now; epoch := r.epoch; deadline := NULL; seq := NULL;
        IF changed OR r.odd OR r.repeated THEN
            status := 'slow';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF r.deadline IS NULL OR r.epoch <> r.shown OR r.mine <> r.claim THEN
            status := 'fenced'; depth := r.waiting; wake_at := coalesce(r.deadline, r.soonest);
            RETURN NEXT;
            CONTINUE;
        END IF;

        slow := r.marked OR (r.patched AND r.recorded AND r.expires_at <= now) IS TRUE
            OR r.due IS NOT NULL AND r.keep AND (r.gather = 'burst' OR r.attempts >= max_attempts);
        IF r.verdict <> 'done' AND r.total > r.waiting THEN
            slow := slow OR r.verdict <> 'retry' OR r.delay <= 0 OR r.tries >= max_attempts;
        END IF;
        recorded := r.recorded; flow := r.flow; state := r.state; record_version := r.record_version;
        names := r.names; texts := r.texts; expires_at := r.expires_at; new_size := r.size;
        IF r.patched AND NOT slow THEN
            IF r.cleared OR NOT r.recorded THEN
                flow := NULL; state := NULL; record_version := 1; names := '{}'; texts := '{}';
                expires_at := NULL; new_size := 0;
            END IF;
            FOR j IN coalesce(set_upto[r.place - 1], 0) + 1 .. r.set_upto LOOP
                k := array_position(names, set_names[j]);
                IF k IS NULL THEN
                    names := array_append(names, set_names[j]); texts := array_append(texts, set_texts[j]);
                    new_size := new_size + char_length(set_names[j]) + octet_length(set_texts[j]);
                ELSE
                    new_size := new_size + octet_length(set_texts[j]) - octet_length(texts[k]);
                    texts[k] := set_texts[j];
                END IF;
            END LOOP;
            FOR j IN coalesce(removed_upto[r.place - 1], 0) + 1 .. r.removed_upto LOOP
                k := array_position(names, removed[j]);
                IF k IS NOT NULL THEN
                    new_size := new_size - char_length(names[k]) - octet_length(texts[k]);
                    names := names[:k - 1] || names[k + 1:]; texts := texts[:k - 1] || texts[k + 1:];
                END IF;
            END LOOP;
            recorded := true;
            IF r.moved THEN
                flow := flows[r.place]; state := states[r.place]; record_version := record_versions[r.place];
            ELSIF r.cleared AND names = '{}' THEN
                recorded := false;
            END IF;
            IF recorded AND record_ttl IS NOT NULL THEN
                expires_at := now + record_ttl;
            END IF;
            slow := new_size > max_size;
        END IF;
        IF slow THEN
            status := 'slow';
            RETURN NEXT;
            CONTINUE;
        END IF;

        changed := true; status := 'committed'; version := r.version + 1;
        keeps_lease := r.keep AND r.due IS NOT NULL;
        depth := r.waiting; wake_at := r.soonest;
        IF r.total > r.waiting THEN
            IF r.verdict = 'done' THEN
                done_ids := array_append(done_ids, r.id); done_seqs := done_seqs || r.mine;
                IF array_length(r.mine, 1) > 1 THEN
                    done_ids := done_ids || array_fill(r.id, ARRAY[array_length(r.mine, 1) - 1]);
                END IF;
                k := 0;
                FOR j IN 1 .. array_length(r.mine, 1) LOOP
                    IF r.events[j] IS NOT NULL THEN
                        mark_ids := array_append(mark_ids, r.id);
                        mark_events := array_append(mark_events, r.events[j]);
                        mark_longs := array_append(mark_longs, r.longs[j]);
                        mark_numbers := array_append(mark_numbers, r.seen_next + k);
                        k := k + 1;
                    END IF;
                END LOOP;
                IF r.seen_count + k > seen_limit OR r.seen_oldest <= now - seen_age OR seen_age <= 0 THEN
                    full_ids := array_append(full_ids, r.id);
                END IF;
            ELSE
                FOR j IN 1 .. array_length(r.mine, 1) LOOP
                    back_ids := array_append(back_ids, r.id);
                    back_seqs := array_append(back_seqs, r.mine[j]);
                    back_until := array_append(back_until, now + r.delay);
                END LOOP;
                k := 0; depth := depth + array_length(r.mine, 1); wake_at := least(wake_at, now + r.delay);
            END IF;
        ELSE
            k := 0;
        END IF;
        IF keeps_lease THEN
            deadline := now + lease; depth := depth - 1; wake_at := deadline;
            next_ids := array_append(next_ids, r.id); next_seqs := array_append(next_seqs, r.due);
            seq := r.due; event_id := r.next_event; long_id := r.next_long; payload := r.payload;
            accepted_at := r.accepted_at; attempts := r.attempts + 1; not_before := r.not_before;
            entry_expires_at := r.next_expires; gather := r.gather; blocks := false;
        END IF;
        IF wake_at IS NULL THEN
            free_ids := array_append(free_ids, r.id);
        ELSE
            wake_ids := array_append(wake_ids, r.id); wake_times := array_append(wake_times, wake_at);
        END IF;
        o_place := array_append(o_place, r.place::integer); o_id := array_append(o_id, r.id);
        o_version := array_append(o_version, version);
        o_epoch := array_append(o_epoch, CASE WHEN keeps_lease THEN r.epoch ELSE 0 END);
        o_next := array_append(o_next, seq);
        IF version % ops_limit = 0 THEN
            t_id := array_append(t_id, r.id); t_version := array_append(t_version, version);
        END IF;
        IF r.patched THEN
            UPDATE "hitherto".document AS d
                SET version = r.version + 1, owner = CASE WHEN keeps_lease THEN d.owner END,
                    deadline = settle_v1.deadline, touched = now, recorded = settle_v1.recorded,
                    flow = settle_v1.flow, state = settle_v1.state, record_version = settle_v1.record_version,
                    names = settle_v1.names, texts = settle_v1.texts, size = new_size,
                    expires_at = settle_v1.expires_at, seen_count = d.seen_count + k, seen_next = d.seen_next + k,
                    seen_oldest = CASE WHEN d.seen_count = 0 AND k > 0 THEN now ELSE d.seen_oldest END
                WHERE d.id = r.id;
        ELSE
            UPDATE "hitherto".document AS d
                SET version = r.version + 1, owner = CASE WHEN keeps_lease THEN d.owner END,
                    deadline = settle_v1.deadline, touched = now,
                    seen_count = d.seen_count + k, seen_next = d.seen_next + k,
                    seen_oldest = CASE WHEN d.seen_count = 0 AND k > 0 THEN now ELSE d.seen_oldest END
                WHERE d.id = r.id;
        END IF;
        recorded := recorded AND (expires_at > now) IS NOT FALSE;
        RETURN NEXT;
    END LOOP;
    IF o_id = '{}' THEN
        RETURN;
    END IF;

    DELETE FROM "hitherto".inbox AS e USING unnest(done_ids, done_seqs) AS x (id, seq)
        WHERE e.conversation = x.id AND e.seq = x.seq;
    INSERT INTO "hitherto".seen (conversation, event_id, long_id, number, at)
        SELECT x.id, x.event, x.long, x.number, now
        FROM unnest(mark_ids, mark_events, mark_longs, mark_numbers) AS x (id, event, long, number);
    IF back_ids <> '{}' THEN
        UPDATE "hitherto".inbox AS e
            SET claimed = false, not_before = x.until, expires_at = NULL, blocks = false
            FROM unnest(back_ids, back_seqs, back_until) AS x (id, seq, until)
            WHERE e.conversation = x.id AND e.seq = x.seq;
    END IF;
    IF next_ids <> '{}' THEN
        UPDATE "hitherto".inbox AS e SET claimed = true, attempts = e.attempts + 1
            FROM unnest(next_ids, next_seqs) AS x (id, seq)
            WHERE e.conversation = x.id AND e.seq = x.seq;
    END IF;
    INSERT INTO "hitherto".operation (conversation, id, version, at, status, epoch, seq, seqs)
        SELECT o.id, operations[o.place], o.version, now, 'committed', o.epoch, -1,
            CASE WHEN o.next IS NULL THEN '{}' ELSE ARRAY[o.next] END
        FROM unnest(o_place, o_id, o_version, o_epoch, o_next) AS o (place, id, version, epoch, next)
        WHERE operations[o.place] IS NOT NULL;
    IF free_ids <> '{}' THEN
        DELETE FROM "hitherto".wake AS w WHERE w.conversation = ANY (free_ids);
    END IF;
    IF wake_ids <> '{}' THEN
        INSERT INTO "hitherto".wake AS w (conversation, at)
            SELECT x.id, x.at FROM unnest(wake_ids, wake_times) AS x (id, at)
            ON CONFLICT (conversation) DO UPDATE SET at = excluded.at;
    END IF;
    FOR r IN SELECT x.id FROM unnest(full_ids) AS x (id) LOOP
        PERFORM "hitherto".trim_seen_v1(r.id, seen_limit, now - seen_age);
    END LOOP;
    IF t_id <> '{}' THEN
        DELETE FROM "hitherto".operation AS o USING unnest(t_id, t_version) AS t (id, version)
            WHERE o.conversation = t.id AND (o.version <= t.version - 2 * ops_limit OR o.at <= now - ops_age);
    END IF;
END
$$;
