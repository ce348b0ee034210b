-- A commit: moves the heads that are where they should be, and writes what belongs to them. A session that has
-- not landed wrote nothing. Gives the sessions that have, and then how much was ever posted to each.
--
-- It is a function because the server then plans its statements once for each connection, whatever pooler
-- stands before it; settings keep these plans right for tables of any size. It is told its own schema, and not
-- made for one: schemas can be renamed. The call itself is planned each time, so it has few parameters: tables,
-- as arrays with a row for each column.
CREATE FUNCTION append(
    p_path text,
    -- session, seq, sum, status, parent, open_run, in_doubt, labels, holder, due, agent, head; the sum that it
    -- follows; up to which number inbox items are taken in, or null. If some sessions are new: uid, origin,
    -- origin_uid, pinned.
    p_heads text[],
    -- session, seq, kind of each line.
    p_places text[],
    p_lines text[],
    -- session, body
    p_frames text[],
    -- session, digest, key, expect, record
    p_claims text[]
) RETURNS text
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
DECLARE
    some_are_new boolean := array_length(p_heads, 1) > 14;
    has_claims boolean := p_claims <> '{}';
    refused text[] := '{}';
    landed text[];
    posts bigint[];
    some_take boolean;
    all_landed boolean;
    setting text;
BEGIN
    setting := set_config('search_path', p_path, true);
    -- The commit waits for the disk, even where the server's or the role's default is not to. Any stronger
    -- default stays.
    IF current_setting('synchronous_commit') = 'off' THEN
        setting := set_config('synchronous_commit', 'on', true);
    END IF;

    -- Claims first, then sessions, both in order: two commits never wait for each other in a circle.
    IF has_claims THEN
        WITH held AS MATERIALIZED (
            SELECT digest, record FROM claims WHERE digest = ANY (p_claims[2:2]) ORDER BY digest FOR UPDATE
        )
        SELECT coalesce(array_agg(claim.session), '{}') INTO refused
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4]) AS claim (session, digest, expect)
        LEFT JOIN held ON held.digest = claim.digest
        WHERE held.record IS DISTINCT FROM claim.expect;
    END IF;
    IF some_are_new THEN
        WITH origin AS MATERIALIZED (
            SELECT session, uid FROM sessions WHERE session = ANY (p_heads[16:16])
            ORDER BY session FOR KEY SHARE
        )
        SELECT refused || array_agg(item.session) INTO refused
        FROM unnest(p_heads[1:1], p_heads[16:16], p_heads[17:17]) AS item (session, origin, origin_uid)
        LEFT JOIN origin ON origin.session = item.origin
        WHERE item.origin IS NOT NULL AND origin.uid IS DISTINCT FROM item.origin_uid;
    END IF;
    IF array_length(p_heads, 2) > 1 THEN
        PERFORM FROM sessions WHERE session = ANY (p_heads[1:1]) ORDER BY session FOR NO KEY UPDATE;
    END IF;

    WITH moved AS (
        UPDATE sessions AS old
        SET seq = item.seq::bigint, sum = item.sum, status = item.status, parent = item.parent,
            open_run = item.open_run, in_doubt = item.in_doubt::bigint,
            labels = string_to_array(item.labels, chr(31)), holder = item.holder,
            due = item.due::timestamptz, agent = item.agent, head = item.head,
            -- What was posted by somebody whom this had to wait for is counted, but not yet to be seen.
            posted_at = CASE
                WHEN item.taken IS NULL THEN old.posted_at
                WHEN item.taken::bigint < old.posted THEN coalesce(
                    (
                        SELECT inbox.at FROM inbox
                        WHERE inbox.session = item.session AND inbox.number > item.taken::bigint
                        ORDER BY inbox.number LIMIT 1
                    ),
                    old.posted_at
                )
            END
        FROM unnest(
            p_heads[1:1], p_heads[2:2], p_heads[3:3], p_heads[4:4], p_heads[5:5], p_heads[6:6], p_heads[7:7],
            p_heads[8:8], p_heads[9:9], p_heads[10:10], p_heads[11:11], p_heads[12:12], p_heads[13:13],
            p_heads[14:14]
        ) AS item (
            session, seq, sum, status, parent, open_run, in_doubt,
            labels, holder, due, agent, head, after,
            taken
        )
        WHERE old.session = item.session AND old.sum = item.after AND item.session <> ALL (refused)
        RETURNING old.session, old.posted, item.taken
    )
    SELECT coalesce(array_agg(session), '{}'), coalesce(array_agg(posted), '{}'), bool_or(taken IS NOT NULL)
    INTO landed, posts, some_take FROM moved;

    IF some_are_new THEN
        WITH created AS (
            INSERT INTO sessions
                (session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
                labels, holder, due, agent, head)
            SELECT
                session, uid, origin_uid, seq::bigint, sum, status, parent, open_run, in_doubt::bigint,
                string_to_array(labels, chr(31)), holder, due::timestamptz, agent, head
            FROM unnest(
                p_heads[1:1], p_heads[2:2], p_heads[3:3], p_heads[4:4], p_heads[5:5], p_heads[6:6],
                p_heads[7:7], p_heads[8:8], p_heads[9:9], p_heads[10:10], p_heads[11:11], p_heads[12:12],
                p_heads[13:13], p_heads[15:15], p_heads[17:17]
            ) AS item (
                session, seq, sum, status, parent, open_run,
                in_doubt, labels, holder, due, agent, head,
                after, uid, origin_uid
            )
            WHERE after IS NULL AND session <> ALL (refused)
            ORDER BY session
            ON CONFLICT (session) DO NOTHING
            RETURNING session, posted
        )
        SELECT landed || array_agg(session), posts || array_agg(posted) INTO landed, posts FROM created;
    END IF;
    all_landed := cardinality(landed) = array_length(p_heads, 2);

    INSERT INTO entries (session, seq, kind, line)
    SELECT session, seq::bigint, kind, line
    FROM unnest(p_places[1:1], p_places[2:2], p_places[3:3], p_lines) AS line (session, seq, kind, line)
    WHERE all_landed OR line.session = ANY (landed);

    IF p_frames <> '{}' THEN
        INSERT INTO keyframes (session, body)
        SELECT * FROM unnest(p_frames[1:1], p_frames[2:2]) AS frame (session, body)
        WHERE frame.session = ANY (landed)
        ON CONFLICT (session) DO UPDATE SET body = excluded.body;
    END IF;
    IF some_take THEN
        DELETE FROM inbox USING unnest(p_heads[1:1], p_heads[14:14]) AS item (session, taken)
        WHERE inbox.session = item.session AND inbox.number <= item.taken::bigint
            AND item.session = ANY (landed);
    END IF;
    IF has_claims THEN
        INSERT INTO claims (digest, key, record)
        SELECT digest, key, record
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[3:3], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, key, expect, record)
        WHERE expect IS NULL AND record IS NOT NULL AND session = ANY (landed);

        UPDATE claims SET record = claim.record
        FROM unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NOT NULL
            AND claim.session = ANY (landed);

        DELETE FROM claims
        USING unnest(p_claims[1:1], p_claims[2:2], p_claims[4:4], p_claims[5:5])
            AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NULL
            AND claim.session = ANY (landed);
    END IF;
    IF some_are_new THEN
        INSERT INTO pins (origin_uid, fork_uid, seq)
        SELECT origin_uid, uid, pinned::bigint
        FROM unnest(p_heads[1:1], p_heads[15:15], p_heads[16:16], p_heads[17:17], p_heads[18:18])
            AS item (session, uid, origin, origin_uid, pinned)
        WHERE origin IS NOT NULL AND session = ANY (landed);
    END IF;
    RETURN array_to_string(landed || posts::text[], chr(31));
END
$body$;
