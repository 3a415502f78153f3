//! An in-memory API server for trying out and for tests; a stand-in, never a cluster.
