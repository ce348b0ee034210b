"""Drive recorded sessions with today's code, and show what it would do differently. Nothing is executed."""

from .drive import (
    ReplayTurn,
    check_recording,
    replay_all,
    replay_recording,
    replay_session,
)
from .recording import Recording, dump_recording, read_recording
from .replay import Difference, SessionReplay
from .stage import RecordingEnds

__all__ = [
    "Difference",
    "Recording",
    "RecordingEnds",
    "ReplayTurn",
    "SessionReplay",
    "check_recording",
    "dump_recording",
    "read_recording",
    "replay_all",
    "replay_recording",
    "replay_session",
]
