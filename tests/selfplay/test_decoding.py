"""Each role is sampled as its settings say."""

from spade_jax import config
from spade_jax.selfplay.decoding import sampling_params


def test_every_setting_of_the_role_counts(renderer):
    for role in (config.Designer(), config.Agent(), config.Hints()):
        params = sampling_params(role, renderer)
        for name in ("max_tokens", "temperature", "top_p", "top_k"):
            assert getattr(params, name) == getattr(role, name)
        assert params.stop_ids == renderer.stop_ids


def test_room_only_lowers(renderer):
    agent = config.Agent(max_tokens=100)
    assert sampling_params(agent, renderer, 30).max_tokens == 30
    assert sampling_params(agent, renderer, 300).max_tokens == 100
