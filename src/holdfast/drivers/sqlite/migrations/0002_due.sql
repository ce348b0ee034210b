-- What workers look for: sessions that are due, by the holder of their lease, the longest due first.
ALTER TABLE sessions ADD COLUMN holder TEXT;
ALTER TABLE sessions ADD COLUMN due TEXT;
-- When the oldest item of the inbox came.
ALTER TABLE sessions ADD COLUMN posted_at TEXT;
ALTER TABLE inbox ADD COLUMN at TEXT NOT NULL DEFAULT '1970-01-01T00:00:00.000000Z';

UPDATE sessions SET holder = head ->> '$.lease.holder';

UPDATE sessions SET due = head ->> '$.updated_at', head = json_set(head, '$.due', head ->> '$.updated_at')
WHERE open_run IS NOT NULL AND parent IS NULL AND head ->> '$.agent' IS NOT NULL;

UPDATE sessions SET posted_at = (
    SELECT at FROM inbox WHERE inbox.session = sessions.session ORDER BY number LIMIT 1
);

CREATE INDEX sessions_due
ON sessions (holder, min(coalesce(due, posted_at), coalesce(posted_at, due)), session)
WHERE due IS NOT NULL OR posted_at IS NOT NULL;

-- Counts the posts to all sessions, for workers that wait.
ALTER TABLE store ADD COLUMN posts INTEGER NOT NULL DEFAULT 0;
