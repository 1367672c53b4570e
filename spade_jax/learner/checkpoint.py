"""Checkpoints of a run: arrays and JSON data, as finalised Orbax steps."""

import pathlib
from typing import Any

import jax
import orbax.checkpoint as ocp

_REMEDY = (
    "restore another step, or move this directory away (a kept older step then becomes the "
    "latest) and start again"
)


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be used: the message names directory, reason and remedy."""


class Checkpoints:
    """The checkpoints of one run directory; a context manager that waits for writes to end.

    Writing happens in the background from a copy of the arrays: they may be donated once
    :meth:`save` has returned. A step counts only when it is complete and renamed into place, so a
    killed process leaves nothing that :meth:`latest` would pick.
    """

    def __init__(
        self,
        directory: str | pathlib.Path,
        keep: int,
        keep_every: int = 0,
        writable: bool = True,
    ) -> None:
        """Keeps the newest ``keep`` steps, and for good the multiples of ``keep_every``."""
        self.directory = pathlib.Path(directory).absolute()
        # A reader must leave alone what a running trainer is about to finish.
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep if writable else None,
            keep_period=(keep_every or None) if writable else None,
            enable_async_checkpointing=writable,
            cleanup_tmp_directories=writable,
            create=writable,
            read_only=not writable,
        )
        self._manager = ocp.CheckpointManager(self.directory, options=options)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # Of several processes, the others need not come to where a failed one would wait for them.
        failed = kind is not None and issubclass(kind, Exception)
        if not failed or jax.process_count() == 1:
            self.close()

    def save(self, step: int, arrays: Any, data: dict) -> None:
        """Starts writing ``step``: a pytree of arrays and a JSON dictionary.

        Several processes all call this; the first one's ``data`` is written.
        """
        items = {"arrays": ocp.args.StandardSave(arrays), "data": ocp.args.JsonSave(data)}
        self._manager.save(step, args=ocp.args.Composite(**items))

    def latest(self) -> int | None:
        """Newest complete step, or None."""
        self.wait()
        return self._manager.latest_step()

    def steps(self) -> list[int]:
        """Complete steps, the oldest first."""
        self.wait()
        self._manager.reload()  # what lies on the disk, not what was seen there before
        return sorted(self._manager.all_steps())

    def restore(self, step: int, like: Any) -> tuple[Any, dict]:
        """Arrays and data of ``step``.

        Args:
          step: a step that was saved.
          like: pytree of arrays, or of ShapeDtypeStructs with shardings, that says in which
            structure, dtype and layout the arrays are wanted.

        Raises:
          CheckpointError: the step is absent, damaged, or of another structure.
        """
        place = self.directory / str(step)
        if step not in (complete := self.steps()):
            steps = ", ".join(map(str, complete)) or "none"
            raise CheckpointError(
                f"{place}: no complete checkpoint of step {step}; complete steps here: {steps}. "
                "Choose one of these or another directory"
            )
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        items = {"arrays": ocp.args.StandardRestore(abstract), "data": ocp.args.JsonRestore()}
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(**items))
        except Exception as error:  # Orbax and TensorStore raise a dozen kinds for damage
            raise CheckpointError(f"{place}: cannot be read ({error}); {_REMEDY}") from error
        return restored["arrays"], restored["data"]

    def wait(self) -> None:
        """Returns when everything saved so far is complete on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then releases the writer's threads."""
        self._manager.wait_until_finished()
        self._manager.close()
