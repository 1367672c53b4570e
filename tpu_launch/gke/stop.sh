#!/usr/bin/env bash
# Has the run save its state and end; tpu_launch/gke/run.sh continues it.
source "$(dirname "$0")/cluster.sh"
options "" "$@"
need PROJECT ZONE NAME -- gcloud kubectl git
need_cluster
kube --namespace=spade delete jobset "$NAME" --ignore-not-found --wait
say "no run is under way on $NAME; tpu_launch/gke/run.sh continues it"
