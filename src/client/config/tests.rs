//! Kubeconfig files, in-cluster files and what they lead to.
