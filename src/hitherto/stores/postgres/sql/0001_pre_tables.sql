-- What is kept about conversations. Times are seconds since 1970 by the server's clock. Text that holds the
-- character NUL, which PostgreSQL cannot, has SUB 0 (0x1A 0x30) in its place, and SUB 1 in the place of SUB.

CREATE TABLE "hitherto".document (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    address text NOT NULL,
    version bigint NOT NULL DEFAULT 0,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    deadline double precision,
    next_seq bigint NOT NULL DEFAULT 1,
    touched double precision NOT NULL DEFAULT 0,
    recorded boolean NOT NULL DEFAULT false,
    flow text,
    state text,
    record_version bigint NOT NULL DEFAULT 1,
    names text[] NOT NULL DEFAULT '{}',
    texts text[] NOT NULL DEFAULT '{}',
    size integer NOT NULL DEFAULT 0,
    expires_at double precision,
    seen_count integer NOT NULL DEFAULT 0,
    seen_floor bigint NOT NULL DEFAULT 1,
    seen_next bigint NOT NULL DEFAULT 1,
    seen_oldest double precision
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.1);

COMMENT ON TABLE "hitherto".document IS
    'One conversation: its lease (owner, deadline) and epoch, and its record; names and texts are the top-level '
    'keys of its data and the exact JSON text of each. Read it through the view conversation.';
COMMENT ON COLUMN "hitherto".document.digest IS 'SHA-256 of the address, which may be longer than an index takes.';

CREATE INDEX document_address ON "hitherto".document (left(address, 600) COLLATE "C");

-- Whoever is in this small table must be looked at when its time has come: it is what the sweeper reads.
CREATE TABLE "hitherto".wake (
    conversation bigint PRIMARY KEY,
    at double precision NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

CREATE INDEX wake_at ON "hitherto".wake (at);

-- Accepted events that are not committed yet: claimed by the holder of the lease, lone (running without one) or waiting.
CREATE TABLE "hitherto".inbox (
    conversation bigint NOT NULL,
    seq bigint NOT NULL,
    event_id text,
    long_id text,
    payload bytea NOT NULL,
    accepted_at double precision NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    claimed boolean NOT NULL DEFAULT false,
    not_before double precision NOT NULL DEFAULT 0,
    expires_at double precision,
    lone_until double precision,
    gather text NOT NULL DEFAULT '',
    blocks boolean NOT NULL DEFAULT false,
    PRIMARY KEY (conversation, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

COMMENT ON COLUMN "hitherto".inbox.long_id IS
    'The event id where it is too long for an index; event_id is then SUB 2 and its SHA-256.';

-- The window of event ids already handled, numbered in the order in which they were marked.
CREATE TABLE "hitherto".seen (
    conversation bigint NOT NULL,
    event_id text NOT NULL,
    long_id text,
    number bigint NOT NULL,
    at double precision NOT NULL,
    PRIMARY KEY (conversation, event_id)
);

CREATE INDEX seen_number ON "hitherto".seen (conversation, number);

-- What recent operations answered, so that one repeated after a lost reply answers the same.
CREATE TABLE "hitherto".operation (
    conversation bigint NOT NULL,
    id text NOT NULL,
    version bigint NOT NULL,
    at double precision NOT NULL,
    status text NOT NULL,
    epoch bigint NOT NULL,
    seq bigint NOT NULL,
    seqs bigint[] NOT NULL,
    PRIMARY KEY (conversation, id)
);

-- Events that were given up, oldest letter first by place.
CREATE TABLE "hitherto".dead_letter (
    conversation bigint NOT NULL,
    seq bigint NOT NULL,
    place bigint NOT NULL,
    event_id text,
    long_id text,
    payload bytea NOT NULL,
    accepted_at double precision NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    died_at double precision NOT NULL,
    PRIMARY KEY (conversation, seq)
);

-- An exact JSON text as one that every JSON function of PostgreSQL takes: NUL becomes the replacement character.
CREATE FUNCTION "hitherto".readable(exact text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT regexp_replace(exact, '(?<!\\)((?:\\\\)*)\\u0000', '\1\\ufffd', 'g')
$$;

-- A text as people want to read it: NUL is the replacement character here too.
CREATE FUNCTION "hitherto".plain(kept text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT replace(replace(kept, chr(26) || '0', chr(65533)), chr(26) || '1', chr(26))
$$;

-- Conversations as people want to read them: data is JSON, data->>'name' one value of it. Numbers keep their digits.
CREATE VIEW "hitherto".conversation AS
    SELECT d.address, "hitherto".plain(d.flow) AS flow, "hitherto".plain(d.state) AS state,
        CASE WHEN d.recorded THEN coalesce((
            SELECT '{' || string_agg(to_json("hitherto".plain(f.name))::text || ':'
                || "hitherto".readable(f.exact), ',' ORDER BY f.place) || '}'
            FROM unnest(d.names, d.texts) WITH ORDINALITY AS f (name, exact, place)
        ), '{}')::json END AS data,
        d.version, d.epoch, d.owner, to_timestamp(d.deadline) AS leased_until,
        (SELECT count(*) FROM "hitherto".inbox AS i WHERE i.conversation = d.id) AS pending,
        (SELECT count(*) FROM "hitherto".dead_letter AS l WHERE l.conversation = d.id) AS dead,
        d.seen_count AS seen, to_timestamp(d.touched) AS touched, to_timestamp(d.expires_at) AS expires_at, d.id
    FROM "hitherto".document AS d
    WHERE d.version > 0;
