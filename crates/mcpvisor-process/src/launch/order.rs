//! What is launched, in the hands of whoever may still withdraw it.
use crate::cgroup::CgroupLimits;
use crate::keeper;
use crate::resolve::{Head, Resolved, Wanted, search_path};
use crate::sys::{Identity, Limit, Plan};
use crate::{Credentials, LaunchSpec, ResourceLimit, Stdio};
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The variable that marks every process of a scope.
pub(crate) const MARKER: &str = "MCPVISOR_SCOPE";

/// A launch that is on its way, shared by the reaper and the threads that work on it.
#[derive(Debug)]
pub(crate) struct Cell {
    /// The child's pid (a keeper's, in that containment), written by the kernel before the child runs; 0 before.
    pub(crate) born: AtomicI32,
    order: Mutex<Option<(Order, Stdio)>>,
}

/// What a launch thread needs beside what was found.
#[derive(Debug)]
pub(crate) struct Order {
    args: Vec<CString>,
    env: Vec<CString>,
    umask: Option<u32>,
    limits: Vec<ResourceLimit>,
    nice: Option<i32>,
    ignored_signals: Vec<i32>,
    credentials: Option<Credentials>,
    no_new_privs: bool,
    pub(crate) cgroup: CgroupLimits,
    pub(crate) note: Option<Arc<str>>,
}

impl Cell {
    /// The client's descriptors are in here, and not with the thread that may hang on a dead mount, so that withdrawing a launch
    /// closes them.
    pub(crate) fn new(order: Order, stdio: Stdio) -> Self {
        Self { born: AtomicI32::new(0), order: Mutex::new(Some((order, stdio))) }
    }

    /// Takes the order: the launch thread to carry it out, the reaper to withdraw it. Only the first gets it.
    pub(crate) fn take(&self) -> Option<(Order, Stdio)> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The pid of a child that was born and is not yet known to the reaper.
    pub(crate) fn pid(&self) -> Option<u32> {
        u32::try_from(self.born.load(Ordering::SeqCst)).ok().filter(|pid| *pid != 0)
    }
}

impl Order {
    /// Parts a specification into what is to be found and what is to be done then.
    pub(crate) fn part(spec: LaunchSpec) -> (Wanted, Cell) {
        let wanted = Wanted { path: search_path(&spec.env), program: spec.program, cwd: spec.cwd };
        let order = Self {
            args: spec.args,
            env: spec.env,
            umask: spec.umask,
            limits: spec.limits,
            nice: spec.nice,
            ignored_signals: spec.ignored_signals,
            credentials: spec.credentials.filter(is_a_change),
            no_new_privs: spec.no_new_privs,
            cgroup: CgroupLimits { memory_max: spec.memory_max, pids_max: spec.pids_max },
            note: spec.note,
        };
        (wanted, Cell::new(order, spec.stdio))
    }

    /// What the child does before exec.
    pub(super) fn plan(
        self,
        program: &CStr,
        is_binary: bool,
        cwd: Option<OwnedFd>,
        marker: &str,
        streams: [OwnedFd; 3],
    ) -> Plan {
        let limits = self.limits.iter().map(|l| Limit { soft: l.soft, hard: l.hard, resource: l.resource });
        let identity = self.credentials.map(|c| Identity { uid: c.uid, gid: c.gid, groups: c.groups });
        Plan::new(program.to_owned(), self.args, marked(self.env, marker), streams)
            .cwd(cwd)
            .umask(self.umask)
            .limits(limits.collect())
            .nice(self.nice)
            .ignored(&self.ignored_signals)
            .identity(identity)
            .no_new_privs(self.no_new_privs)
            .no_shell(is_binary)
    }

    /// The same for a keeper, which makes the plan itself.
    pub(super) fn for_keeper(self, resolved: &Resolved, marker: &str) -> keeper::Launch {
        keeper::Launch {
            program: resolved.program.clone().into(),
            args: self.args.into_iter().map(Into::into).collect(),
            env: marked(self.env, marker).into_iter().map(Into::into).collect(),
            is_binary: resolved.head == Head::Binary,
            has_cwd: resolved.cwd.is_some(),
            umask: self.umask,
            limits: self.limits.iter().map(|l| (l.resource, l.soft, l.hard)).collect(),
            nice: self.nice,
            ignored_signals: self.ignored_signals,
            credentials: self.credentials.map(|c| (c.uid, c.gid, c.groups)),
            no_new_privs: self.no_new_privs,
        }
    }
}

/// A user's daemon may be told the user's own ids: there is nothing to change then, nor a right to.
fn is_a_change(credentials: &Credentials) -> bool {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    uid.is_root() || uid.as_raw() != credentials.uid || gid.as_raw() != credentials.gid
}

/// The environment with our one addition.
fn marked(mut env: Vec<CString>, marker: &str) -> Vec<CString> {
    let name = [MARKER.as_bytes(), b"="].concat();
    env.retain(|entry| !entry.as_bytes().starts_with(&name));
    let entry = [name.as_slice(), marker.as_bytes()].concat();
    env.push(CString::new(entry).expect("a scope's name is made of digits, letters, slashes and hyphens"));
    env
}
