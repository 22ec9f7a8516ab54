//! What is held, and the socket on which a test says so.
//!
//! A driver writes lines of a word and a gate's name, and reads lines:
//!
//! | it writes | it reads |
//! | --- | --- |
//! | `hold GATE` | `holding GATE`: the next arrival will be held; then `reached GATE`, and `left GATE` where what was held was dropped |
//! | `release GATE` | `released GATE`: what is held goes on, or nothing will be held |
//! | `count GATE` | `count GATE N`: so often was the gate reached |
//! | `gates` | `gates GATE GATE …` |
//!
//! Every driver hears every arrival. What a driver that goes away has held stays held.
use crate::{Gate, SOCKET};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Open,
    /// The next arrival is held.
    Armed,
    /// One is, known by its number.
    Held(u64, Option<Waker>),
}

#[derive(Debug, Default)]
struct Point {
    arrivals: u64,
    stage: Stage,
}

#[derive(Debug, Default)]
struct State {
    points: BTreeMap<Gate, Point>,
    drivers: Vec<Arc<UnixStream>>,
}

static STATE: Mutex<State> = Mutex::new(State { points: BTreeMap::new(), drivers: Vec::new() });
/// Something was let go.
static RELEASED: Condvar = Condvar::new();

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn point(&mut self, gate: Gate) -> &mut Point {
        self.points.entry(gate).or_default()
    }

    /// Counts an arrival; the number under which it is held, if it is.
    fn arrive(&mut self, gate: Gate) -> Option<u64> {
        let point = self.point(gate);
        point.arrivals += 1;
        if !matches!(point.stage, Stage::Armed) {
            return None;
        }
        let number = point.arrivals;
        point.stage = Stage::Held(number, None);
        self.tell(&format!("reached {}", gate.name()));
        Some(number)
    }

    fn is_held(&mut self, gate: Gate, number: u64) -> bool {
        matches!(self.point(gate).stage, Stage::Held(held, _) if held == number)
    }

    /// Tells every driver. One that is gone is forgotten when its reader ends.
    fn tell(&self, line: &str) {
        for driver in &self.drivers {
            say(driver, line);
        }
    }
}

fn say(driver: &UnixStream, line: &str) {
    let mut driver = driver;
    let _ = driver.write_all(format!("{line}\n").as_bytes());
}

/// See [`crate::pass`].
pub(crate) async fn pass(gate: Gate) {
    let number = state().arrive(gate);
    if let Some(number) = number {
        Hold { gate, number }.await;
    }
}

/// See [`crate::pass_thread`].
pub(crate) fn pass_thread(gate: Gate) {
    let mut state = state();
    let Some(number) = state.arrive(gate) else { return };
    while state.is_held(gate, number) {
        state = RELEASED.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

/// A task at a gate.
struct Hold {
    gate: Gate,
    number: u64,
}

impl Future for Hold {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut state().point(self.gate).stage {
            Stage::Held(number, waker) if *number == self.number => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = state();
        if state.is_held(self.gate, self.number) {
            state.point(self.gate).stage = Stage::Open;
            state.tell(&format!("left {}", self.gate.name()));
        }
    }
}

/// See [`crate::start`].
pub(crate) fn start() -> io::Result<()> {
    let Some(path) = std::env::var_os(SOCKET) else { return Ok(()) };
    // A former daemon's, which is dead: the environment names a socket for this one alone.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::thread::Builder::new().name("mcpvisor-gates".into()).spawn(move || {
        for driver in listener.incoming().flatten() {
            let driver = Arc::new(driver);
            state().drivers.push(Arc::clone(&driver));
            std::thread::spawn(move || serve(&driver));
        }
    })?;
    Ok(())
}

fn serve(driver: &Arc<UnixStream>) {
    for line in BufReader::new(&**driver).lines() {
        let Ok(line) = line else { break };
        let answer = obey(&line);
        say(driver, &answer);
    }
    state().drivers.retain(|known| !Arc::ptr_eq(known, driver));
}

/// The answer to an order.
fn obey(line: &str) -> String {
    let (word, name) = line.split_once(' ').unwrap_or((line, ""));
    if word == "gates" {
        let names: Vec<&str> = Gate::ALL.iter().map(|gate| gate.name()).collect();
        return format!("gates {}", names.join(" "));
    }
    let Some(gate) = Gate::from_name(name) else { return format!("wrong {line}") };
    let mut state = state();
    let point = state.point(gate);
    match word {
        "hold" => {
            // What is held already stays held.
            if matches!(point.stage, Stage::Open) {
                point.stage = Stage::Armed;
            }
            format!("holding {name}")
        }
        "release" => {
            if let Stage::Held(_, Some(waker)) = std::mem::take(&mut point.stage) {
                waker.wake();
            }
            RELEASED.notify_all();
            format!("released {name}")
        }
        "count" => format!("count {name} {}", point.arrivals),
        _ => format!("wrong {line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// Wakes the thread of the test.
    fn poll(future: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_next_arrival_is_held_and_others_pass() {
        let gate = Gate::OpenDispatched;
        assert_eq!(obey("hold open.dispatched"), "holding open.dispatched");
        let mut first = std::pin::pin!(pass(gate));
        assert!(poll(first.as_mut()).is_pending());
        assert!(poll(std::pin::pin!(pass(gate))).is_ready(), "only one is held");
        assert!(poll(first.as_mut()).is_pending());
        assert_eq!(obey("count open.dispatched"), "count open.dispatched 2");
        assert_eq!(obey("release open.dispatched"), "released open.dispatched");
        assert!(poll(first.as_mut()).is_ready());
    }

    #[test]
    fn a_task_that_is_dropped_has_left() {
        assert_eq!(obey("hold open.resolved"), "holding open.resolved");
        {
            let mut held = std::pin::pin!(pass(Gate::OpenResolved));
            assert!(poll(held.as_mut()).is_pending());
        }
        assert!(matches!(state().point(Gate::OpenResolved).stage, Stage::Open));
    }

    #[test]
    fn a_thread_is_held() {
        assert_eq!(obey("hold launch.find"), "holding launch.find");
        let (told, heard) = channel();
        let thread = std::thread::spawn(move || {
            pass_thread(Gate::LaunchFind);
            told.send(()).unwrap();
        });
        while !matches!(state().point(Gate::LaunchFind).stage, Stage::Held(..)) {
            std::thread::yield_now();
        }
        assert!(heard.try_recv().is_err());
        obey("release launch.find");
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(()));
        thread.join().unwrap();
    }

    #[test]
    fn names_are_told_apart() {
        for gate in Gate::ALL {
            assert_eq!(Gate::from_name(gate.name()), Some(*gate));
        }
        assert_eq!(obey("hold nowhere"), "wrong hold nowhere");
        assert_eq!(obey("hop open.dispatched"), "wrong hop open.dispatched");
    }
}
