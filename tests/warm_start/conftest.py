"""A small lesson of the test module's ``SETTINGS``."""

import asyncio

import pytest

from spade_jax import config
from spade_jax.data import corpus
from spade_jax.sandbox.host import EnvironmentHost
from spade_jax.selfplay.phases import Unseen
from spade_jax.warm_start import lesson, stage


@pytest.fixture(scope="session")
def build():
    """Examples of some settings, made anew."""

    async def run(settings):
        async with EnvironmentHost(config.Sandbox()) as host:
            documents = corpus.pydoc_documents()
            teacher = stage.LESSONS[settings.setting]
            return await lesson.build(teacher, settings, documents, host, Unseen())

    return lambda settings: asyncio.run(run(settings))


@pytest.fixture(scope="module")
def built(request, build):
    return build(request.module.SETTINGS)
