"""Config errors name the key, the reason and the nearest valid name."""

import pytest

from spade_jax import config


def overridden(**changes):
    values = config.default_config().to_dict()
    for name, value in changes.items():
        *sections, key = name.split("__")
        place = values
        for section in sections:
            place = place[section]
        place[key] = value
    return values


def test_defaults_are_valid_and_survive_a_round_trip():
    built = config.from_config_dict(config.default_config())
    assert built == config.Config()
    assert config.from_config_dict(config.to_dict(built)) == built


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"learner__learnin_rate": 1.0},
            r"config\.learner\.learnin_rate.*learner\.learning_rate",
        ),
        ({"itertions": 3}, r"config\.itertions.*did you mean config\.iterations"),
        ({"iterations": "many"}, r"config\.iterations: must be int, got 'many'"),
        ({"iterations": True}, r"config\.iterations: must be int"),
        ({"iterations": 0}, r"config\.iterations: must be at least 1"),
        ({"learner": 3}, r"config\.learner: is a section"),
        ({"schedule__skills": "Optimization"}, r"config\.schedule\.skills: must be a tuple"),
        ({"schedule__skills": ("Optimisation",)}, r"did you mean Optimization"),
        ({"schedule__active_skills": 7}, r"schedule\.active_skills: 7 of 6 skills"),
        ({"schedule__delay": 2}, r"schedule\.delay: 2 is less than schedule\.k = 4"),
        ({"agent__max_episode_tokens": 40000}, r"agent\.max_episode_tokens.*sampler\.context"),
        ({"learner__row_length": 100}, r"learner\.row_length: 100 is less than sampler\.context"),
        ({"designer__max_tokens": 32768}, r"designer\.max_tokens.*no room for a prompt"),
        ({"designer__temperature": 0.0}, r"designer\.temperature: must be above 0"),
        ({"learner__role_weighting": "balance"}, r"did you mean balanced"),
        ({"designer__difficulty": "medum"}, r"did you mean medium"),
        ({"evaluation__every": 5}, r"evaluation\.benchmarks: must name some for .*every = 5"),
        ({"tasks__success": 1.5}, r"tasks\.success: 1\.5 is above 1"),
        ({"mesh__fsdp": 0}, r"config\.mesh\.fsdp: must be at least 1"),
        ({"rewards__regret_scale": 0}, r"config\.rewards\.regret_scale: must be above 0"),
        (
            {"learner__learning_rate": float("nan")},
            r"learning_rate: must be finite and not negative",
        ),
        ({"learner__learning_rate": float("inf")}, r"learning_rate: must be finite.*got inf"),
        ({"memory__exemplars": -1}, r"config\.memory\.exemplars: must be finite and not negative"),
        ({"rewards__kind": "solverate"}, r"rewards\.kind: .* did you mean solve_rate"),
        ({"rewards__slow_rate": 0.99}, r"rewards\.slow_rate: 0\.99 must be .* below"),
        ({"hints__author": "endpoint"}, r"config\.hints\.endpoint: must be set"),
        ({"hints__author": "environment", "designer__prompts": "small"}, r"hints\.author: .*full"),
        ({"validation__preset": "publish"}, r"did you mean published"),
        ({"sampler__kind": "sglan"}, r"did you mean sglang"),
        ({"sampler__hosts_per_replica": 2}, r"set sampler\.deterministic = False"),
        ({"sampler__hosts_per_replica": -1}, r"sampler\.hosts_per_replica: must be finite"),
        ({"sampler__kind": "sglang"}, r"config\.sampler\.urls: must be set"),
        ({"sampler__urls": "http://a:1,gpu:30000"}, r"sampler\.urls: 'gpu:30000' is no base URL"),
        ({"sampler__router": "gpu:30000"}, r"sampler\.router: 'gpu:30000' is no base URL"),
        ({"sampler__patience": 0.0}, r"sampler\.patience: must be above 0"),
        ({"schedule__overlap": "next_iteration"}, r"schedule\.overlap: .* needs servers elsewhere"),
    ],
)
def test_errors(changes, message):
    with pytest.raises(config.ConfigError, match=message):
        config.from_config_dict(overridden(**changes))


def test_an_integer_is_a_float_where_a_float_is_wanted():
    built = config.from_config_dict(overridden(learner__clip_norm=1))
    assert built.learner.clip_norm == 1.0
    assert isinstance(built.learner.clip_norm, float)


def test_every_setting_says_what_it_means():
    import dataclasses

    def walk(section):
        for field in dataclasses.fields(section):
            if dataclasses.is_dataclass(field.type):
                yield from walk(field.type)
            else:
                yield field

    for field in walk(config.Config):
        assert field.metadata.get("meaning"), field.name
