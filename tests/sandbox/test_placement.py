"""Which host a config names, and what is said where it cannot be had."""

import asyncio
import sys
import threading

import pytest

from spade_jax import config
from spade_jax.sandbox import cluster, placement
from spade_jax.sandbox.faults import NoHost
from spade_jax.sandbox.host import EnvironmentHost


def placed(fleet):
    async def main():
        async with placement.environment_host(config.Sandbox(fleet=fleet)) as host:
            return type(host)

    return asyncio.run(main())


def test_without_a_fleet_it_is_this_machine_and_no_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)  # an import fails
    assert placed("") is EnvironmentHost


def test_a_missing_ray_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in ("cluster", "fleet"):
        monkeypatch.delitem(sys.modules, f"spade_jax.sandbox.{name}", raising=False)
        monkeypatch.delattr(f"spade_jax.sandbox.{name}", raising=False)
    with pytest.raises(config.ConfigError, match=r"pip install 'spade-jax\[ray\]'"):
        placed("auto")


def test_a_missing_client_is_named_too(monkeypatch):
    def init(*arguments, **options):
        raise ModuleNotFoundError("No module named 'grpc'", name="grpc")

    monkeypatch.setattr(cluster.ray, "init", init)
    with pytest.raises(config.ConfigError, match=r"grpc is not installed.*spade-jax\[ray\]"):
        placed("ray://head:10001")


def test_a_cluster_that_is_not_there_is_one_error(monkeypatch, caplog):
    def refuse(*arguments, **options):
        raise ConnectionError("no such thing")

    monkeypatch.setattr(cluster.ray, "init", refuse)
    with pytest.raises(NoHost, match="'head:6379' cannot be reached: no such thing"):
        placed("head:6379")
    never = threading.Event()
    monkeypatch.setattr(cluster.ray, "init", lambda *_, **__: never.wait())
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.1)
    monkeypatch.setattr(cluster, "SILENT_SECONDS", 0.01)
    with pytest.raises(NoHost, match=r"'head:6379' cannot be reached: no answer within 0\.1 s"):
        placed("head:6379")
    assert caplog.messages == ["waiting for the Ray cluster at 'head:6379'"]
    never.set()


@pytest.mark.parametrize("fleet", ["", "auto", "head:6379", "10.0.0.1:6379", "ray://head:10001"])
def test_addresses(fleet):
    values = {"sandbox": {"fleet": fleet}}
    assert config.from_config_dict(values).sandbox.fleet == fleet


@pytest.mark.parametrize("fleet", ["head", "http://head:6379", "ray://head", "ray://", "a b:1"])
def test_what_is_no_address_is_refused(fleet):
    with pytest.raises(config.ConfigError, match=r"config\.sandbox\.fleet: .*ray://HOST:PORT"):
        config.from_config_dict({"sandbox": {"fleet": fleet}})
