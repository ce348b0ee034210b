"""`dir:PATH`: a directory that people can read with `tail -f`, for the processes of one machine.

    root/
      holdfast.json                  format and the store's id; a directory without it is no store
      lock                           held while claims, pins and deleted sessions change
      sessions/<id>/
        journal.jsonl                one JSON line a chunk; a commit's last line ends with ,"end":<entries>}
        session.json                 its uid, its first entry's number, what it pins as a fork; never changes
        head.json                    cache of the head, overwritten without a sync
        keyframe.json                the last keyframe, if there is one
        inbox/<number>.json          an item; <number>.taken, which is empty, keeps the newest number
        lock                         held while one of the above changes
        torn-<offset>-<n>            what a crash left behind the last whole commit
      hidden/<uid>/                  journal.jsonl and session.json of a deleted session with forks
      pins/<origin's uid>/<fork's uid>
      claims/<sha256 of the key>.json
      claims/pending.json            the changes of a commit that may have been cut short
      holders/<id>.json              the last heartbeat
      blobs/<2 characters>/<digest>  and <digest>.info, without which the blob is not there; its time is
                                     when the blob was put last
      tmp/                           files on their way to their place; unlocked ones are leftovers
      trash/                         what was deleted, until it is removed

`layout` makes and opens the root. `journal` appends, cuts and reads one file (`lines` tells whole commits
from torn ones, `run_index` finds its runs); `folder` is all of one session, with its `inbox`. `claims` and
`forks` are the store's other parts; `driver` puts them together. Blobs are kept as in a `dir:` home
(`blobs.directory`).
"""

from .driver import DirectoryDriver

__all__ = ["DirectoryDriver"]
