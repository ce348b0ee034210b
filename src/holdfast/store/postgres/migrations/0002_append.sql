-- A commit: moves the heads that are where they should be, and writes what belongs to them. A session that has
-- not landed wrote nothing. Arrays that belong together have one element for each session, line, keyframe or
-- claim. It is a function because the server then plans its statements once for each connection, whatever pooler
-- stands before it; settings keep these plans right for tables of any size. It is told its own schema, and not
-- made for one: schemas can be renamed.
CREATE FUNCTION append(
    p_path text,
    p_session text[], p_after text[], p_seq bigint[], p_sum text[], p_status text[], p_parent text[],
    p_open_run text[], p_in_doubt bigint[], p_labels text[], p_holder text[], p_due text[], p_agent text[],
    p_head text[],
    p_line_session text[], p_line_seq bigint[], p_kind text[], p_line text[],
    -- Sessions that are new, some of them forks.
    p_uid text[] DEFAULT '{}', p_origin text[] DEFAULT '{}', p_origin_uid text[] DEFAULT '{}',
    p_pinned bigint[] DEFAULT '{}',
    -- Up to which number inbox items are taken in; 0 for none.
    p_taken bigint[] DEFAULT '{}',
    p_frame_session text[] DEFAULT '{}', p_frame text[] DEFAULT '{}',
    p_claim_session text[] DEFAULT '{}', p_digest text[] DEFAULT '{}', p_key text[] DEFAULT '{}',
    p_expect text[] DEFAULT '{}', p_record text[] DEFAULT '{}'
) RETURNS TABLE (landed_session text, landed_posted bigint)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $body$
DECLARE
    refused text[] := '{}';
    landed text[] := '{}';
    posts bigint[] := '{}';
    all_landed boolean;
BEGIN
    PERFORM set_config('search_path', p_path, true);
    -- The commit waits for the disk, even where the server's or the role's default is not to. Any stronger
    -- default stays.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    -- Claims first, then sessions, both in order: two commits never wait for each other in a circle.
    IF cardinality(p_digest) > 0 THEN
        WITH held AS MATERIALIZED (
            SELECT digest, record FROM claims WHERE digest = ANY (p_digest) ORDER BY digest FOR UPDATE
        )
        SELECT coalesce(array_agg(claim.session), '{}') INTO refused
        FROM unnest(p_claim_session, p_digest, p_expect) AS claim (session, digest, expect)
        LEFT JOIN held ON held.digest = claim.digest
        WHERE held.record IS DISTINCT FROM claim.expect;
    END IF;
    IF cardinality(array_remove(p_origin, NULL)) > 0 THEN
        WITH origin AS MATERIALIZED (
            SELECT session, uid FROM sessions WHERE session = ANY (p_origin) ORDER BY session FOR KEY SHARE
        )
        SELECT refused || array_agg(item.session) INTO refused
        FROM unnest(p_session, p_origin, p_origin_uid) AS item (session, origin, origin_uid)
        LEFT JOIN origin ON origin.session = item.origin
        WHERE item.origin IS NOT NULL AND origin.uid IS DISTINCT FROM item.origin_uid;
    END IF;
    IF cardinality(p_session) > 1 THEN
        PERFORM FROM sessions WHERE session = ANY (p_session) ORDER BY session FOR NO KEY UPDATE;
    END IF;

    WITH moved AS (
        UPDATE sessions AS old
        SET seq = item.seq, sum = item.sum, status = item.status, parent = item.parent,
            open_run = item.open_run, in_doubt = item.in_doubt,
            labels = string_to_array(item.labels, chr(31)), holder = item.holder,
            due = item.due::timestamptz, agent = item.agent, head = item.head,
            -- What was posted by somebody whom this had to wait for is counted, but not yet to be seen.
            posted_at = CASE
                WHEN coalesce(item.taken, 0) = 0 THEN old.posted_at
                WHEN item.taken < old.posted THEN coalesce(
                    (
                        SELECT inbox.at FROM inbox
                        WHERE inbox.session = item.session AND inbox.number > item.taken
                        ORDER BY inbox.number LIMIT 1
                    ),
                    old.posted_at
                )
            END
        FROM unnest(
            p_session, p_after, p_seq, p_sum, p_status, p_parent, p_open_run, p_in_doubt, p_labels, p_holder,
            p_due, p_agent, p_head, p_taken
        ) AS item (
            session, after, seq, sum, status, parent, open_run, in_doubt, labels, holder,
            due, agent, head, taken
        )
        WHERE old.session = item.session AND old.sum = item.after AND item.session <> ALL (refused)
        RETURNING old.session, old.posted
    )
    SELECT coalesce(array_agg(session), '{}'), coalesce(array_agg(posted), '{}') INTO landed, posts FROM moved;

    IF array_position(p_after, NULL) IS NOT NULL THEN
        WITH created AS (
            INSERT INTO sessions
                (session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
                labels, holder, due, agent, head)
            SELECT
                session, uid, origin_uid, seq, sum, status, parent, open_run, in_doubt,
                string_to_array(labels, chr(31)), holder, due::timestamptz, agent, head
            FROM unnest(
                p_session, p_after, p_uid, p_origin_uid, p_seq, p_sum, p_status, p_parent, p_open_run,
                p_in_doubt, p_labels, p_holder, p_due, p_agent, p_head
            ) AS item (
                session, after, uid, origin_uid, seq, sum, status, parent, open_run,
                in_doubt, labels, holder, due, agent, head
            )
            WHERE after IS NULL AND session <> ALL (refused)
            ORDER BY session
            ON CONFLICT (session) DO NOTHING
            RETURNING session, posted
        )
        SELECT landed || array_agg(session), posts || array_agg(posted) INTO landed, posts FROM created;
    END IF;
    all_landed := cardinality(landed) = cardinality(p_session);

    INSERT INTO entries (session, seq, kind, line)
    SELECT * FROM unnest(p_line_session, p_line_seq, p_kind, p_line) AS line (session, seq, kind, line)
    WHERE all_landed OR line.session = ANY (landed);

    IF cardinality(p_frame) > 0 THEN
        INSERT INTO keyframes (session, body)
        SELECT * FROM unnest(p_frame_session, p_frame) AS frame (session, body)
        WHERE frame.session = ANY (landed)
        ON CONFLICT (session) DO UPDATE SET body = excluded.body;
    END IF;
    IF 0 < ANY (p_taken) THEN
        DELETE FROM inbox USING unnest(p_session, p_taken) AS item (session, taken)
        WHERE inbox.session = item.session AND inbox.number <= item.taken AND item.session = ANY (landed);
    END IF;
    IF cardinality(p_digest) > 0 THEN
        INSERT INTO claims (digest, key, record)
        SELECT digest, key, record
        FROM unnest(p_claim_session, p_digest, p_key, p_expect, p_record)
            AS claim (session, digest, key, expect, record)
        WHERE expect IS NULL AND record IS NOT NULL AND session = ANY (landed);

        UPDATE claims SET record = claim.record
        FROM unnest(p_claim_session, p_digest, p_expect, p_record) AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NOT NULL
            AND claim.session = ANY (landed);

        DELETE FROM claims
        USING unnest(p_claim_session, p_digest, p_expect, p_record) AS claim (session, digest, expect, record)
        WHERE claims.digest = claim.digest AND claim.expect IS NOT NULL AND claim.record IS NULL
            AND claim.session = ANY (landed);
    END IF;
    IF cardinality(array_remove(p_origin, NULL)) > 0 THEN
        INSERT INTO pins (origin_uid, fork_uid, seq)
        SELECT origin_uid, uid, pinned
        FROM unnest(p_session, p_origin, p_origin_uid, p_uid, p_pinned)
            AS item (session, origin, origin_uid, uid, pinned)
        WHERE origin IS NOT NULL AND session = ANY (landed);
    END IF;
    RETURN QUERY SELECT * FROM unnest(landed, posts);
END
$body$;
