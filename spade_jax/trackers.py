"""TensorBoard and Weights & Biases, on request: the rows of ``metrics.jsonl`` once more."""

import contextlib
import numbers
import typing
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spade_jax import config

Values = Mapping[str, float]
Log = Callable[[int, Values], None]


class Trackers(contextlib.ExitStack):
    """Those that the config asks for; a context manager that lets them write what they hold.

    Neither needs a network: W&B writes ``wandb/`` of the run directory for ``wandb sync`` unless
    ``trackers.wandb_mode`` is 'online'.
    """

    def __init__(self, settings: config.Trackers, workdir: Path, first: int):
        """``first``: the iteration at which the run starts or continues; a tracker forgets what it
        was told of it and of later ones.

        Raises:
          config.ConfigError: a tracker is asked for whose package is not installed.
        """
        super().__init__()
        self._logs: list[Log] = []
        if settings.tensorboard:
            self._logs.append(_tensorboard(self, workdir, first))
        if settings.wandb:
            self._logs.append(_wandb(self, settings, workdir))

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of metrics; what is no number stays in ``metrics.jsonl`` alone."""
        values = {name: float(value) for name, value in row.items() if _is_number(value)}
        for log in self._logs:
            log(row["iteration"], values)


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _tensorboard(stack: contextlib.ExitStack, workdir: Path, first: int) -> Log:
    try:
        import tensorboardX
    except ImportError as error:
        raise _missing("tensorboard") from error
    writer = tensorboardX.SummaryWriter(
        str(workdir / "tensorboard"), purge_step=first, filename_suffix=f".{first:05d}"
    )
    stack.callback(writer.close)

    def log(iteration: int, values: Values) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, iteration)
        writer.flush()

    return log


def _wandb(stack: contextlib.ExitStack, settings: config.Trackers, workdir: Path) -> Log:
    try:
        import wandb
    except ImportError as error:
        raise _missing("wandb") from error
    identity = workdir / "wandb_id"
    if not identity.exists():
        identity.write_text(uuid.uuid4().hex)
    run = wandb.init(
        project=settings.wandb,
        mode=typing.cast(Any, settings.wandb_mode),
        dir=workdir,
        id=identity.read_text(),
        name=workdir.name,
        resume="allow",
        settings=wandb.Settings(console="off", silent=True),
    )
    stack.callback(run.finish)

    def log(iteration: int, values: Values) -> None:
        run.log(dict(values), step=iteration)

    return log


def _missing(name: str) -> config.ConfigError:
    return config.ConfigError(
        f"config.trackers.{name}: its package is not installed; pip install 'spade-jax[trackers]'"
    )
