#!/usr/bin/env bash
# On a host, as root: the run as a systemd unit, which outlives this shell and gets SIGTERM, upon
# which the run saves, when it is stopped or the machine is taken away.
set -euo pipefail
unit=$1 home=$2 mount=$3
shift 3
! systemctl is-active --quiet "$unit" || { echo "$unit is active on $(hostname)"; exit 0; }
# A host that was started anew has lost its mount; what is written there would stay on its own disk.
mountpoint -q "$mount" || { echo "the bucket is not mounted at $mount on $(hostname): tpu_launch/setup.sh"; exit 1; }
systemctl reset-failed "$unit" 2>/dev/null || true
systemd-run --unit="$unit" --working-directory="$home" --property=TimeoutStopSec=300 \
  --setenv=XDG_CACHE_HOME=/var/cache --setenv=HF_HOME=/var/cache/huggingface \
  "$home/.venv/bin/python" -m spade_jax.train "$@"
