import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spade_jax.learner.checkpoint import CheckpointError, Checkpoints


def arrays(value):
    return {
        "w": jnp.full((3, 2), value, jnp.float32),
        "half": jnp.full((4,), value, jnp.bfloat16),
        "count": jnp.asarray(value, jnp.int32),
    }


def assert_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert jax.tree.map(lambda x: x.dtype, got) == jax.tree.map(lambda x: x.dtype, want)


def test_round_trip_of_arrays_and_of_megabytes_of_data(tmp_path):
    data = {"ledger": [[i, i / 7, f"environment {i} é"] for i in range(60_000)], "none": None}
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        assert checkpoints.latest() is None
        checkpoints.save(3, arrays(1.5), data)
        assert checkpoints.latest() == 3
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), arrays(0))
        for like in (abstract, arrays(0)):
            got, got_data = checkpoints.restore(3, like)
            assert_equal(got, arrays(1.5))
            assert got_data == data


def test_arrays_may_be_donated_once_save_returned(tmp_path):
    tree = {"w": jnp.arange(1 << 20, dtype=jnp.float32)}
    expected = np.asarray(tree["w"]).copy()
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(0, tree, {})
        jax.jit(lambda t: jax.tree.map(lambda x: x * 0 - 1, t), donate_argnums=0)(tree)
        got, _ = checkpoints.restore(0, {"w": jax.ShapeDtypeStruct((1 << 20,), jnp.float32)})
    np.testing.assert_array_equal(got["w"], expected)


def test_only_the_newest_are_kept(tmp_path):
    with Checkpoints(tmp_path, keep=2) as checkpoints:
        for step in (1, 5, 9):
            checkpoints.save(step, arrays(step), {"step": step})
        assert checkpoints.latest() == 9
        assert checkpoints.restore(5, arrays(0))[1] == {"step": 5}
        with pytest.raises(CheckpointError, match=r"step 1; complete steps here: 5, 9"):
            checkpoints.restore(1, arrays(0))


def test_absent_directory_and_step_are_named(tmp_path):
    with (
        Checkpoints(tmp_path / "run", keep=1) as checkpoints,
        pytest.raises(CheckpointError, match=r"run/4: no complete checkpoint.*none"),
    ):
        checkpoints.restore(4, arrays(0))


@pytest.mark.parametrize("damage", ["data", "arrays", "half of arrays"])
def test_damage_is_named_with_reason_and_remedy(tmp_path, damage):
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        checkpoints.save(1, arrays(1), {"step": 1})
        checkpoints.save(2, arrays(2), {"step": 2})
    victim = tmp_path / "2" / damage.split()[-1]
    if damage == "half of arrays":
        for file in victim.rglob("*"):
            if file.is_file() and file.stat().st_size:
                os.truncate(file, file.stat().st_size // 2)
    else:
        shutil.rmtree(victim)
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        with pytest.raises(CheckpointError, match=r"/2: cannot be read \(.+\); restore another"):
            checkpoints.restore(2, arrays(0))
        assert_equal(checkpoints.restore(1, arrays(0))[0], arrays(1))


def test_other_structure_is_an_error(tmp_path):
    with Checkpoints(tmp_path, keep=1) as checkpoints:
        checkpoints.save(1, arrays(1), {})
        with pytest.raises(CheckpointError, match="cannot be read"):
            checkpoints.restore(1, arrays(0) | {"more": jnp.zeros(3)})
        with pytest.raises(CheckpointError, match="cannot be read"):
            checkpoints.restore(1, arrays(0) | {"w": jnp.zeros((5, 2))})


def test_a_process_killed_while_writing_leaves_the_last_complete_step(tmp_path):
    script = """
        import sys, time, jax.numpy as jnp
        from spade_jax.learner.checkpoint import Checkpoints
        checkpoints = Checkpoints(sys.argv[1], keep=5)
        checkpoints.save(1, {"w": jnp.ones(3)}, {"step": 1})
        checkpoints.wait()
        print("one", flush=True)
        for step in range(2, 1000):
            checkpoints.save(step, {"w": jnp.ones(1 << 22) * step}, {"step": step})
            print(step, flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE
    )
    assert process.stdout.readline() == b"one\n"
    while not list(tmp_path.glob("*.orbax-checkpoint-tmp*")):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        latest = checkpoints.latest()
        size = 3 if latest == 1 else 1 << 22
        got, data = checkpoints.restore(latest, {"w": jax.ShapeDtypeStruct((size,), jnp.float32)})
        np.testing.assert_array_equal(got["w"], np.full(size, latest))
        assert data == {"step": latest}
        checkpoints.save(latest + 1, arrays(0), {})
        assert checkpoints.latest() == latest + 1
