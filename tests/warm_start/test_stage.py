import dataclasses
import json

import jax
import numpy as np
import pytest
import transformers

from spade_jax import config
from spade_jax.learner.checkpoint import Checkpoints
from spade_jax.learner.packing import Trajectory
from spade_jax.learner.step import Learner
from spade_jax.models import transformer
from spade_jax.models.config import ModelConfig
from spade_jax.warm_start import stage

TINY = {
    "model_type": "qwen3",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "intermediate_size": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "attention_bias": False,
}


class Progress:
    def __init__(self):
        self.phases = []

    def phase(self, name, total):
        self.phases.append([name, total, 0])

    def advance(self):
        self.phases[-1][2] += 1


def settings(cache="", **warm):
    default = config.Config()
    wanted = {"programs": 12, "hints": 4, "plays": 12, "vocabulary": 400, "batch_tokens": 1500}
    return dataclasses.replace(
        default,
        model=dataclasses.replace(default.model, architecture=TINY),
        designer=dataclasses.replace(default.designer, prompts="small"),
        learner=dataclasses.replace(default.learner, row_length=1024, rows=2, remat=False),
        warm_start=dataclasses.replace(
            default.warm_start, **{**wanted, "steps": 4, "cache": str(cache), **warm}
        ),
    )


def lessons(count=12):
    made = []
    for index in range(count):
        tokens = [1, 2 + index % 3, 5, 6, 7, 5, 6, 7]
        made.append(Trajectory(tokens, [False] + [True] * 7, [0.0] * 8, 0.0, weight=7.0))
    return made


def learner():
    model = transformer.build(
        ModelConfig.from_hf({**TINY, "vocab_size": 32}), config.Model(architecture=TINY), 0
    )
    own = settings(batch_tokens=60)
    return Learner(model, stage.imitation(own, lessons()), ("lessons",))


def test_the_rate_rises_then_falls_as_a_cosine():
    warm = config.WarmStart(steps=100, learning_rate=2.0)
    rates = [stage.learning_rate(step, warm) for step in range(100)]
    assert rates[0] == pytest.approx(2.0 / 5)
    assert max(rates) == pytest.approx(2.0, rel=0.01)
    assert rates[50] == pytest.approx(1.0)
    assert rates[-1] < 0.001
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_each_pass_holds_every_lesson_once_and_batches_keep_their_size():
    items = [Trajectory([i] * (1 + i % 5), [False] * (1 + i % 5), [], 0.0) for i in range(40)]
    warm = config.WarmStart(steps=60, batch_tokens=9)
    made = list(stage.batches(items, warm, seed=1))
    assert all(0 < sum(len(t.tokens) for t in batch) <= 9 for batch in made)
    order = [t.tokens[0] for batch in made for t in batch]
    assert sorted(order[:40]) == list(range(40))
    assert sorted(order[40:80]) == list(range(40))
    assert order[:40] != order[40:80]
    again = stage.batches(items, warm, seed=1)
    assert [t.tokens for b in again for t in b] == [t.tokens for b in made for t in b]


def test_teaching_lowers_the_loss():
    warm = config.WarmStart(steps=40, learning_rate=3e-2, batch_tokens=60)
    losses = stage.teach(learner(), lessons(), warm, 0, Progress())
    assert len(losses) == 40
    assert losses[-1] < losses[0] / 3  # a third of one token in seven cannot be foreseen


def test_rows_are_as_short_as_the_lessons_allow():
    def rows(longest, batch_tokens):
        lesson = Trajectory([1] * longest, [False] * longest, [0.0] * longest, 0.0)
        own = stage.imitation(settings(batch_tokens=batch_tokens), [lesson])
        return own.row_length, own.rows

    assert rows(10, 60) == (64, 2)
    assert rows(64, 640) == (64, 13)
    assert rows(65, 640) == (128, 7)
    assert rows(700, 100) == (1024, 1)


def test_an_interrupted_lesson_goes_on_to_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "CHECKPOINT_EVERY", 2)
    warm = config.WarmStart(steps=6, learning_rate=1e-2, batch_tokens=60)
    whole = learner()
    losses = stage.teach(whole, lessons(), warm, 0, Progress())

    class Killed(Exception):
        pass

    class Dying(Progress):
        def advance(self):
            super().advance()
            if self.phases[-1][2] == 5:
                raise Killed

    with Checkpoints(tmp_path, keep=1) as kept, pytest.raises(Killed):
        stage.teach(learner(), lessons(), warm, 0, Dying(), kept)
    resumed = learner()
    with Checkpoints(tmp_path, keep=1) as kept:
        rest = stage.teach(resumed, lessons(), warm, 0, Progress(), kept)

    assert rest == losses[4:]
    for a, b in zip(jax.tree.leaves(whole.params), jax.tree.leaves(resumed.params), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_fingerprint_follows_what_decides_and_nothing_else(tmp_path):
    own = stage.fingerprint(settings())
    assert own == stage.fingerprint(settings(cache=tmp_path))
    assert own == stage.fingerprint(dataclasses.replace(settings(), iterations=3))
    assert own != stage.fingerprint(dataclasses.replace(settings(), seed=1))
    assert own != stage.fingerprint(settings(programs=13))
    assert own != stage.fingerprint(dataclasses.replace(settings(), setting="tools"))
    assert own != stage.fingerprint(
        dataclasses.replace(settings(), agent=config.Agent(max_turns=9))
    )
    assert own != stage.fingerprint(
        dataclasses.replace(settings(), model=config.Model(architecture={**TINY, "head_dim": 4}))
    )


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stage.cache_folder(settings()) == tmp_path / "spade_jax" / "warm_start"
    assert stage.cache_folder(settings(cache="elsewhere")).name == "elsewhere"


def test_a_model_is_taught_once_and_loads_in_transformers(tmp_path):
    wanted = settings(cache=tmp_path / "cache")
    first, second = Progress(), Progress()
    stage.taught(wanted, tmp_path / "one" / "initial", first)
    assert first.phases == [
        ["lesson: programs", 12, 12],
        ["lesson: hints", 4, 4],
        ["lesson: plays", 12, 12],
        ["lesson: tokenizer", 1, 1],
        ["lesson: tokens", 28, 28],
        ["teaching", 4, 4],
    ]

    stage.taught(wanted, tmp_path / "two" / "initial", second)
    assert second.phases == []
    folders = [tmp_path / name / "initial" for name in ("one", "two")]
    weights = [(folder / "model.safetensors").read_bytes() for folder in folders]
    assert weights[0] == weights[1]

    model = transformers.AutoModelForCausalLM.from_pretrained(folders[0])
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders[0])
    assert model.config.vocab_size == len(tokenizer)
    assert json.loads((folders[0] / "config.json").read_text())["hidden_size"] == 16
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Write Optimization"}],
        return_tensors="pt",
        return_dict=False,
        add_generation_prompt=True,
    )
    assert model(ids).logits.shape == (1, ids.shape[1], len(tokenizer))
