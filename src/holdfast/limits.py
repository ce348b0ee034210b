"""Every limit, with its reason."""

LINGER_S = 0.05
"""How long an entry for which no caller waits may stay in memory. Long enough to share a sync with the next
barrier, short enough that a person who follows the session does not notice."""

COMMIT_HERE_S = 0.001
"""If recent commits took less than this, the next one is made on the thread of the event loop. Switching to
another thread and back takes up to half of it; a thread that computes may delay the loop for five times as
long (the interpreter's switch interval)."""

COMMIT_HERE_BYTES = 256 << 10
"""… if there is no more to write than this: the measured time is that of small commits."""

LEASE_TERM_S = 30.0
"""How long a silent holder counts as alive. Long enough for a stalled disk or a garbage collection, short
enough that another machine takes over within a minute."""

BEATS_PER_TERM = 3
"""Two heartbeats may be lost before the lease is in danger."""

SERVER_CLOCK_S = 1.0
"""A server's clock is taken from a heartbeat that was answered within this time: its error is at most half of
it."""

LEASE_POLL_S = 0.1
"""How often a process that waits for a lease checks again."""

BATCH_ENTRIES_MAX = 900
"""Entries in one transaction: SQLite gets their chunks in one statement, which has a limit. A larger batch
would make no sync cheaper, and delay every caller in it."""

BATCH_BYTES_MAX = 8 << 20
"""Bytes in one transaction, for the same reason."""

LINE_BYTES_MAX = 256 << 20
"""One entry. SQLite refuses rows of a gigabyte; a reader must be able to hold a line in memory."""

CHUNK_BYTES = 1 << 20
"""A chunk ends when it has become this large, so that a reader of one entry reads little more. The entries of
one commit may be several chunks."""

READ_CHUNKS = 256
"""Chunks fetched by one read, so that a long journal is never in memory twice."""

READ_AHEAD = 64
"""Messages decoded at once by a loop over a transcript. Enough to amortise the call, few enough to cost a
loop little that stops after the first one."""

COPY_TRIES = 100
"""How often a copy looks again because another process copies the same session: each time, that one has made
progress."""

PAGE_ROWS = 256
"""Sessions or runs fetched by one listing query."""

KEYFRAME_ENTRIES_MIN = 512
"""A shorter tail is folded faster than a keyframe is written and read."""

KEYFRAME_GROWTH = 0.25
"""The next keyframe is due when the tail has grown to this share of what lies before it: all keyframes
together then cost a constant per line, at any length of the session."""

KEYFRAME_GROWTH_LEFT = 0.0625
"""The same when a session is closed normally: no step waits for it then, and the next process that opens it
has few lines to fold."""

ADAPTER_KEYFRAME_ENTRIES_MIN = 256
"""The same for the journals of adapters, whose entries take longer to fold."""

ADAPTER_KEYFRAME_GROWTH = 0.25
"""The next keyframe of such a journal is due when its tail has grown to this share of the last keyframe, in
bytes: all of them together then cost a constant per byte."""

BUSY_S = 60.0
"""How long to wait for the write of another process. Ordinary contention is over in milliseconds; a process
that was stopped during a transaction must surface as an error."""

TAIL_POLL_S = 0.05
"""How often a follower in another process checks for new lines, at first."""

TAIL_POLL_MAX_S = 0.5
"""… and when nothing has happened for a while."""

TELEMETRY_LOOK_S = 1.0
"""How often dispatches check whether telemetry has been configured. The check takes longer than the rest of a
small dispatch."""

HISTORY_MESSAGES = 20
"""Messages in the overview of a session."""

TITLE_CHARS = 80
"""A title is for one line of a listing."""

JSON_DEPTH_MAX = 200
"""Nesting of a value in a message. A reader has a limited stack, and may be deep in it already."""

STATE_DEPTH_MAX = 64
"""Nesting of a user value. Deeper ones are almost always cycles, and are kept as opaque."""

REPR_CHARS = 500
"""Characters kept of the repr of an opaque value."""

ERROR_CHARS = 4000
"""Characters kept of the text of an exception: some quote a whole web page."""

INT_BITS_MAX = 8192
"""Integers in arguments and results. Python refuses to write more than 4,300 digits."""

NAME_CHARS = 200
"""Names of agents, keys of labels, state keys and shared resources: they are for people."""

LABEL_BYTES_MAX = 2000
"""The value of a label as JSON. PostgreSQL's index of labels takes no more than 2,700 bytes for each."""

INLINE_BYTES = 64 << 10
"""Binary content from this size on is kept as a blob. Below it, a separate row or object costs more than it
saves."""

RESULT_CHARS = 50_000
"""A longer text of a tool's result is kept as a blob, with its beginning and end in the transcript. Some
12,000 tokens: more would crowd out the conversation."""

RESULT_HEAD_CHARS = 8_000
"""Characters shown of the beginning of such a text."""

RESULT_TAIL_CHARS = 4_000
"""… and of its end, where programs report their result."""

RESULT_PAGE_CHARS = 20_000
"""Characters that one call reads of such a text: some 5,000 tokens, which any model accepts."""

RESULT_LINES_MAX = 200
"""Lines that one search in it shows."""

BLOB_GRACE_S = 24 * 3600.0
"""How long a blob without a reference is kept: the entry that refers to it may not be committed yet."""

BLOB_GRACE_MIN_S = 1800.0
"""A shorter grace is only for a store that no other process has open."""

BLOB_KNOWN_S = 300.0
"""How long a process relies on a blob that it has put: much shorter than any grace."""

BLOB_THREADS = 4
"""Blobs that are written or read at once, in threads apart from the store's: a slow upload must not delay
reads of other sessions."""

BLOB_PART_BYTES = 1 << 20
"""Blobs are read and written in parts of this size, so that none is in memory twice."""

STORE_THREADS = 8
"""Threads that read for one store, apart from the committer's."""

CONNECTIONS_MAX = 8
"""Connections that one store opens to a database server, unless its URL says otherwise: a hundred processes
then stay below the thousand that a large server or a pooler allows."""

RECONNECT_S = 20.0
"""How long to wait for a database server that went away or does not answer, before the caller gets an error.
A restart takes a few seconds, a failover some more; a lease should not run out meanwhile."""

ANSWER_S = 10.0
"""How long a database server may be silent before it is probed over another connection. Half of
`RECONNECT_S`: the other half is for the probe."""

BUSY_AGAIN_S = 2.0
"""How long to wait for a lock after a recent wait for one timed out. A batch of many sessions whose table is
locked then fails within a minute or two, not after a minute for each session."""

CANCEL_S = 5.0
"""How long a database server has to confirm that it cancelled a statement."""

TOOL_TIMEOUT_S = 300.0
"""How long the body of a tool with side effects may run, unless the tool says otherwise. Every such body
needs a limit: another process takes it for ended once this has passed."""

TOOL_GRACE_S = 5.0
"""How long a running side effect may take to end and be recorded when its caller is cancelled."""

TOOL_THREADS = 32
"""Sync bodies at once, in threads apart from the store's: a stuck tool must not stop a commit."""

VERIFY_S = 60.0
"""How long a verify hook may take before it counts as unsure."""

SETTLED_AFTER_S = 10.0
"""How long a recipe waits before it believes that an effect is not there: a request that was sent just before
its process died may still be worked on. Most services answer within this time, or never."""

RECIPE_ANSWER_S = 15.0
"""How long a service may take to answer a recipe. Twice this and the wait between fit into `VERIFY_S`."""

RECIPE_PAGES_MAX = 20
"""Pages of a list that a recipe reads, for the same reason. More are asked for in vain in most cases: a query
that a service knows leaves a few items."""

REPEATS_MAX = 3
"""The same call in a row: the third is not run."""

CRASHES_MAX = 3
"""How often the process may die during a call before the call is no longer tried."""

CLAIM_WAIT_S = 30.0
"""Maximum wait for another session that runs the same global operation."""

STEPS_MAX = 50
"""Steps of one run of the agent's loop, unless said otherwise: an agent that is not done by then is stuck."""

REPLY_TOKENS_MAX = 8192
"""Tokens of a reply, unless said otherwise. The most that a request may cost follows from it."""

REPLY_TOKENS_MIN = 64
"""If the budget leaves fewer, the run ends: a shorter reply is useless."""

DELEGATE_DEPTH_MAX = 8
"""Depth of delegates of delegates. It stops agents that hand work to each other in a circle."""

RESUME_CONCURRENCY = 8
"""Sessions that `resume_all` drives at once, unless said otherwise."""

RETRY_AFTER_MAX_S = 300.0
"""If a provider asks for a longer wait than this, the run ends; it can be resumed later."""

PLAN_STEPS_MAX = 100
"""Steps of a plan that a model makes: the whole plan is recorded and shown at every change."""

PLAN_TEXT_CHARS = 2000
"""A goal, a step, a postcondition or a piece of evidence, for the same reason."""

PLAN_EVIDENCE_SHOWN_CHARS = 200
"""Characters shown of the evidence of each step at every change; `show_plan` shows all of it."""

SCRATCHPAD_FILE_BYTES_MAX = 16 << 20
"""A file that a model reads or writes in a scratchpad: it is held in memory as a whole."""

SCRATCHPAD_PAGE_CHARS = 20_000
"""Characters that one call reads of such a file: some 5,000 tokens, which any model accepts."""

SCRATCHPAD_LISTED_MAX = 500
"""Names in one listing, for the same reason."""

SCRATCHPAD_DEPTH_MAX = 16
"""Depth of nested directories. Each one is open while those below it are read."""

SCRATCHPAD_TIMEOUT_S = 60.0
"""How long a change in a scratchpad may take. A slow disk needs a second; after a crash, another machine
waits as long before it takes an interrupted change for not done."""

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
"""Parts uploaded to an object store at once, for the same reasons."""

OBJECT_READS_AT_ONCE = 16
"""Records that a listing reads from an object store at once: each is a request of its own."""

OBJECT_TRIES_MAX = 20
"""How often to retry when other processes change the same record. Each time, one of them made progress."""

OBJECT_SILENCE_S = 300.0
"""How long an object store may be silent during a request. Joining the parts of a large object may take it
minutes."""

OBJECT_RETRY_S = 60.0
"""How long a request is retried after errors of the server before it fails."""

WORK_POLL_S = 0.5
"""How often a worker polls for work without a notification, roughly: a retry that is due, a holder that died.
Submitted work is usually notified at once."""

WORK_LOOK_MIN_S = 0.005
"""The shortest time between two polls, for any number of notifications."""

WORK_CONCURRENCY = 8
"""Sessions that a worker drives at once, unless said otherwise."""

WORK_DRAIN_S = 20.0
"""How long sessions may take to end, or to end a step, when their worker is asked to stop: slightly less than
orchestrators wait before they kill."""

WORK_AVOID_S = 5.0
"""How long a worker skips a session that it cannot open."""

ADAPTER_CACHE_BYTES = 64 << 20
"""Bytes that a LangGraph saver caches of the threads it used last, or a store of OpenAI Agents sessions."""

ITEMS_PER_VERSION = 32
"""Items of an OpenAI Agents session after which a version is taken in the middle of a list: taking the last
item away writes those again that come after the version before it."""

ADAPTER_SEEN_MAX = 100_000
"""Threads for which a saver remembers how far it has read them."""

NOTIFY_POLL_S = 1.0
"""How often a notifier looks for calls that wait for a person: they wait for hours rather than seconds."""

NOTIFY_LOOK_SHARE = 0.05
"""The share of a notifier's time that looking may take: it pauses longer where many sessions wait."""

NOTIFY_POLL_MAX_S = 60.0
"""… but at most so long."""

NOTIFY_TELL_S = 60.0
"""How long telling of one call may take before it counts as failed, and is tried again."""

NOTIFY_SEND_S = 30.0
"""How long a webhook may take to answer, or a command to end: less than telling may take."""

NOTIFY_HANDOVER_S = 5.0
"""How long a notifier that ends waits for another one that has not told everything yet: one that goes on
tells it soon, one that ends lets go."""

NOTIFY_TEXT_CHARS = 2_000
"""Characters of one text in a notification, and of its arguments: chats refuse long messages."""

BLOB_URL_S = 3600.0
"""How long a signed URL is valid: a provider reads it while it answers."""

STEP_JOURNALS_MAX = 32
"""Journals that a step store caches, the last used ones."""

STEP_RUNS_MAX = 10_000
"""Runs for which a step store remembers their journal."""

DRAWN_ROWS_MAX = 1_200
"""Rows of steps in a drawing, about: a browser lays out so many at once. The rest is in the overview."""

DRAWN_FIRST_STEPS = 20
DRAWN_LAST_STEPS = 120
"""Steps at both ends of a long session that are drawn in any case."""

CHAPTER_STEPS = 40
"""Steps that share an axis: of more, bars become too thin to compare."""

DRAWN_LANES = 6
"""Lanes of an overview for calls at the same time."""

DRAWN_DELEGATE_ROWS = 40
"""Rows of a delegate in the drawing of its parent session."""

DRAWN_DELEGATES_MAX = 50
"""Delegates whose journals are read for a drawing."""

PAGE_TEXT_CHARS = 20_000
"""Characters of one text on a page; the middle of a longer one is left out."""

PAGE_TRANSCRIPT_CHARS = 4_000_000
"""Characters of the transcript on a page. The oldest messages are left out, but for the first ones."""

PAGE_MESSAGES_MAX = 2_000
"""Messages on a page."""

PAGE_EFFECTS_MAX = 500
"""Effects on a page, the latest."""

CARD_OUTPUT_CHARS = 2_000
"""Characters of an output in a notebook."""

CARD_BARS_MAX = 400
"""Calls and replies that the drawing in a notebook is made of, the latest."""

MCP_OPEN_S = 60.0
"""How long an MCP server may take to start and to list its tools: package runners download a server first."""

MCP_CONNECT_S = 30.0
"""How long it may take to connect to an MCP server behind an address, and to send it a message."""

MCP_RESUME_MAX = 5
"""How often the stream of an MCP server is opened again in a row, where it was cut off before an answer."""

MCP_TOOLS_MAX = 1_000
"""Tools of one MCP server. Models accept some hundred; a list without an end must end."""

MCP_TOOL_BYTES_MAX = 256 << 10
"""Name, description and schema of one tool of an MCP server. It is sent to the model with each request."""

MCP_REPORTS_MAX = 100
"""Progress notes that are kept of one call: each is an entry, and the server chooses how many it sends."""

MCP_EVENT_BYTES_MAX = 64 << 20
"""One message of an MCP server over HTTP: a large picture, and less than what would fill the memory."""

MCP_STDERR_CHARS = 2_000
"""What is kept of the last words of an MCP server, for the error that says why it cannot be started."""

MCP_INPUT_ROUNDS_MAX = 10
"""How often an MCP server may ask for input in one call."""

MCP_LISTEN_PAUSE_S = 1.0
"""The pause before a lost stream of an MCP server's changes is opened again, at first; it doubles then."""

MCP_LISTEN_PAUSE_MAX_S = 60.0
"""… and at most."""

MCP_MESSAGE_BYTES_MAX = 64 << 20
"""One message through the MCP proxy, which holds it in memory: a large picture, and less than what would fill
the memory."""

MCP_CALLS_MAX = 1_000
"""Calls under way at once through one MCP proxy. It must keep reading while they run, because a server may
ask its client for something in the middle of a call; so more are refused, and not kept waiting."""

MCP_INBOX_POLL_S = 1.0
"""How often an MCP proxy looks whether a person has answered for one of its calls. Commits and heartbeats say
so; looking costs nothing."""

MCP_CALL_S = 3600.0
"""How long a call that acts may take through the MCP proxy, unless its configuration says otherwise. Servers
ask people for things in the middle of calls. Another machine takes the call for ended once this has
passed."""

MCP_CANCEL_S = 30.0
"""How long an MCP server may still answer a call that was cancelled, before the call is in doubt. Many
servers go on to the end, and an outcome that is known is worth a wait."""

MCP_DRAIN_S = 30.0
"""The same for calls whose client has gone. A server that hangs must not outlive its client for long."""

MCP_END_S = 10.0
"""How long an MCP server behind the proxy may take to end by itself once its client has gone. A client that
is less patient tells the proxy, which tells the server at once."""

MCP_KILL_S = 1.5
"""How long it may take when it was told to end. Some clients kill two seconds after they have told."""

FOREIGN_SCHEMA_STEPS_MAX = 10_000
"""How many schemas may apply to one value, through references and unions. Where each refers to the next one
twice, forty of them would keep a validator busy for hours."""

ASKED_SCHEMA_BYTES_MAX = 32 * 1024
"""The schema of a call's arguments is recorded with the question whether to approve it, up to this size."""

FORM_BYTES_MAX = 1024 * 1024
"""A form that is sent to the viewer: corrected arguments and results are far smaller."""

FORM_FIELDS_MAX = 1000
"""Fields of such a form."""

VIEWER_ROWS = 50
"""Sessions on one page of the viewer's list."""

VIEWER_LIST_REST = 10
"""The viewer lists a store again when so many times as long has passed as listing took: however many sessions
there are and however many pages are open, it is busy with it for a tenth of the time at most."""

VIEWER_LIST_AGE_S = 1.0
"""… and not before so many seconds."""

VIEWER_KEPT = 4
"""States and timelines of sessions that the viewer keeps: of one of 10,000 steps, they take some 100 MB."""

VIEWER_NOW_S = 4.0
"""While a session runs, its timeline in the viewer is drawn anew after so many seconds."""

VIEWER_STEPS = (5, 10, 40, 120)
"""Steps on one page of a timeline, by how close it is looked at."""

VIEWER_MESSAGES = 60
VIEWER_EFFECTS = 40
VIEWER_ENTRIES = 60
VIEWER_VERSIONS = 100
"""Messages, effects, entries and versions on one page of a session."""

VIEWER_DUE = 200
"""Sessions that are due and listed beside the workers."""

VIEWER_COUNTED_SESSIONS = 100
"""Sessions whose journals are read for statistics, the latest, unless more are asked for."""

VIEWER_NEEDS = 20
"""Sessions on one page of what waits for a person: each is read whole."""
