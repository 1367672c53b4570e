"""The dimensions that are written down, against the sizes that the checkpoints have on the hub."""

import math

import jax
import pytest
from flax import nnx

from spade_jax import config
from spade_jax.models.config import ModelConfig
from spade_jax.models.published import CONFIGS
from spade_jax.models.transformer import abstract

PARAMETERS = {  # by the safetensors metadata of each model page
    "Qwen/Qwen3-4B-Instruct-2507": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-30B-A3B-Instruct-2507": 30_532_122_624,
}


@pytest.mark.parametrize("source", CONFIGS)
def test_parameters_are_as_many_as_published(source):
    params = nnx.state(abstract(ModelConfig.from_hf(CONFIGS[source]), config.Model()))
    assert sum(math.prod(x.shape) for x in jax.tree.leaves(params)) == PARAMETERS[source]
