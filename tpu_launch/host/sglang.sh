#!/usr/bin/env bash
# On a GPU host with SGLang installed: a server as the trainer needs it (docs/sglang.md). The two
# keys come from the environment, as the trainer's do; what follows the model goes to the server.
#   tpu_launch/host/sglang.sh POLICY [--tensor-parallel-size=8 ...]
set -euo pipefail
model=${1:?name a folder or hub id with the architecture of the run}
shift
: "${SPADE_SGLANG_API_KEY:?the key that the trainer is given}"
: "${SPADE_SGLANG_ADMIN_KEY:?the key with which the trainer hands over weights}"
# Log-probs must be those at the sampling temperature.
unset SGLANG_RETURN_ORIGINAL_LOGPROB
# Else whoever polls /health samples, and hangs while the server takes new weights.
export SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION=0
exec python3 -m sglang.launch_server --model-path="$model" --host=0.0.0.0 --port="${PORT:-30000}" \
  --dtype=bfloat16 --api-key="$SPADE_SGLANG_API_KEY" --admin-api-key="$SPADE_SGLANG_ADMIN_KEY" "$@"
