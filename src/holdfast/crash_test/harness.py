"""Kill the user's code at every boundary, resume it, and compare how it ends."""

from __future__ import annotations

import copy
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from ..errors import BadInput
from ..suggestions import closest
from ..system.clock import monotonic_s
from .boundaries import Line
from .judging import End, Lifetime, Settings, difference, judge, line_of_facts
from .naming import MANY, BoundaryEvent, Namer, Numbers, order
from .processes import START_S, Gone, Launcher, Named
from .report import CrashReport, CrashRun, shown_line
from .worlds import CrashWorld, copy_folder

HANG_S: Final = 60.0
"""A process that makes no sign for so long counts as hung. Slower than any model of a test answers."""

LIFE_TIMEOUTS: Final = 10
"""A process that makes signs lives at most so many times as long as one may be silent."""
SIGNS_MIN: Final = 1000
SIGNS_TIMES: Final = 10
"""A killed run counts as hung when it was heard of so much more often than the undisturbed one. Signs and not
seconds: a resumption that goes in circles does so on a fast machine and on a slow one."""

Check = Callable[[Any], object]


def run_crash_test(
    scenario: Callable[[Any], Any],
    *,
    world: CrashWorld,
    resume: Callable[[Any], Any] | None = None,
    check: Check | None = None,
    kill: str | None = None,
    sample: int | None = None,
    twice: bool = True,
    timeout_s: float = HANG_S,
    workers: int | None = None,
    fork: bool = True,
) -> CrashReport:
    """Run the scenario undisturbed, then kill it at each of its boundaries and resume it.

    `scenario(world)` and `resume(world)` (by default the scenario itself) are at the top of a module, and run
    in processes of their own. With `twice`, the resumption is killed once as well. `check(world)` decides
    instead of the comparison with the undisturbed run: it raises `AssertionError` if the end is wrong. `kill`
    names one boundary, or two (`A > B`); `sample` limits those that are tried to so many, spread evenly.
    A killed run that makes no sign for `timeout_s`, or goes in circles, counts as hung. With `fork=False`,
    each process is started afresh.
    """
    if not isinstance(world, CrashWorld):
        raise BadInput(
            f"world={world!r} is no world: pass DirectoryWorld(), SqliteWorld(…), HttpWorld() or your own"
        )
    if sample is not None and sample < 1:
        raise BadInput(f"sample={sample} must be 1 or more")
    if not timeout_s > 0:
        raise BadInput(f"timeout_s={timeout_s} must be more than 0")
    first = Named.of(scenario, "scenario")
    second = first if resume is None else Named.of(resume, "resume")
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-", ignore_cleanup_errors=True) as folder:
        launcher = Launcher(Path(folder), list(dict.fromkeys([first, second])), fork=fork)
        try:
            test = _CrashTest(launcher, Path(folder), first, second, world, check, timeout_s)
            return test.run(kill, sample, twice, workers or os.cpu_count() or 1)
        finally:
            launcher.close()


class _CrashTest:
    """What all cases of one test share."""

    def __init__(
        self,
        launcher: Launcher,
        folder: Path,
        scenario: Named,
        resume: Named,
        world: CrashWorld,
        check: Check | None,
        timeout_s: float,
    ) -> None:
        self.launcher, self.folder = launcher, folder
        self.scenario, self.resume, self.world, self.check = scenario, resume, world, check
        self.timeout_s = timeout_s
        self.numbers = Numbers()
        self.signs_max: int | None = None

    def run(self, kill: str | None, sample: int | None, twice: bool, workers: int) -> CrashReport:
        """All of it."""
        ends = [self._run_undisturbed(number) for number in range(2)]
        namer, events, life, end = ends[0]
        names = order(self.numbers, events)
        self.signs_max = SIGNS_MIN + SIGNS_TIMES * life.signs
        name = f"{shown_line((self.scenario.file, 0))[:-2]}::{self.scenario.function}"
        where = shown_line((self.scenario.file, self.scenario.line))
        note = (
            f"each process was started afresh: {self.launcher.why_not_forked}" if self._is_spawned() else ""
        )
        if told := difference(end.facts, ends[1][3].facts):
            more = (end.facts - ends[1][3].facts) or (ends[1][3].facts - end.facts)
            unstable = CrashRun(
                kills=(),
                place=-1,
                verdict="diverged",
                what=f"two undisturbed runs end differently: {told}",
                line=line_of_facts(more, events, self.world) or where,
                mend=(
                    "let nothing depend on the time, on chance or on the environment; or tell the world what "
                    "to ignore, as a regular expression: ignore=[…]"
                ),
            )
            why = "Two undisturbed runs end differently, so no other run can be judged."
            return CrashReport(
                scenario=name, boundaries=tuple(names), runs=(unstable,), unstable=why, note=note
            )
        settings = Settings(
            expected=end,
            compares_results=end.result is not None and end.result == ends[1][3].result,
            has_entries=namer.has_entries,
            tools=life.tools,
            events=tuple(events),
            world=self.world,
            scenario=where,
        )
        self.launcher.preload(life.modules)
        chosen = self._choose(names, kill, sample)
        second = kill.partition(" > ")[2] if kill else ""
        with ThreadPoolExecutor(workers, thread_name_prefix="holdfast-crash") as pool:
            runs = list(
                pool.map(
                    lambda one: self._run_case(
                        names.index(one), one, settings, second, twice or bool(second)
                    ),
                    chosen,
                )
            )
        return CrashReport(
            scenario=name,
            boundaries=tuple(names),
            runs=tuple(run for found in runs for run in found),
            note=note,
        )

    def _is_spawned(self) -> bool:
        return self.launcher.why_not_forked not in ("", "asked for")

    def _choose(self, names: Sequence[str], kill: str | None, sample: int | None) -> list[str]:
        if kill is not None:
            wanted = kill.partition(" > ")[0]
            if wanted not in names:
                close = closest(wanted, names)
                hint = f"did you mean {close!r}?" if close else f"the first ones are {', '.join(names[:5])}"
                raise BadInput(f"{wanted!r} is no boundary of {self.scenario.function}; {hint}")
            return [wanted]
        if sample is not None and sample < len(names):
            return [names[number * len(names) // sample] for number in range(sample)]
        return list(names)

    def _run_undisturbed(self, number: int) -> tuple[Namer, list[BoundaryEvent], Lifetime, End]:
        case = _Case(self, self.folder / f"undisturbed-{number}")
        try:
            life = case.live(self.scenario, None, first=True, timeout_s=START_S)
            if life.error or life.hung:
                why = life.trace or life.error or life.hung
                raise BadInput(
                    f"{self.scenario.function} does not end when it is not disturbed: {why}\n"
                    f"{self.launcher.output()}".rstrip()
                )
            end = case.end()
            if end.failed_check:
                raise BadInput(f"check fails after an undisturbed run: {end.failed_check}")
            return case.namer, life.events, life, end
        finally:
            case.close()

    def _run_case(
        self, place: int, name: str, settings: Settings, second: str, twice: bool
    ) -> list[CrashRun]:
        """Kill at one boundary, resume; then the same with a kill in the resumption."""
        case = _Case(self, self.folder / f"case-{place}")
        try:
            life = case.live(self.scenario, name)
            if not life.killed:
                verdict = judge([life], case.end(), case.namer, settings)
                return [CrashRun(kills=(name,), place=place, reached=False, **verdict)]
            saved = case.save()
            resumed = case.live(self.resume, None)
            runs = [
                CrashRun(
                    kills=(name,), place=place, **judge([life, resumed], case.end(), case.namer, settings)
                )
            ]
            if second:
                runs.clear()
            elif resumed.hung or resumed.error or not twice:
                return runs
            names = sorted({case.namer.name(event) for event in resumed.events})
            if second and second not in names:
                raise BadInput(f"{second!r} is no boundary of the resumption; there are {', '.join(names)}")
            target = second or names[place % len(names)]
            case.restore(saved)
            again = case.live(self.resume, target)
            lives = [life, again] if not again.killed else [life, again, case.live(self.resume, None)]
            verdict = judge(lives, case.end(), case.namer, settings)
            runs.append(CrashRun(kills=(name, target), place=place, reached=again.killed, **verdict))
            return runs
        finally:
            case.close()


class _Case:
    """A world, and the processes that work on it one after another."""

    def __init__(self, test: _CrashTest, folder: Path) -> None:
        self._test, self._folder = test, folder
        # What only this case does has numbers of its own: they do not depend on how the others come along.
        self._numbers = Numbers(test.numbers)
        self.namer = Namer(self._numbers)
        self._lock = threading.RLock()
        self._life: Lifetime | None = None
        self._last: Lifetime | None = None
        self._target: str | None = None
        self._requests: dict[str, list[Line]] = {}
        self._strands: dict[str, set[int]] = {}
        self._kill: Callable[[], None] = lambda: None
        (folder / "state").mkdir(parents=True)
        self.world = test.world.begin(folder / "state", self._announce)

    def live(
        self, function: Named, target: str | None, *, first: bool = False, timeout_s: float | None = None
    ) -> Lifetime:
        """Run the function in a process of its own, and kill it at the boundary."""
        life = Lifetime()
        silent_s = timeout_s or self._test.timeout_s
        ends_at = monotonic_s() + LIFE_TIMEOUTS * silent_s
        process = self._test.launcher.start(function, self.world, self._folder / "state", first=first)
        with self._lock:
            self.namer.begin_process()
            self._life, self._target, self._kill = life, target, process.kill
            self._last = life
            self._strands.clear()
        try:
            while not life.is_over:
                message = process.hear(silent_s)
                with self._lock:
                    self._take(life, message)
                    if not life.returned and monotonic_s() > ends_at:
                        life.hung = life.hung or f"not at its end after {LIFE_TIMEOUTS * silent_s:g} s"
                    if life.killed or life.hung:
                        process.kill()
                    else:
                        process.tell(True)
        except TimeoutError:
            life.hung = f"no sign for {silent_s:g} s"
        except Gone:
            with self._lock:
                if not life.is_over:
                    life.error = "the process ended by itself, without an exception"
        finally:
            with self._lock:
                self._life = None
            process.close()
        self.world.settle()
        return life

    def _take(self, life: Lifetime, message: Mapping[str, Any]) -> None:
        if "ended" in message:
            life.take_end(message)
            return
        self._count_sign(life)
        if "request" in message:
            self._requests[message["request"]] = [(file, line) for file, line in message["lines"]]
            self._strands.setdefault(message["request"], set()).add(message["strand"])
        elif "entries" in message:
            self.namer.count_doubts(message["doubts"])
            lines = [(file, line) for file, line in message["lines"]]
            self._see(life, self.namer.entries(message["at"], message["entries"], lines))
        else:
            lines = [(file, line) for file, line in message["lines"]]
            detail = self.world.masked(message["detail"])
            operation, strand = message["operation"], message["strand"]
            event = self.namer.operation(
                message["at"],
                operation,
                detail,
                lines,
                strand,
                by_framework=message.get("by_framework", False),
                nth=message.get("nth"),
            )
            self._see(life, [event])

    def _count_sign(self, life: Lifetime) -> None:
        life.signs += 1
        if self._test.signs_max is not None and life.signs > self._test.signs_max:
            life.hung = f"it goes in circles: {life.signs} signs without an end"

    def _see(self, life: Lifetime, events: Sequence[BoundaryEvent]) -> None:
        life.events.extend(events)
        if self._target is not None and self._target in {self.namer.name(event) for event in events}:
            life.killed = True

    def _announce(self, phase: str, operation: str, detail: str) -> bool:
        """An operation that the world carries out in this process, in a thread of its own."""
        with self._lock:
            life = self._life
            if life is None or life.is_over:
                return False
            self._count_sign(life)
            lines = self._requests.get(operation, [])
            strands = self._strands.get(operation, set())
            strand = next(iter(strands)) if len(strands) == 1 else MANY
            self._see(life, [self.namer.operation(phase, operation, detail, lines, strand)])
            goes_on = not (life.killed or life.hung)
            if not goes_on:
                self._kill()
            return goes_on

    def end(self) -> End:
        """How it stands in the world now."""
        failed_check = ""
        if self._test.check is not None:
            try:
                self._test.check(self.world)
            except AssertionError as error:
                failed_check = str(error) or "AssertionError"
        facts = Counter(self.world.masked(one) for one in self.world.facts())
        result = self._last.result if self._last is not None else None
        return End(facts, result, failed_check, self._test.check is not None)

    def save(self) -> Any:
        """All that outlives the process."""
        copy_folder(self._folder / "state", self._folder / "saved")
        memo = {id(self._numbers): self._numbers}
        return self.world.save(), copy.deepcopy(self.namer, memo)

    def restore(self, saved: Any) -> None:
        """Go back to what was saved."""
        copy_folder(self._folder / "saved", self._folder / "state")
        self.world.restore(saved[0])
        self.namer = saved[1]

    def close(self) -> None:
        """Let go of the world."""
        self.world.tear_down()
