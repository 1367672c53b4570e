"""One iteration after another, against the same quantities computed from the records on disk."""

import asyncio
import collections
import dataclasses
import json
import statistics

import pytest

from spade_jax.data import corpus
from spade_jax.sandbox.faults import HostFault
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay import payment, rewards
from spade_jax.selfplay.state import State

TIME = "time/"


async def run(make_cycle, settings, iterations=None, host_class=EnvironmentHost, **parts):
    async with host_class(settings.sandbox) as host:
        cycle = make_cycle(host, settings, **parts)
        rows = []
        while cycle.state.iteration < (iterations or settings.iterations):
            rows.append(await cycle.run_iteration())
        return cycle, rows


def without_time(rows):
    return [{k: v for k, v in row.items() if not k.startswith(TIME)} for row in rows]


def test_four_iterations(make_cycle, settings, tmp_path):
    cycle, rows = asyncio.run(run(make_cycle, settings))
    learner = cycle._learner

    assert [row["iteration"] for row in rows] == [0, 1, 2, 3]
    for row in rows:
        assert row["environments/asked"] == 6
        assert row["environments/accepted"] >= 3
        assert row["agent/trained"] == row["episodes/plain"]
        for phase in ("play", "learn"):
            speed = row[f"time/{phase}_tokens_per_second"]
            assert row[f"tokens/{phase}"] == pytest.approx(speed * row[f"time/{phase}"])
            assert speed > 0
    assert ["designer/attempts" in row for row in rows] == [True, False, True, False]
    assert ["regret/mean" in row for row in rows] == [True, False, True, False]
    # The first set is paid when two iterations later the second is written, the second at the end.
    accepted = [row["environments/accepted"] for row in rows]
    assert [row["designer/trained"] for row in rows] == [0, 0, accepted[0], accepted[2]]
    assert cycle.state.parked == []

    episodes = [json.loads(path.read_text()) for path in tmp_path.glob("episodes/*/*.json")]
    assert len(episodes) == sum(
        row["episodes/plain"] + row.get("episodes/hinted", 0) for row in rows
    )
    check_pairing(episodes)
    check_designer_rewards(episodes, rows, settings)
    check_agent_advantages(episodes, learner.batches)


def check_pairing(episodes):
    """Hinted plays use the seeds of the plain ones of the same environment and iteration."""
    seeds = collections.defaultdict(list)
    for episode in episodes:
        seeds[episode["sha"], episode["iteration"], episode["arm"]].append(episode["seed"])
    hinted = [key for key in seeds if key[2] == "hinted"]
    assert hinted
    for sha, iteration, _ in hinted:
        assert sorted(seeds[sha, iteration, "hinted"]) == sorted(seeds[sha, iteration, "plain"])
    assert {iteration for _, iteration, _ in hinted} == {0, 2}


def check_designer_rewards(episodes, rows, settings):
    """The rewards recomputed from the episode files give the rows' mean."""
    by_epoch = collections.defaultdict(lambda: collections.defaultdict(list))
    for episode in episodes:
        start = episode["iteration"] // 2 * 2
        by_epoch[start][episode["sha"]].append(episode)
    for start, row in ((0, rows[2]), (2, rows[3])):
        paid = []
        for played in by_epoch[start].values():
            plain = [e["return"] for e in played if e["arm"] == "plain"]
            first = [e for e in played if e["iteration"] == start]
            difference = statistics.fmean(
                e["return"] for e in first if e["arm"] == "hinted"
            ) - statistics.fmean(e["return"] for e in first if e["arm"] == "plain")
            win_rate = statistics.fmean(plain)
            anchor = rewards.plateau(win_rate, 0.4, 0.6, 0.25)
            paid.append(0.4 * min(max(difference / 0.15, 0), 1) + 0.6 * anchor)
        assert row["designer/reward"] == pytest.approx(statistics.fmean(paid))


def check_agent_advantages(episodes, batches):
    """Advantages are the z-scores of the iteration's plain returns, environment by environment."""
    for iteration, batch in enumerate(batches):
        groups = collections.defaultdict(list)
        for episode in episodes:
            if episode["iteration"] == iteration and episode["arm"] == "plain":
                groups[episode["sha"]].append(episode["return"])
        expected = []
        for returns in groups.values():
            deviation = statistics.pstdev(returns)
            mean = statistics.fmean(returns)
            expected += [(r - mean) / (deviation + 1e-8) if deviation else 0.0 for r in returns]
        agent = [t.advantage for t in batch if t.group == 0]
        assert sorted(agent) == pytest.approx(sorted(expected))


def test_designer_advantages_are_centred_per_skill_and_scaled(make_cycle, settings):
    cycle, _ = asyncio.run(run(make_cycle, settings, iterations=3))
    batch = cycle._learner.batches[2]
    designer = [t for t in batch if t.group == 1]
    assert designer
    assert sum(t.advantage for t in designer) == pytest.approx(0, abs=1e-9)
    assert {t.temperature for t in designer} == {settings.designer.temperature}
    assert {t.temperature for t in batch if t.group == 0} == {settings.agent.temperature}
    for trajectory in designer:
        trained = sum(trajectory.trained)
        assert 0 < trained < len(trajectory.tokens)
        assert all(trajectory.trained[-trained:])


def changed(settings, **sections):
    """``changed(settings, hints={"placebo": 2})``."""
    parts = {
        name: dataclasses.replace(getattr(settings, name), **values)
        for name, values in sections.items()
    }
    return dataclasses.replace(settings, **parts)


def test_invalid_programs_are_trained_with_reward_zero_on_request(make_cycle, settings):
    settings = changed(settings, designer={"penalise_invalid": True})
    cycle, rows = asyncio.run(run(make_cycle, settings, iterations=3))
    refused = sum(value for name, value in rows[0].items() if name.startswith("refused/"))
    assert rows[2]["designer/penalised"] == refused > 0
    designer = [t for t in cycle._learner.batches[2] if t.group == 1]
    assert len(designer) == rows[2]["designer/trained"] == rows[0]["designer/accepted"] + refused
    assert sum(t.advantage for t in designer) == pytest.approx(0, abs=1e-9)


def test_empty_slots_are_topped_up_with_full_bookkeeping(
    make_cycle, settings, scripted, renderer, scripted_policy, tmp_path
):
    settings = changed(settings, schedule={"top_up": True}, designer={"attempts": 1})
    sampler = scripted(renderer, scripted_policy(broken=0.6))
    cycle, rows = asyncio.run(run(make_cycle, settings, sampler=sampler))
    added = rows[1]["designer/accepted"]
    assert rows[1]["designer/attempts"] == 6 - rows[0]["environments/accepted"] > 0
    assert rows[1]["environments/accepted"] == rows[0]["environments/accepted"] + added
    assert added > 0
    assert rows[1]["hints/written"] == added
    assert rows[1]["episodes/hinted"] == 4 * added
    assert "regret/mean" in rows[1]
    # Written in iteration 1, trained in iteration 3, beside what the last flush trains.
    flushed = rows[2]["designer/accepted"] + rows[3].get("designer/accepted", 0)
    assert rows[2]["designer/trained"] == rows[0]["environments/accepted"]
    assert rows[3]["designer/trained"] == added + flushed
    facts = [json.loads(path.read_text()) for path in tmp_path.glob("environments/*/*ment.json")]
    late = [fact for fact in facts if fact["written"] == 1]
    assert len(late) == added
    skills = settings.schedule.skills[:3]
    assert all(fact["skill"] == skills[fact["slot"] % 3] for fact in late)
    assert len({(fact["written"] // 2, fact["slot"]) for fact in facts}) == len(facts)
    remembered = {record.environment for record in cycle.state.memory.records}
    assert {fact["sha"] for fact in late} <= remembered


def test_arms_share_instances_and_regret_is_told_by_arm(make_cycle, settings, tmp_path):
    settings = changed(settings, schedule={"instances": 2}, hints={"placebo": 3})
    _, (row,) = asyncio.run(run(make_cycle, settings, iterations=1))
    returns = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in tmp_path.glob("episodes/*/*.json"):
        episode = json.loads(path.read_text())
        returns[episode["sha"], episode["arm"]][episode["seed"]].append(episode["return"])
        assert (episode["hint"] is None) == (episode["arm"] == "plain")
    assert all(len(by_seed) == 2 for by_seed in returns.values())
    gains, errors = collections.defaultdict(list), []
    sample = [sha for sha, arm in returns if arm == "placebo"]
    assert 0 < len(sample) <= 3
    for sha in sample:
        for arm in ("hinted", "placebo"):
            assert returns[sha, arm].keys() == returns[sha, "plain"].keys()
            means = {a: [statistics.fmean(v) for _, v in sorted(returns[sha, a].items())]
                     for a in (arm, "plain")}  # fmt: skip
            gains[arm].append(statistics.fmean(means[arm]) - statistics.fmean(means["plain"]))
    assert row["regret/placebo"] == pytest.approx(statistics.fmean(gains["placebo"]))
    assert row["regret/beside_placebo"] == pytest.approx(statistics.fmean(gains["hinted"]))
    assert row["episodes/placebo"] == 4 * len(sample)
    for sha in {sha for sha, arm in returns if arm == "hinted"}:
        hinted, plain = returns[sha, "hinted"], returns[sha, "plain"]
        of_seed = [statistics.fmean(hinted[s]) - statistics.fmean(plain[s]) for s in plain]
        errors.append(statistics.stdev(of_seed) / 2**0.5)
    assert row["regret/error"] == pytest.approx(
        statistics.fmean(error**2 for error in errors) ** 0.5
    )
    assert -1 <= row.get("returns/seed_share", 0.0) <= 1


def test_stopped_and_resumed_equals_unbroken(
    make_cycle, settings, scripted, renderer, scripted_policy
):
    """With everything on that leaves something in the state."""
    settings = changed(
        settings,
        schedule={"top_up": True},
        designer={"penalise_invalid": True, "attempts": 2},
        hints={"placebo": 2},
        rewards={"kind": "learning_potential"},
    )
    whole, rows = asyncio.run(run(make_cycle, settings))
    read = corpus.load("pydoc", settings.seed)
    first, before = asyncio.run(run(make_cycle, settings, iterations=2, corpus=read))
    saved = json.loads(json.dumps(first.state.to_json()))
    documents = corpus.load("pydoc", settings.seed)
    documents.set_state(read.get_state())
    state = State.from_json(saved, settings.memory)
    sampler = scripted(renderer, scripted_policy())
    sampler.update(None, 2)
    parts = {"state": state, "corpus": documents, "sampler": sampler}
    second, after = asyncio.run(run(make_cycle, settings, **parts))
    assert without_time(before + after) == without_time(rows)
    assert second.state.to_json() == whole.state.to_json()
    assert whole.state.averages
    assert any(name.startswith("potential/") for name in rows[2])


class UnreliableHost(EnvironmentHost):
    """Some instances fail for reasons of ours while they are played."""

    fault = HostFault("the machine went away")
    victim = None

    async def step(self, handle, action):
        if handle % 5 == 0 and self.playing:
            raise self.fault
        return await super().step(handle, action)

    playing = False


def test_host_faults_are_dropped_and_counted(make_cycle, settings):
    async def go():
        async with UnreliableHost(settings.sandbox) as host:
            cycle = make_cycle(host, settings)
            play = cycle._play

            async def playing():
                host.playing = True
                try:
                    return await play()
                finally:
                    host.playing = False

            cycle._play = playing
            return cycle, await cycle.run_iteration()

    cycle, row = asyncio.run(go())
    dropped = row["episodes/plain_dropped"] + row["episodes/hinted_dropped"]
    assert dropped == row["episodes/host_fault"] > 0
    assert row["agent/trained"] == row["episodes/plain"]
    assert cycle.state.faulty == set()


def test_an_environment_that_misbehaves_in_play_earns_its_designer_nothing(make_cycle, settings):
    async def go():
        async with EnvironmentHost(settings.sandbox) as host:
            cycle = make_cycle(host, settings)
            await cycle.run_iteration()
            victim = cycle.state.environments[0]
            cycle.state.faulty.add(victim.sha)
            return payment.pay([victim], cycle.state, settings.rewards)

    assert asyncio.run(go()) == [0.0]


def test_every_refusal_is_recorded_with_its_reason(make_cycle, settings, tmp_path):
    _, rows = asyncio.run(run(make_cycle, settings, iterations=1))
    refusals = [json.loads(path.read_text()) for path in tmp_path.glob("rejections/*.json")]
    counted = sum(value for name, value in rows[0].items() if name.startswith("refused/"))
    assert len(refusals) == counted > 0
    assert rows[0]["designer/attempts"] == counted + rows[0]["environments/accepted"]
    assert all(refusal["outcome"] and refusal["reason"] for refusal in refusals)


def test_a_set_without_environments_is_survived(make_cycle, settings, renderer, scripted):
    hopeless = scripted(renderer, lambda request, prompt: "nothing")
    cycle, rows = asyncio.run(run(make_cycle, settings, iterations=2, sampler=hopeless))
    assert [row["environments/accepted"] for row in rows] == [0, 0]
    assert cycle._learner.batches == [[], []]


def test_deadline_keeps_what_is_finished(make_cycle, settings, renderer, scripted, scripted_policy):
    class Slow:
        """Every other slot never answers."""

        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        async def generate(self, requests):
            slot = requests[0].uid.split("/slot/")[-1].split("/")[0]
            if "/slot/" in requests[0].uid and int(slot) % 2:
                await asyncio.sleep(3600)
            return await self.inner.generate(requests)

    quick = dataclasses.replace(
        settings, designer=dataclasses.replace(settings.designer, deadline=10.0)
    )
    sampler = Slow(scripted(renderer, scripted_policy(broken=0.0)))
    cycle, rows = asyncio.run(run(make_cycle, quick, iterations=1, sampler=sampler))
    assert {environment.slot for environment in cycle.state.environments} <= {0, 2, 4}
    assert cycle.state.environments
    assert rows[0]["refused/unfinished"] == 3
