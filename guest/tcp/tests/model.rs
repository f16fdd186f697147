//! The states of a connection against a model of RFC 9293's diagram (3.3.2): what either
//! side has ended and what of it is acknowledged says which state it is in, in whatever
//! order that came.

mod script;

use proptest::prelude::*;
use script::{ACK, FIN, RST, Script, modern};
use tare_tcp::{Loss, State};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The application queues bytes, reads all, or ends its side.
    Send(u8),
    Read,
    Close,
    /// The peer sends bytes, acknowledges all, ends its side, or says its last again.
    Data(u8),
    Acknowledge,
    Fin,
    Again,
    /// An acknowledgement of nothing new.
    Old,
    /// A reset with exactly the next number, or elsewhere in the window.
    Reset,
    StrayReset,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..200u8).prop_map(Event::Send),
        2 => Just(Event::Read),
        2 => Just(Event::Close),
        3 => (1..200u8).prop_map(Event::Data),
        4 => Just(Event::Acknowledge),
        2 => Just(Event::Fin),
        2 => Just(Event::Again),
        1 => Just(Event::Old),
        1 => Just(Event::Reset),
        1 => Just(Event::StrayReset),
    ]
}

/// What the diagram goes by.
#[derive(Debug)]
struct Model {
    has_closed: bool,
    /// Its FIN has gone, which may wait behind data; it is acknowledged.
    has_finished: bool,
    is_done: bool,
    peer_has_closed: bool,
    /// The peer ended before this side did.
    peer_was_first: bool,
    was_reset: bool,
    /// The next numbers of both sides, and what the peer has acknowledged.
    next: u32,
    peer_next: u32,
    acknowledged: u32,
}

impl Model {
    fn new() -> Self {
        Self {
            has_closed: false,
            has_finished: false,
            is_done: false,
            peer_has_closed: false,
            peer_was_first: false,
            was_reset: false,
            next: 1,
            peer_next: 1,
            acknowledged: 1,
        }
    }

    fn state(&self) -> State {
        match (self.has_closed, self.is_done, self.peer_has_closed) {
            _ if self.was_reset => State::Closed,
            (false, _, false) => State::Established,
            (false, _, true) => State::CloseWait,
            (true, false, false) => State::FinWait1,
            (true, true, false) => State::FinWait2,
            (true, false, true) if self.peer_was_first => State::LastAck,
            (true, true, true) if self.peer_was_first => State::Closed,
            (true, false, true) => State::Closing,
            (true, true, true) => State::TimeWait,
        }
    }

    fn take(&mut self, script: &mut Script, event: Event) {
        let bytes = [7; 200];
        match event {
            Event::Send(len) if !self.has_closed => script.send(len.into()),
            Event::Send(_) => assert!(script.tcp.send(&bytes[..1]).is_err()),
            Event::Read => {
                while script
                    .tcp
                    .recv(&mut [0; 999], script.now)
                    .is_ok_and(|n| n > 0)
                {}
            }
            Event::Close => {
                script.tcp.close();
                self.peer_was_first |= self.peer_has_closed && !self.has_closed;
                self.has_closed = true;
            }
            Event::Data(len) if !self.peer_has_closed => {
                let payload = &bytes[..usize::from(len)];
                script.inject(ACK, self.peer_next, self.acknowledged, payload);
                self.peer_next += u32::from(len);
            }
            Event::Acknowledge => {
                self.acknowledged = self.next;
                self.is_done = self.has_finished;
                script.inject(ACK, self.peer_next, self.acknowledged, b"");
            }
            Event::Fin if !self.peer_has_closed => {
                script.inject(ACK | FIN, self.peer_next, self.acknowledged, b"");
                self.peer_next += 1;
                self.peer_has_closed = true;
            }
            Event::Again if self.peer_has_closed => {
                script.inject(ACK | FIN, self.peer_next - 1, self.acknowledged, b"");
            }
            Event::Data(_) | Event::Fin | Event::Again | Event::Old => {
                script.inject(ACK, self.peer_next, self.acknowledged, b"");
            }
            Event::Reset => {
                script.inject(RST, self.peer_next, 0, b"");
                // RFC 1337: not in TIME-WAIT.
                self.was_reset |= self.state() != State::TimeWait;
            }
            Event::StrayReset => script.inject(RST, self.peer_next + 5, 0, b""),
        }
        while let Some(sent) = script.sent() {
            let end = sent.seq + sent.len as u32 + u32::from(sent.flags & FIN != 0);
            self.next = self.next.max(end);
            self.has_finished |= sent.flags & FIN != 0;
            assert!(sent.ack <= self.peer_next, "{sent:?} {self:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn states_follow_the_diagram(events in prop::collection::vec(event(), 1..40)) {
        let mut script = Script::open(modern());
        let mut model = Model::new();
        for event in events {
            model.take(&mut script, event);
            prop_assert_eq!(script.tcp.state(), model.state(), "after {:?}: {:?}", event, model);
            if model.state() == State::Closed {
                let loss = model.was_reset.then_some(Loss::Reset);
                prop_assert_eq!(script.tcp.loss(), loss);
                break;
            }
        }
    }
}
