"""Table maintainer: rounds, each of which copies what topics have that their tables have not.

    ask the brokers        which topics are tables, and how far they are committed
    read the snapshots     how far the tables are
    copy                   the difference, by Spark's tasks, into files that nobody sees
    look                   whether the files are where everybody finds them
    put the next snapshot  of each table: now they are seen, all of them at once
    tidy                   merge small files, drop old ones, remove what nobody needs

The snapshot is the only memory there is: no checkpoint beside it could disagree.  Whoever is killed, at
whatever moment, has either put a snapshot or has left files that are removed later; the next round begins
where the last snapshot ends.  Two maintainers of one table cannot both put the same number: the second reads
the table again, and finds its work done.

If the log has dropped what was not copied yet, that is noted in the table as lost, and said; readers decide
whether they go on without it.

Tables have nothing to do with each other: what is wrong with one (a folder that is somebody else's or out of
bounds, a topic that is gone, a damaged snapshot) is its problem, told with the round, and to the table's
group, where `anabranch table describe` finds it.  So is what is wrong with one partition, the others of which
go on; one that could not be copied is left alone for a while.
"""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from anabranch.base.errors import AnabranchError, Fenced, NotFound, Unavailable
from anabranch.client.cluster import EARLIEST, LATEST, Cluster, Offsets
from anabranch.client.destinations import TopicPartition
from anabranch.client.settings import Settings
from anabranch.pipelines.tables.copying import Copy, Done, Merge
from anabranch.pipelines.tables.dividing import done_in_parts
from anabranch.pipelines.tables.patience import Patience
from anabranch.pipelines.tables.progress import Progress
from anabranch.pipelines.tables.upkeep import Upkeep
from anabranch.spark.ranges import Fetching
from anabranch.spark.table_settings import TableSettings, enabled_tables
from anabranch.tables.changes import appended, begun
from anabranch.tables.folder import TableFolder, check_owner, check_place
from anabranch.tables.snapshot import Snapshot, Span

_log = logging.getLogger(__name__)

MOST_OFFSETS = 2_000_000
RunsTasks = Callable[[Sequence[Copy | Merge], Fetching], list[Done]]


class Plan(NamedTuple):
    """What a round does for one table."""

    settings: TableSettings
    table: Snapshot
    copies: list[Copy]
    lost: dict[int, Span]
    latest: Offsets
    problems: list[str]


class Outcome(NamedTuple):
    """What a round did for one table."""

    rows: int = 0
    is_behind: bool = False
    """It got on, and there is more to do at once."""
    problem: str = ""


class Round(NamedTuple):
    tables: int
    rows: int
    is_behind: bool
    """Some table got on, and there is more to do at once."""
    problems: dict[str, str]
    """By topic."""


class Maintainer:
    def __init__(
        self,
        run: RunsTasks,
        bootstrap: str,
        registry: str = "",
        most_offsets: int = MOST_OFFSETS,
        roots: Sequence[Path] | None = None,
    ) -> None:
        """Of a partition `most_offsets` are copied in a round: what is copied is seen only at its end.

        Tables that are not in one of the folders `roots`, if that is given, are left alone.
        """
        self._run = run
        self._registry = registry
        self._most_offsets = most_offsets
        self._roots = roots
        self._how = Fetching(Settings(bootstrap, "anabranch-tables"), committed=True)
        self._upkeep = Upkeep(lambda work: done_in_parts(lambda some: self._run(some, self._how), work))
        self._patience = Patience()
        self._progress = Progress()
        self._said: dict[str, str] = {}

    def round(self) -> Round:
        """Bring all tables up to date once."""
        with Cluster(self._how.settings) as cluster:
            settings = enabled_tables(cluster, cluster.topics(), must_know=False)
            outcomes: dict[str, Outcome] = {}
            plans = []
            for one in settings:
                try:
                    plans.append(self._planned(one, cluster))
                except (AnabranchError, OSError) as error:
                    outcomes[one.topic] = _failure(error)
                    self._progress.tell(one.topic, None, outcomes[one.topic].problem, cluster)
            done = [_seen(one) for one in self._copied(plans)]
            self._remember(done)
            for plan in plans:
                outcomes[plan.settings.topic] = self._finish(plan, done, cluster)
        problems = {topic: one.problem for topic, one in outcomes.items() if one.problem}
        self._say(problems)
        return Round(
            len(settings),
            sum(one.rows for one in outcomes.values()),
            any(one.is_behind for one in outcomes.values()),
            problems,
        )

    def _say(self, problems: dict[str, str]) -> None:
        """Those that are new."""
        for topic, problem in problems.items():
            if self._said.get(topic) != problem:
                _log.error("the table of topic %s: %s", topic, problem)
        self._said = problems

    def _planned(self, settings: TableSettings, cluster: Cluster) -> Plan:
        check_place(settings.location, self._roots)
        table = current(settings)
        partitions = cluster.partitions([settings.topic])
        earliest = cluster.offsets_at(dict.fromkeys(partitions, EARLIEST))
        latest = cluster.offsets_at(dict.fromkeys(partitions, LATEST), committed=True)
        plan = planned(settings, table, earliest, latest, self._most_offsets)
        known = {one: self._patience.problem(_who(one), _now_ms()) for one in plan.copies}
        return plan._replace(
            copies=[copy for copy, problem in known.items() if not problem],
            problems=[*plan.problems, *filter(None, known.values())],
        )

    def _copied(self, plans: Sequence[Plan]) -> list[Done]:
        """What came of all copies."""
        work = [copy for plan in plans for copy in self._copies(plan)]
        return done_in_parts(lambda some: self._run(some, self._how), work)

    def _copies(self, plan: Plan) -> list[Copy]:
        return [msgspec.structs.replace(copy, registry=self._registry) for copy in plan.copies]

    def _remember(self, done: Sequence[Done]) -> None:
        for one in done:
            if one.error:
                self._patience.failed((one.topic_id, one.partition), one.error, _now_ms())
            else:
                self._patience.worked((one.topic_id, one.partition))

    def _finish(self, plan: Plan, done: Sequence[Done], cluster: Cluster) -> Outcome:
        """Put what was copied into the table, and tidy it, whatever came of that."""
        table, outcome = plan.table, Outcome()
        try:
            table, outcome = commit(plan, done, cluster)
        except (AnabranchError, OSError) as error:
            outcome = _failure(error)
        try:
            self._upkeep.tidy(plan.settings, _now_ms())
        except (AnabranchError, OSError) as error:
            outcome = outcome._replace(problem=outcome.problem or _failure(error).problem)
        self._progress.tell(plan.settings.topic, table, outcome.problem, cluster)
        return outcome


def _seen(one: Done) -> Done:
    """What came of a copy; if its files are not where we and readers would find them, that it failed."""
    try:
        TableFolder(Path(one.folder)).check_there(one.copied.files if one.copied else ())
    except Unavailable as error:
        return Done(one.folder, one.topic_id, one.partition, error=f"partition {one.partition}: {error}")
    return one


def _who(copy: Copy) -> tuple[str, int]:
    return copy.topic_id, copy.partition


def _failure(error: Exception) -> Outcome:
    """Whoever was overtaken by another maintainer looks again: that is no problem."""
    return Outcome(is_behind=True) if isinstance(error, Fenced) else Outcome(problem=str(error))


def current(settings: TableSettings) -> Snapshot:
    """The table as it is, or the beginning of one, which claims its folder."""
    folder = TableFolder(settings.location)
    table = folder.latest()
    if table is None:
        folder.check_unused()
        table = begun(settings.topic, settings.topic_id, _now_ms())
        folder.put(table)
    check_owner(table, settings.topic, settings.topic_id, settings.location)
    return table


def planned(
    settings: TableSettings, table: Snapshot, earliest: Offsets, latest: Offsets, most_offsets: int
) -> Plan:
    """What is to be copied of a topic whose log has the offsets from `earliest` to `latest`."""
    plan = Plan(settings, table, [], {}, latest, [])
    for one in sorted(latest):
        covered = table.covered.get(one.partition)
        start = earliest[one] if covered is None else covered.end
        if start > latest[one]:
            plan.problems.append(f"the log of {one} ends at {latest[one]}, before its table: it was cut")
            continue
        if start < earliest[one]:
            plan.lost[one.partition] = Span(start, earliest[one])
            start = earliest[one]
        end = min(latest[one], start + most_offsets)
        if start < end:
            copy = Copy(str(settings.location), one.topic, settings.topic_id, one.partition, start, end)
            plan.copies.append(copy)
    return plan


def commit(plan: Plan, done: Sequence[Done], cluster: Cluster) -> tuple[Snapshot, Outcome]:
    """Put what was copied into the table.  The table then, and how far it got."""
    settings, table = plan.settings, plan.table
    mine = [one for one in done if (one.folder, one.topic_id) == (str(settings.location), settings.topic_id)]
    problem = "; ".join([*plan.problems, *(one.error for one in mine if one.error)])
    copied = [one.copied for one in mine if one.copied is not None]
    if not copied and not plan.lost:
        return table, Outcome(problem=problem)
    if cluster.topic_ids([settings.topic])[settings.topic] != settings.topic_id:
        raise NotFound("the topic was deleted and made anew while it was copied")
    _tell_losses(settings.topic, plan.lost)
    table = appended(table, copied, plan.lost, _now_ms())
    TableFolder(settings.location).put(table)
    rows = sum(file.rows for one in copied for file in one.files)
    ends = {TopicPartition(settings.topic, one.partition): one.span.end for one in copied}
    return table, Outcome(rows, any(end < plan.latest[at] for at, end in ends.items()), problem)


def _tell_losses(topic: str, lost: dict[int, Span]) -> None:
    for partition, span in lost.items():
        _log.error(
            "offsets %d to %d of %s-%d were gone from the log before they could be copied: they are lost",
            span.start,
            span.end - 1,
            topic,
            partition,
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
