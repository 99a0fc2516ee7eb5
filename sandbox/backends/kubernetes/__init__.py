"""The kubernetes backend: a sandbox is a pod, or a claim on a warm pool.

`sandbox` is the backend, `manifests` what it asks of the cluster, `api` how, and
`objections` what keeps it from using what it got, `owners` what becomes of the
rest. The official client is imported when a sandbox starts, not before.
"""

from sandbox.backends.kubernetes.manifests import Cluster
from sandbox.backends.kubernetes.owners import reap_pods
from sandbox.backends.kubernetes.sandbox import OPTIONS, KubernetesSandbox, check

__all__ = ["OPTIONS", "Cluster", "KubernetesSandbox", "check", "reap_pods"]
