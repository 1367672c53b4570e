#!/usr/bin/env bash
# Starts what is missing of the SGLang and sandbox hosts, then begins or continues the run.
source "$(dirname "$0")/cluster.sh"
options "" "$@"
need PROJECT ZONE NAME BUCKET CONFIG RUN -- gcloud kubectl python3 git
need_cluster

read -ra flags <<<"$TRAIN_FLAGS"
if ((SGLANG_HOSTS > 0)); then
  urls=$(printf ',http://sglang-%s.sglang.spade:30000' $(seq 0 $((SGLANG_HOSTS - 1))))
  flags+=(--config.sampler.kind=sglang --config.sampler.urls="${urls#,}")
fi
((SANDBOX_HOSTS == 0)) || flags+=(--config.sandbox.fleet=ray://sandbox-head-svc.spade-sandbox:10001)
train_arguments=$(python3 -c 'import json, sys; print(json.dumps(sys.argv[1:]))' \
  --distributed --config="$CONFIG" --workdir="/mnt/spade/runs/$RUN" "${flags[@]}")

if ((SGLANG_HOSTS > 0)); then
  found=$(ask "" kubectl --context="$context" --namespace=spade get secret sglang-keys --ignore-not-found --output=name)
  if [[ -z $found ]]; then
    keys=$(mktemp -d)
    trap 'rm -rf "$errors" "$keys"' EXIT
    for key in api-key admin-api-key; do
      head -c 32 /dev/urandom | base64 | tr -d '\n=+/' >"$keys/$key"
    done
    kube --namespace=spade create secret generic sglang-keys --from-file="$keys/api-key" --from-file="$keys/admin-api-key"
  fi
  apply "$manifests/sglang.yaml"
fi
if ((SANDBOX_HOSTS > 0)); then
  apply "$manifests/sandbox.yaml"
  kube --namespace=spade-sandbox wait raycluster/sandbox --for=jsonpath='{.status.state}'=ready --timeout=30m
fi

state=$(ask "" kubectl --context="$context" --namespace=spade get jobset "$NAME" --ignore-not-found \
  --output=jsonpath='{.metadata.name} {.status.terminalState}')
case $state in
  "" | " ") ;;
  *" Completed" | *" Failed") kube --namespace=spade delete jobset "$NAME" --wait ;;
  *) say "the run is under way; tpu_launch/gke/follow.sh shows it"; exit ;;
esac
apply "$manifests/trainer.yaml"
say "begun; next: tpu_launch/gke/follow.sh. A host that is lost is replaced, and the run continues by itself"
