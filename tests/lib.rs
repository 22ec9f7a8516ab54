//! End-to-end tests of mcpvisor live in `e2e/`, one file per promise.
