"""The compile proof, as a user runs it; needs libtpu."""

import json
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from spade_jax import compile_table, hlo
from spade_jax import config as settings_
from spade_jax.models import flops
from spade_jax.models.config import ModelConfig
from spade_jax.models.transformer import abstract

CONFIG = """
from spade_jax import config as config_lib

def get_config(layers="4"):
    config = config_lib.default_config()
    config.model.architecture = dict(
        model_type="qwen3_moe", vocab_size=1920, hidden_size=256, intermediate_size=512,
        num_hidden_layers=int(layers), num_attention_heads=4, num_key_value_heads=2, head_dim=128,
        max_position_embeddings=4096, rope_theta=1e6, tie_word_embeddings=False, num_experts=8,
        num_experts_per_tok=2, moe_intermediate_size=256, norm_topk_prob=True,
    )
    config.model.update(compute_dtype="bfloat16", attention="splash")
    config.learner.update(rows=4, row_length=512)
    config.sampler.context = config.agent.max_episode_tokens = 512
    config.designer.max_tokens = config.hints.max_tokens = 256
    config.mesh.update(fsdp=2, tensor=2)
    return config
"""


def run(folder, *flags, layers=4):
    (folder / "small.py").write_text(CONFIG)
    command = [sys.executable, "-m", "spade_jax.compile", f"--config={folder}/small.py:{layers}"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [*command, *flags], capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Of a model of two and one of four layers, and what was printed."""
    folder, made = tmp_path_factory.mktemp("compile"), []
    for layers in (2, 4):
        file = folder / f"{layers}.json"
        done = run(folder, "--topology=v5e:2x2", f"--json={file}", layers=layers)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
        made.append((json.loads(file.read_text()), done))
    return made


@pytest.fixture(scope="module")
def sampler(tmp_path_factory):
    """Figures of sampling the same model, of two layers, and what was printed."""
    folder = tmp_path_factory.mktemp("sampler")
    file = folder / "sampler.json"
    flags = ("--config.sampler.slots=4", "--config.sampler.cache_mb=64")
    flags += ("--config.sampler.hosts_per_replica=1", "--config.model.experts=gmm", "--sampler")
    done = run(folder, "--topology=v5e:2x2", f"--json={file}", *flags, layers=2)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return json.loads(file.read_text()), done


def test_the_sampler_compiles_without_a_device(sampler):
    """Two kv heads and eight experts on the four chips of a host."""
    values, done = sampler
    assert values["hosts_per_replica"] == 1
    assert values["mesh"] == {"tensor": 2, "expert": 2}
    token = 2 * 2 * 2 * 128 * 2  # layers, keys and values, heads, channels, bytes
    assert values["cache_tokens"] == 2 * 4 * 512  # two contexts a slot, which 64 MiB hold
    # Embedding and head over tensor; attention too; experts over both; norms and router whole.
    weights = 2 * (2 * 1920 * 256 / 2 + 2 * (256 * 128 * 12 / 2 + 8 * 3 * 256 * 256 / 4))
    cache = values["cache_tokens"] * token / 2
    decode = values["memory_bytes"]["decode"]
    assert decode["arguments"] == pytest.approx(weights + cache, rel=0.02)
    for kinds in values["memory_bytes"].values():
        assert kinds["outputs"] < 0.01 * kinds["arguments"]  # the cache is written in place
        assert kinds["resident"] > 0  # the learner, at rest
    assert f"{values['ceiling_tokens_per_second']:,.0f}" in done.stdout
    assert "nvoluntary full rematerialization" not in done.stderr
    assert values["decode_tokens_per_second"] > 0
    assert "all-reduce" in values["collective_bytes"]
    assert len(compile_table.markdown_plans([values]).splitlines()) == 3


def test_the_ceiling_is_what_reading_takes(sampler):
    """Four rows of half a context each: weights in use, and their keys and values, a step."""
    values, _ = sampler
    assert (values["sequences_in_flight"], values["tokens_in_flight"]) == (4, 4 * 256)
    norms = 2 * (2 * 256 + 2 * 128) + 256
    attention, head = 256 * 128 * 12 / 2, 1920 * 256 / 2
    in_use = 8 * (1 - (6 / 8) ** 4) * 3 * 256 * 256 / 4
    read = 2 * (head + 2 * (attention + in_use)) + 4 * (norms + 2 * 256 * 8)
    read += values["tokens_in_flight"] * 2 * 2 * 2 * 128 * 2 / 2
    assert values["ceiling_tokens_per_second"] == pytest.approx(4 * 8.1e11 / read, rel=0.01)


def test_table_and_json_agree_and_are_plausible(figures):
    values, done = figures[1]
    assert values["devices"] == 4
    assert values["tokens_per_step"] == 2048
    assert f"{values['estimated_mfu']:.1%}" in done.stdout
    assert 0 < values["hbm_fraction"] < 0.85
    assert 0 < values["estimated_mfu"] < 0.75
    assert 0 < values["charged_share"] < 1
    assert values["estimated_step_seconds"] == pytest.approx(sum(values["seconds"].values()))
    parameters = 2 * 1920 * 256 + 4 * (256 * 128 * 12 + 8 * 3 * 256 * 256 + 256 * 8)
    apply = values["memory_bytes"]["apply"]
    # Parameters, two moments and gradients, float32, on four devices; norms are whole everywhere.
    assert apply["arguments"] == pytest.approx(4 * 4 * parameters / 4, rel=0.03)


def test_a_step_is_not_charged_for_more_tokens_than_it_has():
    """A micro-batch larger than the step would be counted whole: an MFU of a quarter."""
    program = """
import dataclasses
from spade_jax import compile, config
learner = dataclasses.replace(config.Config().learner, rows=8, row_length=1024)
settings = dataclasses.replace(config.Config(), learner=learner)
for asked in ((None, None), (256, None), (256, 1024), (256, 1 << 20)):
    made = compile.in_rows(settings, *asked).learner
    print(made.rows, made.row_length)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.splitlines() == ["8 1024", "32 256", "4 256", "32 256"]


def test_partitioner_never_gives_up_on_a_layout(figures):
    for _, done in figures:
        assert "nvoluntary full rematerialization" not in done.stderr


def test_logits_of_all_predictions_never_exist(figures):
    """Of 1,024 predictions of a device, those of a chunk have logits at one time: 512."""
    for values, _ in figures:
        assert 0 < values["logits_share"] <= 0.5


def test_weights_are_gathered_layer_by_layer(figures):
    """No all-gather gives more than one layer's matrix of experts; the table is smaller."""
    for values, _ in figures:
        assert 0 < values["largest_gather_bytes"] <= 4 * 8 * 256 * 256
    # Of all layers at once it would grow with them.
    assert len({values["largest_gather_bytes"] for values, _ in figures}) == 1


def test_what_is_replaced_is_written_in_place(figures):
    for values, _ in figures:
        for name in ("accumulate", "add_group", "apply"):
            kinds = values["memory_bytes"][name]
            assert kinds["outputs"] < 0.01 * kinds["arguments"], name


def test_the_sampler_comes_on_top(figures):
    for values, _ in figures:
        held = values["sampler_bytes"]
        total = values["memory_bytes"][values["largest_program"]]["total"]
        least = total + held["weights"] + held["cache"]
        assert values["hbm_fraction_with_sampler"] >= least / values["hbm_bytes"]


def test_many_steps_are_one_table(figures):
    lines = compile_table.markdown(values for values, _ in figures).splitlines()
    assert len(lines) == 2 + len(figures)
    assert len({line.count("|") for line in lines}) == 1
    for line, (values, _) in zip(lines[2:], figures, strict=True):
        assert "v5e:2x2 | fsdp 2, tensor 2 | 2,048, 512" in line
        assert f"{values['estimated_mfu']:.0%}" in line


def test_collectives_of_a_layer_are_counted_once_a_layer(figures):
    """Four layers send what two send and as much again, but for the head and the embedding."""
    two, four = (sum(values["collective_bytes"].values()) for values, _ in figures)
    weights = 256 * 128 * 12 + 8 * 3 * 256 * 256
    # Half, for tensor, in bfloat16, gathered over fsdp forward and backward; gradients come on top.
    least = 2 * 2 * weights * 2 / 2
    assert four - two > least


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--topology=v9x:2x2"], ["v9x", "v5e, v5p, v6e"]),
        (["--topology=v5e:4x4"], ["config.mesh", "16"]),
        (["--topology=v5e:2x2", "--config.learner.rows=3"], ["learner.rows = 3", "multiple"]),
    ],
)
def test_refusals_are_one_line_with_a_remedy(tmp_path, flags, words):
    done = run(tmp_path, *flags)
    assert done.returncode == 1
    assert len(done.stdout.strip().splitlines()) == 1
    for word in words:
        assert word in done.stdout


def test_flops_equal_what_xla_counts_in_one_layer():
    """XLA counts the whole square of scores, the formula the causal half."""
    length = 64
    model = ModelConfig(
        model_type="qwen3", vocabulary=512, hidden=128, layers=1, heads=4, kv_heads=2,
        head_dim=32, feed_forward=256, max_positions=64,
    )  # fmt: skip
    graph, params = nnx.split(abstract(model, settings_.Model()))
    ids = jax.ShapeDtypeStruct((1, length), jnp.int32)

    def logits(params, ids):
        policy = nnx.merge(graph, params)
        return policy.hidden(ids, ids, ids) @ policy.head().T

    counted = jax.jit(logits).lower(params, ids).compile().cost_analysis()["flops"]
    forward = flops.Forward.of(model, length)
    square = forward.attention * 2 * length / (length + 1)
    assert counted == pytest.approx(length * (forward.matrices + square), rel=0.05)


PROGRAM = """
HloModule step

%fused (q.0: f32[8,128]) -> f32[8,128] {
  ROOT %copy.0 = f32[8,128]{1,0} copy(%q.0), backend_config={"estimated_cycles":"1000"}
}

%idle (q.6: f32[8,128]) -> f32[8,128] {
  ROOT %q.6 = f32[8,128]{1,0} parameter(0)
}

%inner_body (p.1: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %p.1 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %x.1 = f32[8,128]{1,0} get-tuple-element(%p.1), index=1
  %all-reduce.1 = f32[8,128]{1,0} all-reduce(%x.1), channel_id=1, replica_groups=[2,4]<=[8]
  ROOT %t.1 = (s32[], f32[8,128]{1,0}) fusion(%all-reduce.1), kind=kLoop, calls=%fused, backend_config={"estimated_cycles":"100"}
}

%inner_condition (p.2: (s32[], f32[8,128])) -> pred[] {
  %constant.1 = s32[]{:T(128)} constant(3)
  %p.2 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i.2 = s32[]{:T(128)} get-tuple-element(%p.2), index=0
  ROOT %lt.2 = pred[]{:T(512)} compare(%i.2, %constant.1), direction=LT
}

%outer_body (p.3: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %p.3 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %y.3 = bf16[4,128]{1,0} get-tuple-element(%p.3), index=1
  %ag.3 = (bf16[4,128]{1,0}, bf16[16,128]{1,0}) all-gather-start(%y.3), replica_groups={{0,1,2,3},{4,5,6,7}}, dimensions={0}
  ROOT %while.3 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%p.3), condition=%inner_condition, body=%inner_body
}

%outer_condition (p.4: (s32[], f32[8,128])) -> pred[] {
  %p.4 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %i.4 = s32[]{:T(128)} get-tuple-element(%p.4), index=0
  %end.4 = s32[]{:T(128)} get-tuple-element(%p.4), index=0
  ROOT %lt.4 = pred[]{:T(512)} compare(%i.4, %end.4), direction=LT
}

ENTRY %main (a.5: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %a.5 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %copy.5 = f32[8,128]{1,0} copy(%a.5), backend_config={"estimated_cycles":"7"}
  %if.5 = f32[8,128]{1,0} conditional(%a.5), branch_computations={%idle, %fused}
  ROOT %while.5 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%a.5), condition=%outer_condition, body=%outer_body
}
"""  # noqa: E501  (as the compiler prints it)


def test_loops_multiply_cycles_and_bytes():
    cost = hlo.Program.parse(PROGRAM).cost(data_dependent_trips=5)
    assert cost.cycles == 7 + 1000 + 5 * 3 * 100
    assert cost.bytes == {"all-reduce": 5 * 3 * 4096, "all-gather": 5 * 4096}
    assert cost.exposed == {("all-reduce", 4): 5 * 3 * 4096}  # the gather runs beside the rest
    with pytest.raises(ValueError, match="no ENTRY"):
        hlo.Program.parse("nonsense")


def test_what_the_compiler_cannot_estimate_counts_one_cycle_an_element():
    """It then says the largest number there is; the scatters are of a few thousand integers."""
    unknown = PROGRAM.replace('"estimated_cycles":"7"', '"estimated_cycles":"9223372036854775807"')
    cost = hlo.Program.parse(unknown).cost(data_dependent_trips=5)
    assert cost.cycles == 8 * 128 + 1000 + 5 * 3 * 100


def test_results_are_found_in_tuples_and_loops():
    program = hlo.Program.parse(PROGRAM)
    assert program.largest("all-gather") == 16 * 128 * 2  # a start's result, not its operand
    assert program.largest("all-to-all") == 0
    assert program.arrays() == {(), (8, 128), (4, 128), (16, 128)}
