//! The floor: the least that a daemon between a client and its server can cost. One connection of a Unix socket, one hop to the server's
//! pipes, with the runtime that mcpvisor uses; it looks at none of the bytes.
//!
//!   bench-hop SOCKET SERVER [ARG…]
use std::io;
use std::process::{Command, ExitCode, Stdio};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio::net::unix::pipe;

const CHUNK: usize = 64 << 10;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
    match runtime.and_then(|runtime| runtime.block_on(hop())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-hop: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn hop() -> io::Result<()> {
    let usage = || io::Error::other("usage: bench-hop SOCKET SERVER [ARG…]");
    let mut words = std::env::args_os().skip(1);
    let socket = words.next().ok_or_else(usage)?;
    let program = words.next().ok_or_else(usage)?;
    let (client, _) = UnixListener::bind(socket)?.accept().await?;
    let mut server =
        Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (Some(input), Some(output)) = (server.stdin.take(), server.stdout.take()) else {
        return Err(io::Error::other("the server has no streams"));
    };
    rustix::io::ioctl_fionbio(&input, true)?;
    rustix::io::ioctl_fionbio(&output, true)?;
    let input = pipe::Sender::from_owned_fd_unchecked(input.into())?;
    let output = pipe::Receiver::from_owned_fd_unchecked(output.into())?;
    let (reader, writer) = client.into_split();
    let down = tokio::spawn(pump(output, writer));
    // The end of the client's stream is the end of the server's.
    pump(reader, input).await?;
    down.await??;
    server.wait()?;
    Ok(())
}

async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        match from.read(&mut chunk).await? {
            0 => return Ok(()),
            count => to.write_all(&chunk[..count]).await?,
        }
    }
}
