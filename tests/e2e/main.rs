//! End-to-end tests of mcpvisor over the built binaries, one module per promise.
