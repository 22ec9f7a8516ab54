//! The shim's connection: to a daemon that runs, or to a private one.
use crate::cli::Globals;
use crate::private::Private;
use crate::run::failure::Failure;
use mcpvisor_control::ErrorKind;
use mcpvisor_control::blocking::Connection;
use mcpvisor_control::socket::{Surroundings, connect};

/// A connection and what is known of its other end.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connection: Connection,
    private: Option<Private>,
}

impl Link {
    /// To the daemon that answers, or to a private one where none does or where the caller wants one.
    pub(crate) fn find(globals: &Globals) -> Result<Self, Failure> {
        if !globals.private
            && let Ok((stream, _)) = connect(&Surroundings::of_process(globals.socket.clone()))
        {
            return Ok(Self { connection: Connection::new(stream), private: None });
        }
        Self::private(globals)
    }

    /// To a daemon that runs.
    pub(crate) fn of(connection: Connection) -> Self {
        Self { connection, private: None }
    }

    /// To a private daemon that is started for it.
    pub(crate) fn private(globals: &Globals) -> Result<Self, Failure> {
        let private = Private::spawn(globals).map_err(Failure::here("start a private daemon"))?;
        let stream = private.stream.try_clone().map_err(Failure::here("start a private daemon"))?;
        Ok(Self { connection: Connection::new(stream), private: Some(private) })
    }

    /// Whether a refusal of this kind means that this daemon may not run commands for us, but a private one can: we
    /// are inside one of its scopes or in another namespace, or it is a system daemon that serves profiles only.
    pub(crate) fn gives_way(&self, kind: ErrorKind) -> bool {
        self.private.is_none() && matches!(kind, ErrorKind::PermissionDenied | ErrorKind::Unsupported)
    }

    /// The daemon has answered, so the process that put it into the background has ended.
    pub(crate) fn reap(&mut self) {
        if let Some(private) = &mut self.private {
            private.reap();
        }
    }

    /// Why the connection ended before the open was answered.
    pub(crate) fn lost_while_opening(&mut self) -> Failure {
        match &mut self.private {
            None => Failure::own("the daemon ended the connection before the server was started"),
            // It has told the reason itself.
            Some(private) => match private.reap() {
                Some(status) if !status.success() => {
                    Failure::own(format!("the private daemon did not start: {status}"))
                }
                _ => Failure::own("the private daemon died before the server was started"),
            },
        }
    }
}
