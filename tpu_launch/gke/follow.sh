#!/usr/bin/env bash
# Shows what the run says. --host=N: that host instead of the first.
source "$(dirname "$0")/cluster.sh"
host=0
options "--host" "$@"
[[ $host =~ ^[0-9]+$ ]] || fail "--host=$host is no number" "--host=0 is the first"
need PROJECT ZONE NAME -- gcloud kubectl git
need_cluster
kube --namespace=spade logs --follow --tail=200 --container=trainer \
  --selector="jobset.sigs.k8s.io/jobset-name=$NAME,batch.kubernetes.io/job-completion-index=$host"
