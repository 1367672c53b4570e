#!/usr/bin/env bash
# Gives the slice back; a run under way saves its state first. The bucket stays.
source "$(dirname "$0")/common.sh"
options "" "$@"
need PROJECT ZONE NAME -- gcloud

state=$(slice_state READY)
queued=$(queue_state ACTIVE)
if [[ -z $state && -z $queued ]]; then
  say "there is no slice and no request $NAME in $ZONE"
  exit
fi
[[ $state != READY ]] || "$launch/stop.sh" || say "the run could not be stopped first; its last checkpoint counts"
if [[ -n $queued ]]; then
  change gcloud compute tpus queued-resources delete "$NAME" --project="$PROJECT" --zone="$ZONE" --force --quiet
else
  change gcloud compute tpus tpu-vm delete "$NAME" --project="$PROJECT" --zone="$ZONE" --quiet
fi
say "deleted; the bucket${BUCKET:+ $BUCKET} stays (gcloud storage rm -r gs://${BUCKET:-BUCKET} deletes it too)"
