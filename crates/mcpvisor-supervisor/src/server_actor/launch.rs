//! What a server's definition means to the process layer.
use crate::api::ServerSpec;
use crate::record::SessionRecord;
use crate::recovery;
use mcpvisor_process::{Cwd, LaunchSpec, Stdio};
use std::os::fd::OwnedFd;

pub(super) fn launch_spec(
    session: &SessionRecord,
    spec: &ServerSpec,
    stdio: Stdio,
    cwd: Option<OwnedFd>,
) -> LaunchSpec {
    LaunchSpec {
        program: spec.program.clone(),
        args: spec.args.clone(),
        env: spec.env.clone(),
        cwd: match (cwd, &spec.cwd) {
            (Some(fd), _) => Cwd::Fd(fd),
            (None, Some(path)) => Cwd::Path(path.clone()),
            (None, None) => Cwd::Inherit,
        },
        stdio,
        umask: spec.umask,
        limits: spec.limits.clone(),
        nice: spec.nice,
        ignored_signals: spec.ignored_signals.clone(),
        credentials: spec.credentials.clone(),
        no_new_privs: spec.no_new_privs,
        memory_max: spec.memory_max,
        pids_max: spec.pids_max,
        note: recovery::note(session),
        deadline: spec.start,
    }
}
