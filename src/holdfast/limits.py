"""Every limit, with its reason."""

LINGER_S = 0.05
"""How long a line that nobody waits for may stay in memory. Long enough to share a sync with the next
barrier, short enough that a person following along does not notice."""

COMMIT_HERE_S = 0.001
"""Commits that have lately taken less than this are made on the event loop's thread. A hop into a thread and
back takes up to half of it; a thread that computes may keep the loop waiting for five times as long (the
interpreter's switch interval)."""

COMMIT_HERE_BYTES = 256 << 10
"""… if there is no more to write than this: the time is that of small ones."""

LEASE_TERM_S = 30.0
"""How long a silent holder is believed alive. Long enough for a stalled disk or a garbage collection,
short enough that another machine takes over within a coffee's length."""

BEATS_PER_TERM = 3
"""Two heartbeats may be lost before the lease is in danger."""

SERVER_CLOCK_S = 1.0
"""A server's clock is read off a heartbeat that was answered within this time: it is known to half of it."""

LEASE_POLL_S = 0.1
"""How often a waiting taker looks again."""

BATCH_LINES_MAX = 900
"""Lines in one transaction: SQLite is given them in one statement, which has a limit. A larger batch would
make a sync no cheaper, and everybody in it wait."""

BATCH_BYTES_MAX = 8 << 20
"""Bytes in one transaction, for the same reason."""

LINE_BYTES_MAX = 256 << 20
"""One entry. SQLite refuses rows of a gigabyte; a reader must be able to hold a line in memory."""

READ_LINES = 1024
"""Lines fetched by one read, so that a long journal is never in memory twice."""

OPEN_LINES = 128
"""Lines decoded at once when a session is opened. Enough that calls no longer count, few enough that they
stay in the processor's cache meanwhile."""

READ_AHEAD = 64
"""Messages decoded at once by who walks a transcript. Enough that calls no longer count, few enough that who
stops after the first one hardly notices."""

PAGE_ROWS = 256
"""Sessions or runs fetched by one listing query."""

KEYFRAME_LINES_MIN = 512
"""A shorter tail is folded faster than a keyframe is written and read."""

KEYFRAME_GROWTH = 0.25
"""The next keyframe is due when the tail has grown to this share of what lies before it: all keyframes
together then cost a constant per line, however long the session gets."""

KEYFRAME_GROWTH_LEFT = 0.0625
"""The same when a session is left in good order: no step waits for it then, and whoever opens it next
has few lines to fold."""

BUSY_S = 60.0
"""How long to wait for another process's write. Ordinary contention is over in milliseconds; a process
that was stopped in the middle of a transaction should surface as an error some day."""

TAIL_POLL_S = 0.05
"""How often a follower in another process looks for new lines, at first."""

TAIL_POLL_MAX_S = 0.5
"""… and when nothing has happened for a while."""

TELEMETRY_LOOK_S = 1.0
"""How often dispatches look whether telemetry has been configured meanwhile. Looking takes longer than the
rest of a small dispatch may."""

HISTORY_MESSAGES = 20
"""Messages in the overview of a session."""

TITLE_CHARS = 80
"""A title is for one line of a listing."""

JSON_DEPTH_MAX = 200
"""Nesting of a value in a message. Whoever reads it has only so much stack, and may be deep in it already."""

STATE_DEPTH_MAX = 64
"""Nesting of a user value. Deeper ones are almost always cycles, and are kept as opaque."""

REPR_CHARS = 500
"""What is kept of an opaque value's repr."""

ERROR_CHARS = 4000
"""What is kept of an exception's text: some quote a whole web page."""

INT_BITS_MAX = 8192
"""Integers in arguments and results. Python refuses to write more than 4,300 digits."""

NAME_CHARS = 200
"""Names of agents, keys of labels, state keys and shared resources: they are for people."""

LABEL_BYTES_MAX = 2000
"""The value of a label as JSON. PostgreSQL's index of labels takes no more than 2,700 bytes for each."""

INLINE_BYTES = 64 << 10
"""Binary content from this size on is kept as a blob: smaller, a row or an object of its own costs more than
it saves."""

RESULT_CHARS = 50_000
"""The text of a tool's result beyond which it is kept as a blob, with its two ends in the transcript. Some
12,000 tokens: more would crowd out the conversation."""

RESULT_HEAD_CHARS = 8_000
"""What is shown of the beginning of such a text."""

RESULT_TAIL_CHARS = 4_000
"""… and of its end, where programs say how it went."""

RESULT_PAGE_CHARS = 20_000
"""What one call reads of such a text: some 5,000 tokens, which any model can take."""

RESULT_LINES_MAX = 200
"""Lines that one search in it shows."""

BLOB_GRACE_S = 24 * 3600.0
"""How long a blob that nobody refers to is left alone: the entry that refers to it may be on its way."""

BLOB_GRACE_MIN_S = 1800.0
"""A shorter grace is for a store that nobody else has open."""

BLOB_KNOWN_S = 300.0
"""For how long a process relies on a blob that it has put: much shorter than any grace."""

BLOB_THREADS = 4
"""Blobs that are written or read at once, apart from the store's threads: a slow upload must not keep others
from reading their sessions."""

BLOB_PART_BYTES = 1 << 20
"""Blobs are read and written in parts of this size, so that none is in memory twice."""

STORE_THREADS = 8
"""Threads that read for one store, apart from the committer's."""

CONNECTIONS_MAX = 8
"""Connections that one store opens to a database server, unless its URL says otherwise: a hundred processes
then stay below the thousand that a large server or a pooler allows."""

RECONNECT_S = 20.0
"""How long a database server that went away, or that says nothing, is waited for before the caller is told. A
restart takes a few seconds, a failover some more; a lease should not run out over it."""

ANSWER_S = 10.0
"""How long a database server may say nothing before it is asked over another connection whether it is there.
Half of `RECONNECT_S`: the other half is for that question."""

BUSY_AGAIN_S = 2.0
"""For how long a lock is waited for by a process that has lately waited for one in vain. A batch of many
sessions whose table is locked is told within a minute or two, not after a minute for each session."""

CANCEL_S = 5.0
"""How long a database server has to confirm that it cancelled a statement."""

TOOL_TIMEOUT_S = 300.0
"""How long the body of a tool with side effects may run if it does not say. Every such body needs a limit:
another process believes that it is over once this has passed."""

TOOL_GRACE_S = 5.0
"""How long a running side effect gets to end and be recorded when its caller is cancelled."""

TOOL_THREADS = 32
"""Sync bodies at once, apart from the store's threads: a stuck tool must not stop a commit."""

VERIFY_S = 60.0
"""How long a verify hook may take before it counts as unsure."""

REPEATS_MAX = 3
"""The same call in a row: the third is not run."""

CRASHES_MAX = 3
"""How often a call may be running when the process dies before it is no longer tried."""

CLAIM_WAIT_S = 30.0
"""How long a global operation waits for whoever is at it before it is told who that is."""

STEPS_MAX = 50
"""Steps of one drive of the agent's loop, unless said otherwise: one that is not done by then is lost."""

REPLY_TOKENS_MAX = 8192
"""Tokens of a reply, unless said otherwise. What a request may cost at most follows from it."""

REPLY_TOKENS_MIN = 64
"""A shorter reply says nothing: rather end the run."""

DELEGATE_DEPTH_MAX = 8
"""Delegates of delegates. Agents that hand work to each other in a circle must hit a wall."""

RESUME_CONCURRENCY = 8
"""Sessions that `resume_all` drives at once, unless said otherwise."""

RETRY_AFTER_MAX_S = 300.0
"""If a provider says to come back later than this, the run ends: it can be resumed then."""
PLAN_STEPS_MAX = 100
"""Steps of a plan that a model makes: all of it is written down and shown at every change."""

PLAN_TEXT_CHARS = 2000
"""A goal, a step, a postcondition or a piece of evidence, for the same reason."""

PLAN_EVIDENCE_SHOWN_CHARS = 200
"""What is shown of the evidence of each step at every change; `show_plan` shows all of it."""

SCRATCHPAD_FILE_BYTES_MAX = 16 << 20
"""A file that a model reads or writes in a scratchpad: it is held in memory as a whole."""

SCRATCHPAD_PAGE_CHARS = 20_000
"""What one call reads of such a file: some 5,000 tokens, which any model can take."""

SCRATCHPAD_LISTED_MAX = 500
"""Names in one listing, for the same reason."""

SCRATCHPAD_DEPTH_MAX = 16
"""Directories in directories. Each one is open while those below it are looked at."""

SCRATCHPAD_TIMEOUT_S = 60.0
"""How long a change in a scratchpad may take. A slow disk needs a second; after a crash, another machine
waits for as long before it believes that an interrupted one did not happen."""

ITERATIONS_MAX = 50
"""Iterations of a thread of agents, unless said otherwise, those that were stepped back from included."""

BLOB_CONTEXT_BYTES_MAX = 16 << 10
"""Media type, file name and metadata of a blob, as JSON: listings read them all."""

BLOB_MEDIA_TYPE_CHARS_MAX = 255
"""A media type becomes a header of HTTP."""

BLOB_FILE_NAME_CHARS_MAX = 1024
"""A file name becomes a header of HTTP, where a character may take nine."""

BLOB_KEY_BYTES_MAX = 768
"""A key below the root of a home. S3 allows 1,024 bytes, of which the root takes some."""

BLOB_KEY_PART_BYTES_MAX = 255
"""A part of a key between two slashes: what file systems allow."""

OBJECT_PART_BYTES = 8 << 20
"""Bytes of one request to an object store. Smaller ones cost time, and a store allows 10,000 parts an object;
larger ones cost memory."""

OBJECT_PARTS_AT_ONCE = 2
"""Parts that are on their way to an object store at once, for the same reasons."""

OBJECT_READS_AT_ONCE = 16
"""Records that a listing reads from an object store at once: each is a request of its own."""

OBJECT_TRIES_MAX = 20
"""How often to look again when others change the same record. Each time, one of them got on."""

OBJECT_SILENCE_S = 300.0
"""How long an object store may say nothing in the middle of a request. Putting the parts of a large object
together may take it minutes."""

OBJECT_RETRY_S = 60.0
"""How long a request is tried again after errors of the server's before it counts as failed."""

WORK_POLL_S = 0.5
"""How often a worker looks for work that nobody told it of, more or less: a retry that is due, a holder that
died. What is submitted is usually heard of at once."""

WORK_LOOK_MIN_S = 0.005
"""At most how often it looks, however much it hears of."""

WORK_CONCURRENCY = 8
"""Sessions that a worker drives at once, unless said otherwise."""

WORK_DRAIN_S = 20.0
"""How long sessions get to come to an end, or to the end of a step, when their worker is asked to stop: a bit
less than orchestrators wait before they kill."""

WORK_AVOID_S = 5.0
"""For how long a worker leaves a session alone that it cannot even open."""

ADAPTER_CACHE_BYTES = 64 << 20
"""What a LangGraph saver keeps in memory of the threads it worked with last, so as not to read them again."""

ADAPTER_SEEN_MAX = 100_000
"""Threads of which a saver remembers up to where it has read them."""

BLOB_URL_S = 3600.0
"""How long a signed URL is good: a provider reads it while it answers."""

STEP_JOURNALS_MAX = 32
"""Journals that a step store keeps in memory, the last used ones, so as not to read them again."""

STEP_RUNS_MAX = 10_000
"""Runs of which a step store remembers in which journal they are."""
