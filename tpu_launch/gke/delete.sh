#!/usr/bin/env bash
# Ends the run, which saves first, and the cluster with all its hosts. Bucket and images stay.
source "$(dirname "$0")/cluster.sh"
options "" "$@"
need PROJECT ZONE NAME -- gcloud kubectl git
state=$(cluster RUNNING)
if [[ -z $state ]]; then
  say "there is no cluster $NAME in $ZONE"
  exit
fi
[[ $state != RUNNING ]] || "$launch/gke/stop.sh" || say "the run could not be stopped first; its last checkpoint counts"
change gcloud container clusters delete "$NAME" --project="$PROJECT" --zone="$ZONE" --quiet
say "deleted; the bucket${BUCKET:+ $BUCKET} and the images in $images stay"
