"""The record of a run on disk, and its resumption by another process.

The state of the driver depends on nothing but the answers to its messages. They are recorded in order. A resumed run
takes the recorded answers first, which is faster than the exchanges were, and then sends messages to the workers. The
workers rebuild their blocks from the log, as after a failure. Covers one run; the format of a record is in
`..protocol.answer_codec`, the files are in `distkern.storage.runs`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from time import perf_counter

from distkern.errors import RunError
from distkern.monitoring.events import EventBus, RunResumed
from distkern.storage import RunDirectory, read_records
from distkern.storage.arrays.source import BlockSource
from distkern.storage.runs.records import Place

from ..execution.executor import Executor
from ..protocol.answer_checks import AnswerChecks
from ..protocol.answer_codec import Record, decode, encode
from ..protocol.answers import Answer
from ..protocol.messages import PASSIVE, Begin, Message, Step, digest, message_name
from ..rows.block_reading import read_block, require_unchanged
from ..runtime.threads import map_tiles
from .driver_loop import TrainingJob
from .run_identity import identity_of, journal_note, require_same
from .time_limit import TimeLimit


class RunStore:
    """The record of one run, claimed by this process.

    Parameters
    ----------
    directory : RunDirectory
        The run.
    job : TrainingJob
        The settings.
    source : BlockSource
        The rows.

    Attributes
    ----------
    run_id : str
        Name of the run, the same in every process that drives it.
    source : BlockSource
        The rows.
    incarnation : int
        Number of this process among those that drove the run, from 1.
    places : list of Place
        Places of the records of earlier processes.

    Raises
    ------
    RunError
        ``changed``: the run is of another job, other data or other software. ``appended``: it has more rows than those
        of its training. ``not-writable``, ``corrupt``.
    """

    def __init__(self, directory: RunDirectory, job: TrainingJob, source: BlockSource) -> None:
        sums = directory.sums()
        if sums is not None and sums[0]:
            raise RunError(
                f"{sums[0]} parts of rows were appended to the run in {directory.path}, which a training on "
                "the first rows would drop: append further rows with --append (append), name another run, or train "
                "anew with --overwrite",
                kind="appended",
            )
        self.directory = directory
        self.source = source
        self._classification = job.classification
        identity = identity_of(job, source)
        kept = directory.training
        if kept is None and directory.recorded()[0]:
            raise RunError(
                f"the run in {directory.path} has records and no training.json that says of what; restore it, or train "
                "anew with --overwrite",
                kind="corrupt",
            )
        if kept is None:
            self.run_id = uuid.uuid4().hex
            directory.write_training({"run_id": self.run_id, "identity": identity})
        else:
            described = kept.get("identity")
            require_same(described if isinstance(described, dict) else {}, identity, str(directory.path))
            self.run_id = str(kept.get("run_id"))
            directory.restart()
        self._note = journal_note(job)
        self._journal = directory.claim()
        self.incarnation = self._journal.incarnation
        try:
            self.places, notes = directory.recorded()
        except BaseException:
            self.close()
            raise
        self.extends = any(note != self._note for note in notes)

    def require_unchanged_rows(self, checksums: Mapping[int, int]) -> None:
        """Read every block, and refuse one that has changed since it was loaded.

        Raises
        ------
        DataError
            ``changed``.
        """

        def check(number: int) -> None:
            found = read_block(self.source, number, self._classification).checksum
            require_unchanged(self.source, number, checksums.get(number), found)

        for _ in map_tiles(check, range(len(self.source.boundaries) - 1)):
            pass

    def begin(self, continues: int) -> None:
        """Start recording after the first `continues` records."""
        self._journal.begin(continues, self._note)

    def append(self, record: Record) -> None:
        """Write one exchange."""
        self._journal.append(encode(record))

    def close(self) -> None:
        """Close the journal; a second call does nothing."""
        self._journal.close()


class RecordingExecutor(Executor):
    """Records every exchange, and returns recorded answers instead of repeating exchanges.

    Parameters
    ----------
    below : Executor
        Executor that sends the messages.
    store : RunStore
        The record.
    events : EventBus
        Muted while answers come from the record.
    limit : TimeLimit
        Once it has ended the selection nothing is recorded any more, so that a resumed run continues the selection.
    """

    def __init__(self, below: Executor, store: RunStore, events: EventBus, limit: TimeLimit) -> None:
        super().__init__(below)
        self._store = store
        self._events = events
        self._recorded: Iterator[Record] | None = _read(store.places)
        self._checks = AnswerChecks(store.source, recorded=True)
        self._taken = 0
        self._checksums: Mapping[int, int] = {}
        self._begun = False
        self._earlier_exchanges = 0
        self._earlier_seconds = 0.0
        self._started = perf_counter()
        self._limit = limit
        events.muted = bool(store.places)

    @property
    def exchanges(self) -> int:
        """Number of exchanges so far, in all processes that drove the run."""
        return self._earlier_exchanges + self._below.exchanges

    def seconds(self) -> float:
        """Return the seconds of training so far, in all processes that drove the run."""
        return self._earlier_seconds + perf_counter() - self._started

    def exchange(self, message: Message) -> Answer:
        """Return the recorded answer to the next message, or send it and record the answer."""
        name = _content(message)
        if self._recorded is not None:
            record = next(self._recorded, None)
            if record is not None and record.message == name:
                self._require_fit(message, record.answer)
                self._taken += 1
                self._earlier_exchanges, self._earlier_seconds = record.exchanges, record.seconds
                self._below.skip(message, record.answer)
                self._begun = self._begun or isinstance(message, Begin)
                if record.answer.load is not None:
                    self._checksums = record.answer.load.checksums
                return record.answer
            extended = self._store.extends and (self._begun or isinstance(message, (Step, *PASSIVE)))
            if record is not None and not extended:
                raise RunError(
                    f"message {self._taken} of the run in {self._store.directory.path} is not what this machine "
                    "computes: resume it on the kind of processor that it began on, or train anew with --overwrite",
                    kind="differs",
                )
            self._go_live()
        answer = self._below.exchange(message)
        if not self._limit.passed:
            self._store.append(Record(name, answer, self.exchanges, self.seconds()))
        return answer

    def finish(self) -> None:
        """If all answers came from the record, check that the rows have not changed; then emit events again.

        Raises
        ------
        DataError
            ``changed``.
        """
        if self._recorded is not None:
            self._store.require_unchanged_rows(self._checksums)
            self._go_live()

    def _require_fit(self, message: Message, answer: Answer) -> None:
        """Refuse a recorded answer that does not fit its message, as one of a worker is."""
        self._checks.note(message)
        try:
            self._checks.require(message, answer, self._checks.blocks, whole=True)
        except ValueError as error:
            raise RunError(
                f"record {self._taken} of the run in {self._store.directory.path} is no answer to the message "
                f"{message_name(message)}: {error}. Its checksum is right, so another program or version wrote it: "
                "restore the record, or train anew with --overwrite",
                kind="corrupt",
            ) from error
        self._checks.take(answer)

    def _go_live(self) -> None:
        self._recorded = None
        self._store.begin(self._taken)
        self._started = perf_counter()
        self._events.muted = False
        if self._taken:
            self._events.emit(
                RunResumed(run_id=self._store.run_id, exchanges=self._taken, seconds=self._earlier_seconds)
            )


def _content(message: Message) -> bytes:
    """Return the digest of a message without the number of columns of Q, which an extended run changes."""
    return digest(replace(message, columns=0) if isinstance(message, Begin) else message)


def _read(places: list[Place]) -> Iterator[Record]:
    """Yield records up to the first incomplete one."""
    for payload in read_records(places):
        try:
            yield decode(payload)
        except ValueError:
            return
