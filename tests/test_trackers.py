"""Rows written through the trackers, read back with TensorBoard's and W&B's own readers."""

import json
import struct
import sys

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from spade_jax import config
from spade_jax.trackers import Trackers


def row(iteration):
    return {"iteration": iteration, "loss": iteration / 4, "name": "text", "flag": True}


def write(settings, workdir, first, end):
    with Trackers(settings, workdir, first) as trackers:
        for iteration in range(first, end):
            trackers.log(row(iteration))


def test_off_by_default(tmp_path):
    write(config.Trackers(), tmp_path, 0, 2)
    assert not any(tmp_path.iterdir())


def test_tensorboard_has_every_number_once_after_a_resume(tmp_path):
    settings = config.Trackers(tensorboard=True)
    write(settings, tmp_path, 0, 5)
    write(settings, tmp_path, 3, 6)  # the run was killed after iteration 4, saved after 2
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {"iteration", "loss"}
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(i, i / 4) for i in range(6)]


def test_wandb_works_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "online")  # the config decides
    write(config.Trackers(wandb="project"), tmp_path, 0, 3)
    wandb.teardown()  # waits for its writer, a process of its own
    (log,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    identity = (tmp_path / "wandb_id").read_text()
    assert identity in log.name
    assert [(items["_step"], items["loss"]) for items in history(log)] == [
        (0, 0.0),
        (1, 0.25),
        (2, 0.5),
    ]


def history(path):
    """The rows in W&B's own file: 7 bytes, then LevelDB's log format with one protobuf a record."""
    data = path.read_bytes()
    assert len(data) < 32768, "more than one block"
    place = 7
    while place + 7 <= len(data):
        _, length, kind = struct.unpack_from("<IHB", data, place)
        assert kind == 1, "a record in one piece"
        record = wandb_internal_pb2.Record.FromString(data[place + 7 : place + 7 + length])
        place += 7 + length
        if record.WhichOneof("record_type") == "history":
            yield {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }


@pytest.mark.parametrize(
    ("settings", "package"),
    [(config.Trackers(tensorboard=True), "tensorboardX"), (config.Trackers(wandb="p"), "wandb")],
)
def test_a_missing_package_is_named(tmp_path, monkeypatch, settings, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        config.ConfigError, match=r"trackers\..*pip install 'spade-jax\[trackers\]'"
    ):
        Trackers(settings, tmp_path, 0)
