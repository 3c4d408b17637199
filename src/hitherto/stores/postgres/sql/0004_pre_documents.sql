-- The long way: load whole documents, put changed ones back if nobody was in between; and lists.
CREATE FUNCTION "hitherto".load_v1(moment double precision, digests bytea[]) RETURNS TABLE (
    place integer, at double precision, id bigint, version bigint, epoch bigint, owner text,
    deadline double precision, next_seq bigint, touched double precision, recorded boolean, flow text, state text,
    record_version bigint, names text[], texts text[], expires_at double precision,
    inbox_seqs bigint[], inbox_events text[], inbox_longs text[], inbox_payloads bytea[],
    inbox_accepted double precision[], inbox_attempts integer[], inbox_claimed boolean[],
    inbox_not_before double precision[], inbox_expires double precision[], inbox_lone double precision[],
    inbox_gathers text[], inbox_blocks boolean[],
    seen_events text[], seen_longs text[], seen_times double precision[],
    op_ids text[], op_times double precision[], op_statuses text[], op_epochs bigint[], op_seqs bigint[],
    op_claims text[],
    dead_seqs bigint[], dead_events text[], dead_longs text[], dead_payloads bytea[],
    dead_accepted double precision[], dead_attempts integer[], dead_errors text[], dead_times double precision[]
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.place::integer, coalesce(moment, extract(epoch FROM clock_timestamp())), d.id, d.version, d.epoch,
        d.owner, d.deadline, d.next_seq, d.touched, d.recorded, d.flow, d.state, d.record_version, d.names, d.texts,
        d.expires_at, i.*, s.*, o.*, l.*
    FROM unnest(digests) WITH ORDINALITY AS p (digest, place)
    LEFT JOIN "hitherto".document AS d ON d.digest = p.digest
    CROSS JOIN LATERAL (
        SELECT array_agg(e.seq ORDER BY e.seq), array_agg(e.event_id ORDER BY e.seq),
            array_agg(e.long_id ORDER BY e.seq), array_agg(e.payload ORDER BY e.seq),
            array_agg(e.accepted_at ORDER BY e.seq), array_agg(e.attempts ORDER BY e.seq),
            array_agg(e.claimed ORDER BY e.seq), array_agg(e.not_before ORDER BY e.seq),
            array_agg(e.expires_at ORDER BY e.seq), array_agg(e.lone_until ORDER BY e.seq),
            array_agg(e.gather ORDER BY e.seq), array_agg(e.blocks ORDER BY e.seq)
        FROM "hitherto".inbox AS e WHERE e.conversation = d.id
    ) AS i
    CROSS JOIN LATERAL (
        SELECT array_agg(e.event_id ORDER BY e.number), array_agg(e.long_id ORDER BY e.number),
            array_agg(e.at ORDER BY e.number)
        FROM "hitherto".seen AS e WHERE e.conversation = d.id
    ) AS s
    CROSS JOIN LATERAL (
        SELECT array_agg(e.id ORDER BY e.version), array_agg(e.at ORDER BY e.version),
            array_agg(e.status ORDER BY e.version), array_agg(e.epoch ORDER BY e.version),
            array_agg(e.seq ORDER BY e.version), array_agg(array_to_string(e.seqs, ',') ORDER BY e.version)
        FROM "hitherto".operation AS e WHERE e.conversation = d.id
    ) AS o
    CROSS JOIN LATERAL (
        SELECT array_agg(e.seq ORDER BY e.place), array_agg(e.event_id ORDER BY e.place),
            array_agg(e.long_id ORDER BY e.place), array_agg(e.payload ORDER BY e.place),
            array_agg(e.accepted_at ORDER BY e.place), array_agg(e.attempts ORDER BY e.place),
            array_agg(e.error ORDER BY e.place), array_agg(e.died_at ORDER BY e.place)
        FROM "hitherto".dead_letter AS e WHERE e.conversation = d.id
    ) AS l;
END
$$;

-- The record alone, for those who only read it.
CREATE FUNCTION "hitherto".read_v1(moment double precision, digests bytea[]) RETURNS TABLE (
    place integer, at double precision, recorded boolean, flow text, state text, record_version bigint,
    names text[], texts text[], expires_at double precision
)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT p.place::integer, coalesce(moment, extract(epoch FROM clock_timestamp())), d.recorded, d.flow, d.state,
        d.record_version, d.names, d.texts, d.expires_at
    FROM unnest(digests) WITH ORDINALITY AS p (digest, place)
    LEFT JOIN "hitherto".document AS d ON d.digest = p.digest;
END
$$;

-- Put changed documents back where the id and version are still those expected (0: there is none); true for each
-- that was written. What lies beside a document comes as what is gone and what is put, each with the document's place.
CREATE FUNCTION "hitherto".write_v1(
    digests bytea[], addresses text[], ids bigint[], expected bigint[], removals boolean[],
    versions bigint[], epochs bigint[], owners text[], deadlines double precision[], next_seqs bigint[],
    touches double precision[], wakes double precision[], rewrites boolean[], records boolean[],
    flows text[], states text[], record_versions bigint[], sizes integer[], expiries double precision[],
    field_places integer[], field_names text[], field_texts text[],
    inbox_gone_places integer[], inbox_gone bigint[],
    inbox_places integer[], inbox_seqs bigint[], inbox_events text[], inbox_longs text[], inbox_payloads bytea[],
    inbox_accepted double precision[], inbox_attempts integer[], inbox_claimed boolean[],
    inbox_not_before double precision[], inbox_expires double precision[], inbox_lone double precision[],
    inbox_gathers text[], inbox_blocks boolean[],
    seen_cleared boolean[], seen_counts integer[], seen_firsts double precision[],
    seen_gone_places integer[], seen_gone text[],
    seen_places integer[], seen_events text[], seen_longs text[], seen_times double precision[],
    op_gone_places integer[], op_gone text[],
    op_places integer[], op_ids text[], op_versions bigint[], op_times double precision[], op_statuses text[],
    op_epochs bigint[], op_seqs bigint[], op_claims text[],
    dead_gone_places integer[], dead_gone bigint[],
    dead_places integer[], dead_ranks bigint[], dead_seqs bigint[], dead_events text[], dead_longs text[],
    dead_payloads bytea[], dead_accepted double precision[], dead_attempts integer[], dead_errors text[],
    dead_times double precision[]
) RETURNS TABLE (place integer, written boolean)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    r record;
    locked bigint[];
    which bigint[] := array_fill(NULL::bigint, ARRAY[cardinality(digests)]);
    numbers bigint[] := array_fill(1::bigint, ARRAY[cardinality(digests)]);
BEGIN
    INSERT INTO "hitherto".document AS d (digest, address)
        SELECT DISTINCT ON (p.digest) p.digest, p.address
        FROM unnest(digests, addresses, ids, removals) AS p (digest, address, id, removal)
        WHERE p.id = 0 AND NOT p.removal
            AND NOT EXISTS (SELECT FROM "hitherto".document AS e WHERE e.digest = p.digest)
        ORDER BY p.digest
        ON CONFLICT (digest) DO NOTHING;
    SELECT array_agg(l.id) INTO locked FROM (
        SELECT d.id FROM "hitherto".document AS d WHERE d.digest = ANY (digests) ORDER BY d.digest FOR UPDATE
    ) AS l;
    FOR r IN
        SELECT p.place, d.id, d.seen_next, p.removal
        FROM unnest(digests, ids, expected, removals) WITH ORDINALITY AS p (digest, id, version, removal, place)
        JOIN "hitherto".document AS d ON d.digest = p.digest AND d.version = p.version AND d.id = ANY (locked)
        WHERE p.id = d.id OR p.id = 0 AND d.version = 0
    LOOP
        IF NOT r.id = ANY (array_remove(which, NULL)) THEN
            which[r.place] := r.id; numbers[r.place] := r.seen_next;
        END IF;
    END LOOP;

    DELETE FROM "hitherto".inbox AS e USING unnest(inbox_gone_places, inbox_gone) AS x (place, seq)
        WHERE e.conversation = which[x.place] AND e.seq = x.seq;
    INSERT INTO "hitherto".inbox AS e
        (conversation, seq, event_id, long_id, payload, accepted_at, attempts, claimed, not_before, expires_at,
        lone_until, gather, blocks)
        SELECT which[x.place], x.seq, x.event, x.long, x.payload, x.accepted, x.attempts, x.claimed, x.not_before,
            x.expires, x.lone, x.gather, x.blocks
        FROM unnest(inbox_places, inbox_seqs, inbox_events, inbox_longs, inbox_payloads, inbox_accepted,
                inbox_attempts, inbox_claimed, inbox_not_before, inbox_expires, inbox_lone, inbox_gathers,
                inbox_blocks)
            AS x (place, seq, event, long, payload, accepted, attempts, claimed, not_before, expires, lone, gather,
                blocks)
        WHERE which[x.place] IS NOT NULL
        ON CONFLICT (conversation, seq) DO UPDATE SET event_id = excluded.event_id, long_id = excluded.long_id,
            payload = excluded.payload, accepted_at = excluded.accepted_at, attempts = excluded.attempts,
            claimed = excluded.claimed, not_before = excluded.not_before, expires_at = excluded.expires_at,
            lone_until = excluded.lone_until, gather = excluded.gather, blocks = excluded.blocks;

    DELETE FROM "hitherto".seen AS e USING unnest(which, seen_cleared) AS x (id, cleared)
        WHERE x.cleared AND e.conversation = x.id;
    DELETE FROM "hitherto".seen AS e USING unnest(seen_gone_places, seen_gone) AS x (place, event)
        WHERE e.conversation = which[x.place] AND e.event_id = x.event;
    INSERT INTO "hitherto".seen (conversation, event_id, long_id, number, at)
        SELECT which[x.place], x.event, x.long, numbers[x.place] + x.n, x.at
        FROM unnest(seen_places, seen_events, seen_longs, seen_times) WITH ORDINALITY AS x (place, event, long, at, n)
        WHERE which[x.place] IS NOT NULL;

    DELETE FROM "hitherto".operation AS e USING unnest(op_gone_places, op_gone) AS x (place, id)
        WHERE e.conversation = which[x.place] AND e.id = x.id;
    INSERT INTO "hitherto".operation (conversation, id, version, at, status, epoch, seq, seqs)
        SELECT which[x.place], x.id, x.version, x.at, x.status, x.epoch, x.seq,
            string_to_array(x.claim, ',')::bigint[]
        FROM unnest(op_places, op_ids, op_versions, op_times, op_statuses, op_epochs, op_seqs, op_claims)
            AS x (place, id, version, at, status, epoch, seq, claim)
        WHERE which[x.place] IS NOT NULL
        ON CONFLICT (conversation, id) DO NOTHING;

    DELETE FROM "hitherto".dead_letter AS e USING unnest(dead_gone_places, dead_gone) AS x (place, seq)
        WHERE e.conversation = which[x.place] AND e.seq = x.seq;
    INSERT INTO "hitherto".dead_letter
        (conversation, seq, place, event_id, long_id, payload, accepted_at, attempts, error, died_at)
        SELECT which[x.place], x.seq, x.rank + coalesce((
                SELECT max(l.place) FROM "hitherto".dead_letter AS l WHERE l.conversation = which[x.place]
            ), 0), x.event, x.long, x.payload, x.accepted, x.attempts, x.error, x.died
        FROM unnest(dead_places, dead_ranks, dead_seqs, dead_events, dead_longs, dead_payloads, dead_accepted,
                dead_attempts, dead_errors, dead_times)
            AS x (place, rank, seq, event, long, payload, accepted, attempts, error, died)
        WHERE which[x.place] IS NOT NULL;

    DELETE FROM "hitherto".wake AS w USING unnest(which, wakes, removals) AS x (id, at, removal)
        WHERE w.conversation = x.id AND (x.at IS NULL OR x.removal);
    INSERT INTO "hitherto".wake AS w (conversation, at)
        SELECT x.id, x.at FROM unnest(which, wakes, removals) AS x (id, at, removal)
        WHERE x.id IS NOT NULL AND x.at IS NOT NULL AND NOT x.removal
        ON CONFLICT (conversation) DO UPDATE SET at = excluded.at;

    UPDATE "hitherto".document AS d
        SET version = x.version, epoch = x.epoch, owner = x.owner, deadline = x.deadline, next_seq = x.next_seq,
            touched = x.touched, seen_count = x.seen_count, seen_oldest = x.seen_oldest,
            seen_next = d.seen_next + coalesce(cardinality(seen_places), 0) + 1,
            recorded = CASE WHEN x.rewritten THEN x.recorded ELSE d.recorded END,
            flow = CASE WHEN x.rewritten THEN x.flow ELSE d.flow END,
            state = CASE WHEN x.rewritten THEN x.state ELSE d.state END,
            record_version = CASE WHEN x.rewritten THEN x.record_version ELSE d.record_version END,
            size = CASE WHEN x.rewritten THEN x.size ELSE d.size END,
            expires_at = CASE WHEN x.rewritten THEN x.expires_at ELSE d.expires_at END,
            names = CASE WHEN x.rewritten THEN coalesce(g.names, '{}') ELSE d.names END,
            texts = CASE WHEN x.rewritten THEN coalesce(g.texts, '{}') ELSE d.texts END
        FROM unnest(which, versions, epochs, owners, deadlines, next_seqs, touches, rewrites, records, flows, states,
                record_versions, sizes, expiries, seen_counts, seen_firsts)
            WITH ORDINALITY AS x (id, version, epoch, owner, deadline, next_seq, touched, rewritten, recorded, flow,
                state, record_version, size, expires_at, seen_count, seen_oldest, place)
            LEFT JOIN (
                SELECT f.place, array_agg(f.name ORDER BY f.n) AS names, array_agg(f.exact ORDER BY f.n) AS texts
                FROM unnest(field_places, field_names, field_texts) WITH ORDINALITY AS f (place, name, exact, n)
                GROUP BY f.place
            ) AS g ON g.place = x.place
        WHERE d.id = x.id;
    DELETE FROM "hitherto".document AS d USING unnest(which, removals) AS x (id, removal)
        WHERE d.id = x.id AND x.removal;
    RETURN QUERY SELECT x.place::integer, x.id IS NOT NULL FROM unnest(which) WITH ORDINALITY AS x (id, place);
END
$$;

-- Push the deadlines of leases that are still held; the places of those that are.
CREATE FUNCTION "hitherto".renew_v1(
    moment double precision, lease double precision, digests bytea[], epochs bigint[], claims text[]
) RETURNS TABLE (place integer)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_hashjoin = off
SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now double precision;
    locked bigint[];
BEGIN
    SELECT array_agg(l.id) INTO locked FROM (
        SELECT d.id FROM "hitherto".document AS d WHERE d.digest = ANY (digests) ORDER BY d.digest FOR NO KEY UPDATE
    ) AS l;
    now := coalesce(moment, extract(epoch FROM clock_timestamp()));
    RETURN QUERY
    WITH good AS MATERIALIZED (
        SELECT p.place, d.id
        FROM unnest(digests, epochs, claims) WITH ORDINALITY AS p (digest, epoch, claim, place)
        JOIN "hitherto".document AS d
            ON d.digest = p.digest AND d.id = ANY (locked) AND d.epoch = p.epoch AND d.deadline IS NOT NULL
        WHERE p.claim::bigint[] = ARRAY(
            SELECT e.seq FROM "hitherto".inbox AS e WHERE e.conversation = d.id AND e.claimed ORDER BY e.seq
        )
    ), pushed AS (
        UPDATE "hitherto".document AS d SET deadline = now + lease, touched = now, version = d.version + 1
        FROM good AS g WHERE d.id = g.id
    ), woken AS (
        UPDATE "hitherto".wake AS w SET at = now + lease FROM good AS g WHERE w.conversation = g.id
    )
    SELECT g.place::integer FROM good AS g;
END
$$;

-- The next conversations of a bot behind an address, and whether something is over in each.
CREATE FUNCTION "hitherto".tidy_v1(
    moment double precision, low text, high text, behind text, upto integer, seen_age double precision,
    ops_age double precision, tombstone double precision
) RETURNS TABLE (address text, stale boolean)
LANGUAGE plpgsql STABLE
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now double precision := coalesce(moment, extract(epoch FROM clock_timestamp()));
BEGIN
    RETURN QUERY
    SELECT p.address, coalesce(
        p.recorded AND p.expires_at <= now OR p.seen_oldest <= now - seen_age
        OR p.deadline <= now AND NOT EXISTS (SELECT FROM "hitherto".inbox AS e WHERE e.conversation = p.id)
        OR EXISTS (SELECT FROM "hitherto".operation AS o WHERE o.conversation = p.id AND o.at <= now - ops_age)
        OR p.deadline IS NULL AND NOT p.recorded AND p.seen_count = 0
            AND (p.epoch = 0 OR p.touched <= now - tombstone), false)
    FROM (
        SELECT * FROM "hitherto".document AS d
        WHERE left(d.address, 600) COLLATE "C" >= left(greatest(behind, low), 600) COLLATE "C"
            AND left(d.address, 600) COLLATE "C" < high COLLATE "C" AND d.address COLLATE "C" > behind COLLATE "C"
            AND d.address COLLATE "C" >= low COLLATE "C" AND d.address COLLATE "C" < high COLLATE "C"
        ORDER BY left(d.address, 600) COLLATE "C", d.address COLLATE "C" LIMIT upto
    ) AS p;
END
$$;
