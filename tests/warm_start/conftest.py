"""A small lesson of the test module's ``SETTINGS``."""

import asyncio

import pytest

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.warm_start import lesson, stage


@pytest.fixture(scope="session")
def build():
    """Examples of some settings, made anew."""

    async def run(settings):
        async with EnvironmentHost(config.Sandbox()) as host:
            documents = corpus.pydoc_documents()
            return await lesson.build(stage.LESSONS[settings.setting], settings, documents, host)

    return lambda settings: asyncio.run(run(settings))


@pytest.fixture(scope="module")
def built(request, build):
    return build(request.module.SETTINGS)
