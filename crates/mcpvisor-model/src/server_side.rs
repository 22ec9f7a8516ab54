//! Tells a server, and carries out what it decides, as `server_actor.rs` and the process layer do.
use crate::action::Action;
use crate::checks;
use crate::kernel::{Command, Tree};
use crate::mail::{Letter, Way};
use crate::rules::{Checked, Property, Witness};
use crate::world::{Context, World};
use mcpvisor_lifecycle::Incarnation;
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::{ServerEffect, ServerEvent};

fn incarnation(number: u8) -> Incarnation {
    Incarnation(u32::from(number))
}

impl World {
    pub(crate) fn tell_server_letter(
        &mut self,
        context: &Context<'_>,
        session: u8,
        place: u8,
        letter: Letter,
    ) -> Checked {
        let event = match letter {
            Letter::Start => {
                self.server(session, place).stopped = false;
                ServerEvent::Start
            }
            Letter::Restart => ServerEvent::Restart,
            Letter::CommandEnded(of) => ServerEvent::CommandEnded { incarnation: incarnation(of) },
            Letter::Stop { term_first } => ServerEvent::Stop { term_first },
            Letter::Urge(urgency) => ServerEvent::Urge { urgency },
            Letter::RetryKill => ServerEvent::RetryKill,
            Letter::Launched(of) => ServerEvent::Launched { incarnation: incarnation(of) },
            Letter::LaunchFailed(of) => ServerEvent::LaunchFailed { incarnation: incarnation(of) },
            Letter::Exited { incarnation: of, normal } => {
                // The driver looks at the client's stream when the exit is told.
                let trees = &self.cell(session).servers[usize::from(place)].trees;
                let hung_up = trees.iter().any(|tree| tree.incarnation == of && tree.hung_up);
                ServerEvent::MainExited { incarnation: incarnation(of), normal, hung_up }
            }
            Letter::ScopeEmpty(of) => ServerEvent::ScopeEmpty { incarnation: incarnation(of) },
            Letter::OutputEnded(of) => ServerEvent::OutputEnded { incarnation: incarnation(of) },
            Letter::InputEnded(of) => ServerEvent::InputEnded { incarnation: incarnation(of) },
            Letter::HandshakeDone(of) => ServerEvent::HandshakeDone { incarnation: incarnation(of) },
            Letter::HandshakeFailed(of) => ServerEvent::HandshakeFailed { incarnation: incarnation(of) },
            _ => return Err(Property::OldFacts.broken("a letter is on a lane that is not its own")),
        };
        self.tell_server(context, session, place, event)
    }

    fn tell_server(&mut self, context: &Context<'_>, session: u8, place: u8, event: ServerEvent) -> Checked {
        let server = &self.cell(session).servers[usize::from(place)];
        let Some(before) = server.machine.clone() else { return Ok(()) };
        let machine = self.server(session, place).machine.as_mut().expect("it was just seen");
        let effects = machine.edit().step(event);
        self.note_first_end(context, session, place, event);
        context.tell(|| format!("server {session}.{place}: {event:?}"));
        let server = &self.cell(session).servers[usize::from(place)];
        let after = server.machine.as_ref().expect("it was just seen");
        checks::server_step(context, place, server, before.get(), after.get(), event, &effects)?;
        if let ServerEvent::Stop { .. } = event {
            context.saw_if(before.get().machine.fine_state() == "backoff", Witness::StoppedInBackoff);
            self.server(session, place).stopped = true;
        }
        if let ServerEvent::Urge { urgency: Urgency::Kill } = event {
            context.saw_if(!effects.is_empty(), Witness::Urged);
        }
        self.run_server(context, session, place, &effects)
    }

    /// Of direct servers: which of its ends was told first.
    fn note_first_end(&mut self, context: &Context<'_>, session: u8, place: u8, event: ServerEvent) {
        if !context.config.is_direct() {
            return;
        }
        let server = self.server(session, place);
        let client = match event {
            ServerEvent::InputEnded { .. } => true,
            ServerEvent::MainExited { hung_up, .. } => hung_up,
            ServerEvent::OutputEnded { .. } | ServerEvent::ScopeEmpty { .. } => false,
            _ => return,
        };
        server.client_first.get_or_insert(client);
    }

    /// What the connection knows is told before the timer's event.
    pub(crate) fn look_at_health(
        &mut self,
        context: &Context<'_>,
        session: u8,
        place: u8,
        heard: bool,
    ) -> Checked {
        if let Some(looks) = &mut self.luck.looks {
            *looks -= 1;
        }
        let busy = self.in_flight(session) > 0;
        let machine = self.cell(session).servers[usize::from(place)].machine.as_ref();
        let Some(of) = machine.and_then(|machine| machine.get().machine.incarnation()) else { return Ok(()) };
        self.tell_server(context, session, place, ServerEvent::Looked { incarnation: of, heard, busy })?;
        let Some(machine) = self.server(session, place).machine.as_mut() else { return Ok(()) };
        let effects = machine.edit().fire();
        checks::health(context, heard || busy, busy, &effects)?;
        self.run_server(context, session, place, &effects)
    }

    pub(crate) fn server_timer(&mut self, context: &Context<'_>, session: u8, place: u8) -> Checked {
        let server = &self.cell(session).servers[usize::from(place)];
        let Some(before) = server.machine.clone() else { return Ok(()) };
        let machine = self.server(session, place).machine.as_mut().expect("it was just seen");
        let effects = machine.edit().fire();
        let server = &self.cell(session).servers[usize::from(place)];
        let after = server.machine.as_ref().expect("it was just seen");
        checks::server_step(
            context,
            place,
            server,
            before.get(),
            after.get(),
            ServerEvent::Timeout,
            &effects,
        )?;
        let killed = effects.iter().any(|effect| matches!(effect, ServerEffect::Kill { .. }));
        context.saw_if(killed && before.get().machine.fine_state() == "term", Witness::KilledInTime);
        self.run_server(context, session, place, &effects)
    }

    fn run_server(
        &mut self,
        context: &Context<'_>,
        session: u8,
        place: u8,
        effects: &[ServerEffect],
    ) -> Checked {
        for effect in effects {
            context.tell(|| format!("  server {session}.{place} does {effect:?}"));
            match *effect {
                ServerEffect::Launch { incarnation } => {
                    self.launch(context, session, place, incarnation)?;
                }
                ServerEffect::Handshake { incarnation } => {
                    self.with_tree(session, place, incarnation, |tree| tree.asked = true);
                }
                // What comes of it is heard, or not.
                ServerEffect::AskHealth { .. } => {}
                ServerEffect::CloseStdin { incarnation } => {
                    self.with_tree(session, place, incarnation, |tree| tree.stdin_closed = true);
                }
                ServerEffect::Terminate { incarnation } => {
                    self.with_tree(session, place, incarnation, |tree| tree.terminated = true);
                }
                ServerEffect::Kill { incarnation } => {
                    self.with_tree(session, place, incarnation, Tree::kill);
                }
                ServerEffect::StopCommand { incarnation } => {
                    self.run_command(session, place, incarnation)?;
                }
                // It ends as late as it likes, killed or not.
                ServerEffect::KillCommand { .. } => context.saw(Witness::CommandKilled),
                ServerEffect::Release { incarnation } => {
                    self.release(context, session, place, incarnation)?;
                }
                ServerEffect::Report(report) => {
                    self.post(session, Way::FromServer(place), Letter::Report(report));
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, context: &Context<'_>, session: u8, place: u8, of: Incarnation) -> Checked {
        let number = u8::try_from(of.0).expect("restarts are few");
        if self.cell(session).condemned {
            self.post(session, Way::Launcher(place), Letter::LaunchFailed(number));
            return Ok(());
        }
        let server = self.server(session, place);
        if !server.trees.is_empty() {
            return Err(Property::Owned.broken("a server is started again before its old tree is released"));
        }
        server.trees.push(Tree::new(number));
        context.saw_if(number > 1, Witness::Restarted);
        Ok(())
    }

    fn run_command(&mut self, session: u8, place: u8, of: Incarnation) -> Checked {
        if self.cell(session).condemned {
            let number = u8::try_from(of.0).expect("restarts are few");
            self.post(session, Way::Command(place), Letter::CommandEnded(number));
            return Ok(());
        }
        let mut before = None;
        self.with_tree(session, place, of, |tree| {
            before = Some(std::mem::replace(&mut tree.command, Command::Runs));
        });
        match before {
            Some(Command::Unrun) => Ok(()),
            _ => Err(Property::StopCommands.broken("a stop command runs twice, or of nothing")),
        }
    }

    fn release(&mut self, context: &Context<'_>, session: u8, place: u8, of: Incarnation) -> Checked {
        let trees = &mut self.server(session, place).trees;
        let Some(at) = trees.iter().position(|tree| u32::from(tree.incarnation) == of.0) else {
            // A launch that was refused has no tree.
            return Ok(());
        };
        if !trees[at].is_gone() {
            return Err(
                Property::TrueEnds.broken("a server is released, and something of it lives or may be born")
            );
        }
        let tree = trees.remove(at);
        // Who is urged to the kill has no time for it.
        let urged = self.urged == Urgency::Kill;
        if context.config.stop_command && !urged && tree.was_born && tree.command == Command::Unrun {
            return Err(Property::StopCommands.broken("a stop command is passed over"));
        }
        Ok(())
    }

    fn with_tree(&mut self, session: u8, place: u8, of: Incarnation, change: impl FnOnce(&mut Tree)) {
        let trees = &mut self.server(session, place).trees;
        if let Some(tree) = trees.iter_mut().find(|tree| u32::from(tree.incarnation) == of.0) {
            change(tree);
        }
    }

    // The kernel.

    pub(crate) fn kernel_acts(&mut self, context: &Context<'_>, action: Action) -> Checked {
        match action {
            Action::Birth { session, server, tree, works } => {
                self.birth(context, [session, server, tree], works);
                Ok(())
            }
            Action::MainEnds { session, server, tree, by_itself, normal } => {
                self.luck.exits -= u8::from(by_itself);
                self.main_ends(context, [session, server, tree], normal);
                Ok(())
            }
            Action::HelperEnds { session, server, tree } => {
                let it = self.tree([session, server, tree]);
                it.helper = false;
                let (of, gone) = (it.incarnation, it.is_empty());
                if gone {
                    self.post(session, Way::Empty(server), Letter::ScopeEmpty(of));
                }
                Ok(())
            }
            Action::Handshake { session, server, tree, works } => {
                self.luck.failed_handshakes -= u8::from(!works);
                context.saw_if(!works, Witness::HandshakeFailed);
                let it = self.tree([session, server, tree]);
                it.asked = false;
                let of = it.incarnation;
                let letter = if works { Letter::HandshakeDone(of) } else { Letter::HandshakeFailed(of) };
                if context.config.streams {
                    self.post(session, Way::Handshake(server), letter);
                    return Ok(());
                }
                self.tell_server_letter(context, session, server, letter)
            }
            Action::CommandEnds { session, server, tree } => {
                context.saw(Witness::CommandRan);
                let it = self.tree([session, server, tree]);
                it.command = Command::Ended;
                let of = it.incarnation;
                self.post(session, Way::Command(server), Letter::CommandEnded(of));
                Ok(())
            }
            Action::OtherEra { session, server, tree } => {
                self.luck.eras -= 1;
                let of = incarnation(self.tree([session, server, tree]).incarnation);
                self.tell_server(context, session, server, ServerEvent::OtherEra { incarnation: of })
            }
            Action::HangUp { session, server, tree } => {
                self.luck.hangups -= 1;
                context.saw(Witness::HungUp);
                let it = self.tree([session, server, tree]);
                it.stdin_closed = true;
                it.hung_up = true;
                let of = it.incarnation;
                self.post(session, Way::Stream(server), Letter::InputEnded(of));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn tree(&mut self, [session, server, tree]: [u8; 3]) -> &mut Tree {
        &mut self.server(session, server).trees[usize::from(tree)]
    }

    fn birth(&mut self, context: &Context<'_>, at: [u8; 3], works: bool) {
        let [session, server, _] = at;
        let doomed =
            self.cell(session).condemned || self.cell(session).servers[usize::from(server)].reaps > 0;
        let helper = context.config.kind(server).helper;
        let it = self.tree(at);
        let (of, early) = (it.incarnation, it.killed_early);
        it.unborn = false;
        it.main = works;
        it.was_born = works;
        it.helper = works && helper;
        if works {
            context.saw_if(early, Witness::BornLate);
            self.post(session, Way::Launcher(server), Letter::Launched(of));
        } else {
            context.saw(Witness::LaunchFailed);
            self.luck.failed_launches -= u8::from(!early && !doomed);
            self.post(session, Way::Launcher(server), Letter::LaunchFailed(of));
        }
    }

    fn main_ends(&mut self, context: &Context<'_>, at: [u8; 3], normal: bool) {
        let [session, server, _] = at;
        let it = self.tree(at);
        it.main = false;
        it.asked = false;
        let (of, gone) = (it.incarnation, it.is_empty());
        context.saw_if(!gone, Witness::HelperLeft);
        self.post(session, Way::Exit(server), Letter::Exited { incarnation: of, normal });
        if gone {
            self.post(session, Way::Empty(server), Letter::ScopeEmpty(of));
        }
        if context.config.streams {
            self.post(session, Way::Stream(server), Letter::OutputEnded(of));
        }
    }
}
