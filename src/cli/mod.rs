//! Command line flags turned into options, without any effect.
