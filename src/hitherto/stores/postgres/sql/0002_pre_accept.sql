-- Accept events of many conversations in one call: each answers as hitherto.protocol.accept does, or 'slow', which
-- changes nothing and sends the caller the long way (load, decide, compare and swap).
CREATE FUNCTION "hitherto".accept_v1(
    moment double precision,
    lease double precision,
    seen_age double precision,
    ops_age double precision,
    ops_limit integer,
    digests bytea[],
    addresses text[],
    operations text[],
    event_ids text[],
    long_ids text[],
    payloads bytea[],
    owners text[],
    policies text[],
    limits integer[],
    expiries double precision[],
    flows jsonb[]
) RETURNS TABLE (
    place integer, status text, seq bigint, epoch bigint, deadline double precision, depth integer,
    wake_at double precision, at double precision, recorded boolean, flow text, state text,
    record_version bigint, names text[], texts text[], expires_at double precision
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
    slow boolean;
    held double precision;
    total integer;
    waiting integer;
    next_seq bigint;
    fresh text[];
    policy text;
    room integer;
    expiry double precision;
    top integer := 0;
    u_id bigint[] := '{}'; u_version bigint[] := '{}'; u_epoch bigint[] := '{}'; u_owner text[] := '{}';
    u_deadline double precision[] := '{}'; u_next bigint[] := '{}'; u_granted boolean[] := '{}';
    i_place integer[] := '{}'; i_id bigint[] := '{}'; i_seq bigint[] := '{}'; i_claimed boolean[] := '{}';
    i_expires double precision[] := '{}'; i_gather text[] := '{}'; i_version bigint[] := '{}';
    i_epoch bigint[] := '{}'; t_id bigint[] := '{}'; t_version bigint[] := '{}';
BEGIN
    INSERT INTO "hitherto".document AS d (digest, address)
        SELECT DISTINCT ON (p.digest) p.digest, p.address
        FROM unnest(digests, addresses, policies) AS p (digest, address, policy)
        WHERE p.policy <> 'slow'
            AND NOT EXISTS (SELECT FROM "hitherto".document AS e WHERE e.digest = p.digest)
        ORDER BY p.digest
        ON CONFLICT (digest) DO NOTHING;
    SELECT array_agg(l.id) INTO locked FROM (
        SELECT d.id FROM "hitherto".document AS d WHERE d.digest = ANY (digests) ORDER BY d.digest FOR NO KEY UPDATE
    ) AS l;
    now := coalesce(moment, extract(epoch FROM clock_timestamp()));

    -- A statement of its own, so that it sees what was committed while the locks were waited for. Only what is
    -- locked counts: another document of the same address may have come in place of one that was removed.
    FOR r IN
        SELECT p.place, p.op, p.event_id, p.owner, p.policy, p.room, p.expiry, p.flows, d.id, d.version, d.epoch,
            d.deadline, d.next_seq, d.recorded AND (d.expires_at > now) IS NOT FALSE AS recorded, d.flow, d.state,
            d.record_version, d.names, d.texts, d.expires_at, i.total, i.waiting, i.odd, i.present,
            EXISTS (
                SELECT FROM "hitherto".operation AS o WHERE o.conversation = d.id AND o.id = p.op
            ) AS repeated,
            EXISTS (
                SELECT FROM "hitherto".seen AS s
                WHERE s.conversation = d.id AND s.event_id = p.event_id AND s.at > now - seen_age
            ) AS seen
        FROM unnest(digests, operations, event_ids, owners, policies, limits, expiries, flows)
            WITH ORDINALITY AS p (digest, op, event_id, owner, policy, room, expiry, flows, place)
        JOIN "hitherto".document AS d ON d.digest = p.digest AND d.id = ANY (locked)
        CROSS JOIN LATERAL (
            SELECT count(*)::integer AS total,
                (count(*) FILTER (WHERE NOT e.claimed AND e.lone_until IS NULL))::integer AS waiting,
                coalesce(bool_or(e.lone_until IS NOT NULL OR e.expires_at <= now AND NOT e.claimed), false) AS odd,
                coalesce(bool_or(e.event_id = p.event_id), false) AS present
            FROM "hitherto".inbox AS e WHERE e.conversation = d.id
        ) AS i
        ORDER BY p.digest, p.place
    LOOP
        IF r.id <> last_id THEN
            last_id := r.id; slow := false; held := r.deadline; total := r.total; waiting := r.waiting;
            next_seq := r.next_seq; fresh := '{}';
        END IF;
        policy := r.policy; room := r.room; expiry := r.expiry;
        IF r.flows IS NOT NULL AND r.recorded AND r.flows ? r.flow THEN
            policy := r.flows -> r.flow ->> 0;
            room := r.flows -> r.flow ->> 1;
            expiry := r.flows -> r.flow ->> 2;
        END IF;
        place := r.place; at := now; seq := -1; epoch := NULL; deadline := NULL; recorded := false;
        flow := NULL; state := NULL; record_version := NULL; names := NULL; texts := NULL; expires_at := NULL;
        status := NULL;

        IF slow OR r.odd OR r.repeated THEN
            status := 'slow';
        ELSIF r.seen THEN
            status := CASE WHEN held IS NOT NULL OR total = 0 THEN 'duplicate' ELSE 'slow' END;
        ELSIF r.present OR r.event_id = ANY (fresh) THEN
            status := CASE WHEN held > now THEN 'duplicate' ELSE 'slow' END;
        ELSIF policy = 'slow' THEN
            status := 'slow';
        ELSIF held > now THEN
            status := CASE
                WHEN policy = 'reject' THEN 'busy'
                WHEN policy NOT IN ('queue', 'drop') THEN 'slow'
                WHEN waiting < room THEN 'queued'
                WHEN policy = 'queue' THEN 'full'
                ELSE 'slow'
            END;
        ELSE
            status := CASE WHEN total = 0 THEN 'granted' ELSE 'slow' END;
        END IF;

        IF status = 'slow' THEN
            slow := true;
        ELSIF status IN ('granted', 'queued') THEN
            seq := next_seq; next_seq := next_seq + 1; total := total + 1;
            fresh := array_append(fresh, r.event_id);
            IF top = 0 OR u_id[top] <> r.id THEN
                top := top + 1;
                u_id[top] := r.id; u_version[top] := r.version; u_epoch[top] := r.epoch; u_owner[top] := NULL;
                u_deadline[top] := NULL; u_granted[top] := false;
            END IF;
            u_version[top] := u_version[top] + 1; u_next[top] := next_seq;
            IF u_version[top] % ops_limit = 0 THEN
                t_id := array_append(t_id, r.id); t_version := array_append(t_version, u_version[top]);
            END IF;
            IF status = 'granted' THEN
                held := now + lease; epoch := r.epoch + 1; deadline := held;
                u_epoch[top] := epoch; u_owner[top] := r.owner; u_deadline[top] := held; u_granted[top] := true;
                recorded := r.recorded; flow := r.flow; state := r.state; record_version := r.record_version;
                names := r.names; texts := r.texts; expires_at := r.expires_at;
            ELSE
                waiting := waiting + 1;
            END IF;
            i_place := array_append(i_place, r.place::integer); i_id := array_append(i_id, r.id);
            i_seq := array_append(i_seq, seq); i_claimed := array_append(i_claimed, status = 'granted');
            i_expires := array_append(i_expires, CASE WHEN status = 'queued' THEN now + expiry END);
            i_gather := array_append(i_gather, CASE WHEN policy = 'burst' THEN 'burst' ELSE '' END);
            i_version := array_append(i_version, u_version[top]);
            i_epoch := array_append(i_epoch, coalesce(epoch, 0));
        END IF;
        depth := waiting; wake_at := held;
        RETURN NEXT;
    END LOOP;
    IF top = 0 THEN
        RETURN;
    END IF;

    UPDATE "hitherto".document AS d
        SET version = u.version, epoch = u.epoch, next_seq = u.next_seq, touched = now,
            owner = CASE WHEN u.granted THEN u.owner ELSE d.owner END,
            deadline = CASE WHEN u.granted THEN u.deadline ELSE d.deadline END
        FROM unnest(u_id, u_version, u_epoch, u_owner, u_deadline, u_next, u_granted)
            AS u (id, version, epoch, owner, deadline, next_seq, granted)
        WHERE d.id = u.id;
    INSERT INTO "hitherto".inbox
        (conversation, seq, event_id, long_id, payload, accepted_at, attempts, claimed, expires_at, gather)
        SELECT i.id, i.seq, event_ids[i.place], long_ids[i.place], payloads[i.place], now, i.claimed::integer,
            i.claimed, i.expires_at, i.gather
        FROM unnest(i_place, i_id, i_seq, i_claimed, i_expires, i_gather)
            AS i (place, id, seq, claimed, expires_at, gather);
    INSERT INTO "hitherto".operation (conversation, id, version, at, status, epoch, seq, seqs)
        SELECT i.id, operations[i.place], i.version, now, CASE WHEN i.claimed THEN 'granted' ELSE 'queued' END,
            i.epoch, i.seq, CASE WHEN i.claimed THEN ARRAY[i.seq] ELSE '{}' END
        FROM unnest(i_place, i_id, i_seq, i_claimed, i_version, i_epoch)
            AS i (place, id, seq, claimed, version, epoch)
        WHERE operations[i.place] IS NOT NULL;
    INSERT INTO "hitherto".wake AS w (conversation, at)
        SELECT u.id, u.deadline FROM unnest(u_id, u_deadline, u_granted) AS u (id, deadline, granted)
        WHERE u.granted
        ON CONFLICT (conversation) DO UPDATE SET at = excluded.at;
    IF t_id <> '{}' THEN
        DELETE FROM "hitherto".operation AS o USING unnest(t_id, t_version) AS t (id, version)
            WHERE o.conversation = t.id AND (o.version <= t.version - 2 * ops_limit OR o.at <= now - ops_age);
    END IF;
END
$$;
