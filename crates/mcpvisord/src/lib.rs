//! The mcpvisor daemon.
