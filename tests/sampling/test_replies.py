"""Replies as recorded from SGLang 0.5.23, and every way in which one may be unfit."""

import copy

import pytest

from spade_jax.sampling import replies
from spade_jax.sampling.replies import ServerFault

RECORDED = {
    "text": "...",
    "output_ids": [223, 0, 223, 60],
    "meta_info": {
        "id": "42db",
        "finish_reason": {"type": "length", "length": 4},
        "prompt_tokens": 5,
        "weight_version": "default",
        "num_retractions": 0,
        "input_token_logprobs": [],
        "output_token_logprobs": [
            [-2.92016673, 223, None],
            [-2.81635689, 0, None],
            [-2.89444899, 223, None],
            [-2.22989177, 60, None],
        ],
        "output_token_logprobs_length": 4,
        "completion_tokens": 4,
        "cached_tokens": 0,
        "weight_versions": [{"version": "default", "start": 0, "end": 4}],
    },
}


def changed(**meta):
    payload = copy.deepcopy(RECORDED)
    payload["meta_info"].update(meta)
    return payload


def read(payload, limit=4):
    return replies.read(payload, "42db", limit, 320)


def test_a_recorded_reply():
    reply = read(RECORDED)
    assert reply.tokens == [223, 0, 223, 60]
    assert reply.logp == [-2.92016673, -2.81635689, -2.89444899, -2.22989177]
    assert (reply.finish, reply.labels) == ("length", ["default"] * 4)
    assert (reply.prompt_tokens, reply.cached_tokens) == (5, 0)


def test_ids_are_those_of_the_log_probs():
    """Some routers put the prompt into output_ids."""
    assert read({**RECORDED, "output_ids": [5, 6, 223, 0, 223, 60]}).tokens == [223, 0, 223, 60]


def test_spans_give_each_token_its_weights_and_old_servers_one_label():
    spans = [{"version": "a", "start": 0, "end": 1}, {"version": "b", "start": 1, "end": 4}]
    assert read(changed(weight_versions=spans)).labels == ["a", "b", "b", "b"]
    assert read(changed(weight_versions=None)).labels == ["default"] * 4


def test_an_aborted_reply_is_partial():
    """Aborted in the queue it has no counts; aborted while running it has tokens."""
    aborted = {"type": "abort", "message": "Aborted", "status_code": None}
    reply = read(changed(finish_reason=aborted), limit=9)
    assert (reply.finish, len(reply.tokens)) == ("abort", 4)
    queued = {"meta_info": {"id": "42db", "finish_reason": aborted}}
    assert read(queued).tokens == []
    unknown = changed(finish_reason=aborted, prompt_tokens=None, cached_tokens=None)
    assert read(unknown, limit=9).prompt_tokens == 0


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ([RECORDED], "fields"),
        (None, "fields"),
        ({}, "fields"),
        (changed(id="other"), "duplicate"),
        (changed(finish_reason=None), "fields"),
        (changed(finish_reason={"type": "new"}), "fields"),
        (changed(finish_reason={"type": "stop"}, output_token_logprobs=[]), "fields"),
        (changed(output_token_logprobs=None), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3, None]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 3 + [[None, 3]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 3 + [[float("nan"), 3]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 3 + [[0.5, 3]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 3 + [[-1.0, 320]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 3 + [[-1.0, "3"]]), "fields"),
        (changed(output_token_logprobs=[[-1.0, 3]] * 5, completion_tokens=5), "fields"),
        (changed(weight_versions=[{"version": "a", "start": 0, "end": 3}]), "fields"),
    ],
)
def test_what_is_unfit_says_so(payload, kind):
    with pytest.raises(ServerFault) as fault:
        read(payload)
    assert fault.value.kind == kind


def test_seeds_differ_by_run_and_completion():
    seeds = {replies.seed_of(seed, uid) for seed in range(50) for uid in "abcd"}
    assert len(seeds) == 200
    assert all(0 <= seed < 1 << 62 for seed in seeds)
