"""Cycles that deal out their work and tell each other about it, against one that does it all."""

import asyncio
import dataclasses
import json

from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import exchange
from spade_jax.selfplay.records import Records, Unrecorded


class Pair:
    """One of ``count`` tasks of this process; what they exchange goes through JSON."""

    def __init__(self, index, count, rounds):
        self.index, self.count = index, count
        self._rounds, self._number = rounds, 0

    async def all_gather(self, what, value):
        if self._number == len(self._rounds):
            self._rounds.append(([], [None] * self.count, asyncio.Event()))
        names, values, full = self._rounds[self._number]
        self._number += 1
        names.append(what)
        values[self.index] = json.loads(json.dumps(value))
        if len(names) == self.count:
            assert len(set(names)) == 1
            full.set()
        await full.wait()
        return values


def test_dealing_and_joining_are_inverse():
    async def go(total, count):
        rounds, items = [], [str(i) for i in range(total)]
        pairs = [Pair(index, count, rounds) for index in range(count)]
        shares = [exchange.dealt(items, pair) for pair in pairs]
        assert sum(map(len, shares)) == total
        joined = [
            exchange.all_results(pair, "x", share)
            for pair, share in zip(pairs, shares, strict=True)
        ]
        assert await asyncio.gather(*joined) == [items] * count

    for total in range(6):
        for count in (1, 2, 3, 7):
            asyncio.run(go(total, count))


def without_time(rows):
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def written(folder):
    paths = (path for path in folder.rglob("*.*") if path.suffix != ".parquet")
    return {path.relative_to(folder): path.read_text() for path in paths}


def run(make_cycle, settings, count, folder, sampler):
    """For each process its rows, the batches it learned from and its state."""

    async def go():
        rounds = []
        async with EnvironmentHost(settings.sandbox) as host:
            cycles = [
                make_cycle(
                    host,
                    settings,
                    sampler=sampler,
                    corpus=None,  # it is dealt out, too: slots would get other documents
                    records=Unrecorded() if index else Records(folder),
                    exchange=Pair(index, count, rounds),
                )
                for index in range(count)
            ]

            async def iterate(cycle):
                return [await cycle.run_iteration() for _ in range(settings.iterations)]

            return cycles, await asyncio.gather(*map(iterate, cycles))

    cycles, rows = asyncio.run(go())
    return [
        (without_time(row), cycle._learner.batches, cycle.state.to_json())
        for cycle, row in zip(cycles, rows, strict=True)
    ]


def test_several_processes_make_of_the_same_episodes_what_one_makes(
    make_cycle, settings, tmp_path, scripted, renderer, scripted_policy
):
    """Rewards, advantages, every token that is learned from, state and records; more processes
    than slots, too: their share is empty."""
    settings = dataclasses.replace(
        settings,
        schedule=dataclasses.replace(settings.schedule, slots=3, active_skills=1, top_up=True),
        hints=dataclasses.replace(settings.hints, placebo=2),
        designer=dataclasses.replace(settings.designer, penalise_invalid=True, attempts=2),
        # Environments that are always lost earn something, refused programs nothing.
        rewards=dataclasses.replace(settings.rewards, anchor_low=0.0),
    )
    policy = scripted_policy(broken=0.6)
    runs = {
        n: run(make_cycle, settings, n, tmp_path / str(n), scripted(renderer, policy))
        for n in (1, 2, 4)
    }
    ((rows, batches, state),) = runs[1]
    assert any(t.group == 1 and t.advantage for batch in batches for t in batch)
    assert all(any(t.group == 0 for t in batch) for batch in batches)
    for n in (2, 4):
        for found in runs[n]:
            assert found == (rows, batches, state)
        assert written(tmp_path / str(n)) == written(tmp_path / "1")
