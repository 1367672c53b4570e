#!/usr/bin/env bash
# Rents the slice and makes the bucket; where they exist already, says so and goes on.
source "$(dirname "$0")/common.sh"
options "" "$@"
need PROJECT ZONE NAME ACCELERATOR_TYPE CAPACITY BUCKET -- gcloud

case $ACCELERATOR_TYPE in
  v5p-*) runtime=v2-alpha-tpuv5 ;;
  v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
  v6e-*) runtime=v2-alpha-tpuv6e ;;
  *) fail "ACCELERATOR_TYPE=$ACCELERATOR_TYPE is unknown here" "v5p-N, v5litepod-N or v6e-N" ;;
esac
case $CAPACITY in
  on-demand | queued | spot | reserved) ;;
  *) fail "CAPACITY=$CAPACITY is unknown" "on-demand, queued, spot or reserved" ;;
esac

make_bucket() {
  local found
  found=$(ask "" gcloud storage buckets describe "gs://$BUCKET" --project="$PROJECT" --format='value(name)')
  if [[ -n $found ]]; then
    say "the bucket $BUCKET exists"
  else
    # Folders of a hierarchical bucket are renamed in one step, on which checkpoints rely.
    change gcloud storage buckets create "gs://$BUCKET" --project="$PROJECT" --location="$region" \
      --uniform-bucket-level-access --enable-hierarchical-namespace --public-access-prevention
  fi
  if [[ -n $SERVICE_ACCOUNT ]]; then
    change gcloud storage buckets add-iam-policy-binding "gs://$BUCKET" --project="$PROJECT" \
      --member="serviceAccount:$SERVICE_ACCOUNT" --role=roles/storage.objectUser --format=none
  fi
}

request_slice() {
  local flags=(--project="$PROJECT" --zone="$ZONE" --accelerator-type="$ACCELERATOR_TYPE" --scopes=cloud-platform)
  [[ -z $SERVICE_ACCOUNT ]] || flags+=(--service-account="$SERVICE_ACCOUNT")
  case $CAPACITY in
    on-demand)
      change gcloud compute tpus tpu-vm create "$NAME" "${flags[@]}" --version="$runtime"
      return ;;
    spot) flags+=(--spot) ;;
    reserved) flags+=(--reserved) ;;
  esac
  change gcloud compute tpus queued-resources create "$NAME" "${flags[@]}" --node-id="$NAME" \
    --runtime-version="$runtime" --valid-until-duration="${WAIT_SECONDS}s"
}

offered=$(ask "$ACCELERATOR_TYPE" gcloud compute tpus accelerator-types list --project="$PROJECT" \
  --zone="$ZONE" --filter="type=$ACCELERATOR_TYPE" --format='value(type)')
[[ -n $offered ]] || fail "$ZONE does not offer $ACCELERATOR_TYPE" \
  "gcloud compute tpus accelerator-types list --project=$PROJECT --zone=ZONE, for other zones (gcloud compute tpus locations list)"

make_bucket
state=$(slice_state "")
queued=""
[[ $CAPACITY == on-demand ]] || queued=$(queue_state "")
if [[ -n $state ]]; then
  kind=$(ask "$ACCELERATOR_TYPE" gcloud compute tpus tpu-vm describe "$NAME" --project="$PROJECT" \
    --zone="$ZONE" --format='value(acceleratorType.basename())')
  [[ $kind == "$ACCELERATOR_TYPE" ]] || fail "the name is taken: $NAME in $ZONE is a $kind" \
    "another NAME in tpu_launch/settings.sh, or tpu_launch/delete.sh"
  say "the slice $NAME exists"
elif [[ -n $queued ]]; then
  say "the request $NAME is in the queue"
else
  request_slice
fi

if [[ $CAPACITY != on-demand ]]; then
  queued=$(wait_for "request" "$WAIT_SECONDS" "ACTIVE FAILED SUSPENDED SUSPENDING" queue_state ACTIVE)
  [[ $queued == ACTIVE ]] || fail "the request was not met: $queued" \
    "gcloud compute tpus queued-resources describe $NAME --zone=$ZONE says why; then tpu_launch/delete.sh and again"
fi
state=$(wait_for "slice" 3600 "READY PREEMPTED TERMINATED STOPPED" slice_state READY)
[[ $state == READY ]] || fail "the slice $NAME is $state" "tpu_launch/resume.sh"
say "the slice $NAME is READY; next: tpu_launch/setup.sh"
