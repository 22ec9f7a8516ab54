//! End-to-end tests of mcpvisor over the built binaries, one module per promise.
//!
//! Each test is a scene of `mcpvisor-testkit`: when it has ended, the leak oracle looks for whatever it has left.
#![cfg(test)]
mod approvals;
mod bad_input;
mod batch;
mod call;
mod capacity;
mod cases_open;
mod cases_run;
mod clients;
mod demo;
mod differential;
mod eras;
mod events;
mod failpoints;
mod frozen;
mod guarantees;
mod guards;
mod health;
mod histories;
mod hooks;
mod idle;
mod killed;
mod leases;
mod lifecycle;
mod live;
mod lossless;
mod many;
mod park;
mod real;
mod recovery;
mod relay;
mod reload;
mod repeats;
mod restarts;
mod run;
mod shapes;
mod shared;
mod signals;
mod stop_command;
mod support;
mod systemd;
mod tokens;
mod trees;
mod turns;
mod workspace;
