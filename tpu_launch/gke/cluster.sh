# shellcheck shell=bash disable=SC2034
# What the scripts for GKE share beside ../common.sh.
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
manifests=$launch/gke/manifests
images=$region-docker.pkg.dev/$PROJECT/spade
context=gke_${PROJECT}_${ZONE}_$NAME
tpu_chips=${TPU_MACHINE##*-}
tpu_chips=${tpu_chips%t}
tpu_hosts=$((${TPU_TOPOLOGY//x/*} / tpu_chips))
# A sandbox host keeps 4 processors for Ray's head and for the node itself; memory by the processor.
sandbox_cpus=$((${SANDBOX_MACHINE##*-} - 4))
tag=$(git -C "$launch/.." rev-parse --short=12 HEAD) || fail "$(dirname "$launch") is no clone of a git repository" \
  "git clone: images are built of its last commit and named by it"

cluster() { ask "$1" gcloud container clusters describe "$NAME" --project="$PROJECT" --zone="$ZONE" --format='value(status)'; }

need_cluster() {
  local state
  state=$(cluster RUNNING)
  [[ $state == RUNNING ]] || fail "the cluster $NAME in $ZONE is ${state:-not there}" "tpu_launch/gke/create.sh"
}

kube() { change kubectl --context="$context" "$@"; }

# Applies manifests, with the settings filled in.
apply() { # FILE...
  local rendered
  rendered=$(mktemp)
  NAME=$NAME BUCKET=$BUCKET IMAGES=$images TAG=$tag TPU_HOSTS=$tpu_hosts TPU_CHIPS=$tpu_chips \
    TPU_LABEL=$TPU_LABEL TPU_TOPOLOGY=$TPU_TOPOLOGY TRAIN_ARGUMENTS=${train_arguments:-} \
    SGLANG_HOSTS=$SGLANG_HOSTS SGLANG_MODEL=$SGLANG_MODEL GPU_TYPE=$GPU_TYPE GPUS=$GPUS \
    SANDBOX_HOSTS=$SANDBOX_HOSTS SANDBOX_CPUS=$sandbox_cpus SANDBOX_MEMORY=$((sandbox_cpus * 3))Gi \
    python3 "$launch/gke/render.py" "$@" >"$rendered"
  if $dry_run; then cat "$rendered"; fi
  kube apply --filename="$rendered"
  rm -f "$rendered"
}
