//! What the client says, on its way to the server: every byte passes, unless a call is refused.
use super::own::{self, Because};
use super::scan::{Class, Kind, Mark};
use super::{Conversation, Element, Ended, Fate, HELD, INITIALIZE, Passed, Settled, Watch, Way};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The longest cancellation that is understood where it was cut into reads.
const CANCELLATION: usize = 1024;

#[derive(Deserialize)]
struct Cancelled<'a> {
    #[serde(borrow)]
    params: CancelledParams<'a>,
}

#[derive(Deserialize)]
struct CancelledParams<'a> {
    #[serde(borrow, rename = "requestId")]
    request_id: &'a RawValue,
}

/// What is to be done with a line that is whole.
enum Verdict {
    Pass,
    Drop,
}

impl<P> Conversation<P> {
    /// Takes what was read from the client. `admit` is asked once for each call, and for a line that passes before it is whole; where it
    /// refuses, a call is answered with an error and does not reach the server (G11). `watch` hears of each line that has passed.
    pub fn from_client(
        &mut self,
        buffer: &mut [u8],
        mut admit: impl FnMut() -> Result<P, Because>,
        watch: &mut impl Watch,
    ) -> Passed {
        let mut passed = Passed::default();
        if self.client_ended {
            return passed;
        }
        let mut at = 0;
        while at < buffer.len() {
            let from = at;
            let whole = loop {
                let (used, mark) = self.up.scanner.feed(&buffer[at..]);
                at += used;
                match mark {
                    Some(Mark::Element) => {
                        if !self.up.note() {
                            self.counters.untracked += 1;
                        }
                    }
                    Some(Mark::LineEnd) => break true,
                    None => break false,
                }
            };
            self.up.size += (at - from) as u64;
            let keep = if whole {
                let keep = self.whole_from_client(&buffer[from..at], &mut admit, &mut passed);
                if keep {
                    watch.line(Way::Up, &self.up.scanner.head(self.up.size));
                }
                self.up.next_line();
                keep
            } else {
                self.part_from_client(&buffer[from..at], &mut admit, &mut passed)
            };
            if keep {
                if passed.len != from {
                    buffer.copy_within(from..at, passed.len);
                }
                passed.len += at - from;
            }
        }
        passed
    }

    /// The line has ended: whether its last piece passes.
    fn whole_from_client(
        &mut self,
        piece: &[u8],
        admit: &mut impl FnMut() -> Result<P, Because>,
        passed: &mut Passed,
    ) -> bool {
        match self.up.fate {
            Fate::Passes => {
                let permit = self.unfinished.take();
                self.passed_on(piece, permit, admit);
                true
            }
            Fate::Open => match self.judge(piece, admit) {
                Verdict::Pass => {
                    passed.ahead.append(&mut self.up.held);
                    true
                }
                Verdict::Drop => {
                    self.counters.dropped += 1;
                    false
                }
            },
            Fate::Drops => {
                if self.up.scanner.kind() == Kind::Request {
                    self.refuse(Because::Closing);
                }
                false
            }
            Fate::Refused => false,
        }
    }

    /// A whole line, of which nothing has passed.
    fn judge(&mut self, piece: &[u8], admit: &mut impl FnMut() -> Result<P, Because>) -> Verdict {
        if self.up.scanner.class() == Class::Batch {
            return self.judge_batch(admit);
        }
        match self.up.scanner.kind() {
            Kind::Request | Kind::Unfollowed => {
                let room = if self.calls.len < self.most_calls { Ok(()) } else { Err(Because::Overloaded) };
                match room.and_then(|()| admit()) {
                    Ok(permit) => self.passed_on(piece, Some(permit), admit),
                    Err(because) => {
                        self.refuse(because);
                        return Verdict::Drop;
                    }
                }
            }
            Kind::Response if !self.is_awaited() => return Verdict::Drop,
            Kind::Response | Kind::Notification | Kind::Other => self.passed_on(piece, None, admit),
        }
        Verdict::Pass
    }

    /// All of a batch's calls are admitted, or none.
    fn judge_batch(&mut self, admit: &mut impl FnMut() -> Result<P, Because>) -> Verdict {
        let wanted = self.up.batch.iter().filter(|element| element.kind == Kind::Request).count();
        let mut permits = Vec::new();
        let mut refusal = (self.calls.len + wanted > self.most_calls).then_some(Because::Overloaded);
        while refusal.is_none() && permits.len() < wanted {
            match admit() {
                Ok(permit) => permits.push(permit),
                Err(because) => refusal = Some(because),
            }
        }
        let Some(because) = refusal else {
            self.batch_passed(permits.into_iter().map(Some).collect());
            return Verdict::Pass;
        };
        self.ended.extend(permits.into_iter().map(Ended::NoCall));
        for element in std::mem::take(&mut self.up.batch) {
            if let (Kind::Request, Some(key)) = (element.kind, &element.key) {
                own::error(&mut self.for_client, key.text(), because);
                self.counters.refused += 1;
            }
        }
        Verdict::Drop
    }

    /// A line has passed as a whole: what it was is noted.
    fn passed_on(&mut self, piece: &[u8], permit: Option<P>, admit: &mut impl FnMut() -> Result<P, Because>) {
        if self.up.scanner.class() == Class::Batch {
            let wanted = self.up.batch.iter().filter(|element| element.kind == Kind::Request).count();
            let mut permits: Vec<Option<P>> = permit.into_iter().map(Some).collect();
            while permits.len() < wanted {
                permits.push(admit().ok());
            }
            self.batch_passed(permits);
            return;
        }
        let kind = self.up.scanner.kind();
        match (kind, self.up.key()) {
            (Kind::Request, Some(key)) => {
                let initialize = self.up.scanner.method() == INITIALIZE;
                self.calls.insert(key, permit, initialize);
                return;
            }
            (Kind::Request | Kind::Unfollowed, _) => self.counters.untracked += 1,
            (Kind::Response, Some(key)) => self.answered_by_client(&key),
            (Kind::Notification, _) if self.up.scanner.method() == b"notifications/cancelled" => {
                self.cancelled_by_client(piece);
            }
            _ => {}
        }
        self.ended.extend(permit.map(Ended::NoCall));
    }

    fn batch_passed(&mut self, permits: Vec<Option<P>>) {
        let mut permits = permits.into_iter();
        for Element { kind, key, initialize } in std::mem::take(&mut self.up.batch) {
            match (kind, key) {
                (Kind::Request, Some(key)) => {
                    self.calls.insert(key, permits.next().flatten(), initialize);
                }
                (Kind::Request, None) => {
                    self.ended.extend(permits.next().flatten().map(Ended::NoCall));
                    self.counters.untracked += 1;
                }
                (Kind::Response, Some(key)) => self.answered_by_client(&key),
                _ => {}
            }
        }
        self.ended.extend(permits.flatten().map(Ended::NoCall));
    }

    /// The end of the input is not the end of the line: whether what there is of it passes.
    fn part_from_client(
        &mut self,
        piece: &[u8],
        admit: &mut impl FnMut() -> Result<P, Because>,
        passed: &mut Passed,
    ) -> bool {
        match self.up.fate {
            Fate::Passes => {
                self.up.copy(piece, CANCELLATION);
                return true;
            }
            Fate::Drops | Fate::Refused => return false,
            Fate::Open => {}
        }
        // A line that is let through before it is whole is a call for the gate: it may turn out to be one.
        let room = if self.calls.len < self.most_calls { Ok(()) } else { Err(Because::Overloaded) };
        let because = match room.and_then(|()| admit()) {
            Ok(permit) => {
                self.unfinished = Some(permit);
                return self.begin_to_pass(piece, passed);
            }
            Err(because) => because,
        };
        match self.up.scanner.known() {
            Some(Kind::Request | Kind::Unfollowed) => {
                self.refuse(because);
                self.counters.dropped += 1;
                self.up.fate = Fate::Refused;
                self.up.held = Vec::new();
            }
            Some(Kind::Response) if self.is_awaited() => return self.begin_to_pass(piece, passed),
            _ if self.up.held.len() + piece.len() > HELD => {
                self.counters.dropped += 1;
                self.up.fate = Fate::Drops;
                self.up.held = Vec::new();
            }
            _ => self.up.held.extend_from_slice(piece),
        }
        false
    }

    fn begin_to_pass(&mut self, piece: &[u8], passed: &mut Passed) -> bool {
        self.up.fate = Fate::Passes;
        passed.ahead.append(&mut self.up.held);
        let ahead = passed.ahead.len().min(CANCELLATION + 1);
        self.up.copy(&passed.ahead[..ahead], CANCELLATION);
        self.up.copy(piece, CANCELLATION);
        true
    }

    /// Answers the call that has just been read with an error.
    fn refuse(&mut self, because: Because) {
        self.counters.refused += 1;
        if let Some(key) = self.up.key() {
            own::error(&mut self.for_client, key.text(), because);
        }
    }

    /// The server waits for this answer, or may: once its requests were answered by us, it must not get a second one.
    fn is_awaited(&self) -> bool {
        !matches!(self.settled, Settled::Yes(_))
            || self.up.key().is_some_and(|key| self.asked.contains_key(&key))
    }

    fn answered_by_client(&mut self, key: &super::Key) {
        if let Some(times) = self.asked.get_mut(key) {
            *times -= 1;
            if *times == 0 {
                self.asked.remove(key);
            }
        }
    }

    /// The client wants no answer any more, so that nothing waits for one.
    fn cancelled_by_client(&mut self, piece: &[u8]) {
        let mut whole = Vec::new();
        let held = if self.up.held.is_empty() { &self.up.text } else { &self.up.held };
        let line = if held.is_empty() {
            piece
        } else {
            whole.extend_from_slice(held);
            whole.extend_from_slice(piece);
            &whole
        };
        let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        let Ok(cancelled) = serde_json::from_slice::<Cancelled<'_>>(line) else { return };
        let Some(key) = super::Key::new(cancelled.params.request_id.get().as_bytes()) else { return };
        if let Some((permit, _)) = self.calls.remove(&key) {
            self.ended.extend(permit.map(Ended::Cancelled));
        }
    }
}
