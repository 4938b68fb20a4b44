//! The two halves of the operation: sending, and receiving.

use abi::{Error, nucleus::ANYONE};

use super::{Request, Tag, deadline};
use crate::{
    Hardware, Kernel, ThreadId,
    bare::{
        Bare,
        going::{Going, PIECE_STEPS},
        mapping::Progress,
        nucleus::Nucleus,
    },
    event::Outcome,
    messages::SUPERVISED,
    scheduler::NONE,
    thread::{Resumed, State},
};

/// Steps of a message that is refused, beside one for each processor that may be the one where its sender goes on.
const REFUSAL_STEPS: i32 = 32;

/// The result of the sending half.
enum Sent {
    /// It is delivered to this thread, which is in no list yet; [`NONE`]: there was nothing to send.
    To(u32),
    /// The operation ends like this.
    Ended(Outcome),
}

impl<H: Hardware> Kernel<H, Bare> {
    /// Sends and receives for the running thread `me`, as the arguments of `Ipc` say. Its registers
    /// hold the first words of the message.
    pub(in crate::bare) fn ipc(&mut self, me: u32, arguments: [u64; 6], resumed: Resumed) -> Outcome {
        let request = Request::new(arguments);
        let mut steps = PIECE_STEPS;
        let receiver = match self.send_half(me, &request, resumed, &mut steps) {
            Sent::To(receiver) => receiver,
            Sent::Ended(outcome) => return outcome,
        };
        let outcome = if request.from == 0 {
            Outcome::Return(Ok((0, 0)))
        } else {
            if receiver != NONE {
                self.forget_going(me);
            }
            self.receive_half(me, &request.receiving(), resumed, &mut steps)
        };
        if receiver != NONE {
            self.pass_to(receiver);
        }
        outcome
    }

    fn send_half(&mut self, me: u32, request: &Request, resumed: Resumed, steps: &mut i32) -> Sent {
        if request.to == 0 {
            return Sent::To(NONE);
        }
        let failed = |error| Sent::Ended(Outcome::Return(Err(error)));
        if let Err(error) = Tag::parse(request.tag) {
            return failed(error);
        }
        let Some(to) = self.find_thread(request.to) else {
            return failed(Error::NoSuchThread);
        };
        if to == me {
            return failed(Error::BadArgument);
        }
        if !self.may_send(me, request.to) {
            return failed(Error::Protection);
        }
        if self.waits_for(to, me) {
            return match self.transfer((me, to), request, me, steps) {
                Ok(Progress::Done) => Sent::To(to),
                // Its time came while it waited: with another one from now on, a receiver that waits just then, again and again, would have it for ever.
                Ok(Progress::More) if resumed == Resumed::TimedOut || self.is_late(me, request.send_us()) => {
                    failed(Error::TimedOut)
                }
                Ok(Progress::More) => {
                    self.begin_giving(to);
                    Sent::Ended(Outcome::Again)
                }
                Err(error) => failed(error),
            };
        }
        if request.send_us() == 0 || resumed == Resumed::TimedOut {
            return failed(Error::TimedOut);
        }
        let until = self.until(me, request.send_us());
        self.forget_going(me);
        self.set_operation(me, Some(request.operation()));
        self.leave_processor(me);
        self.wait_to_send(me, to, until);
        Sent::Ended(Outcome::Gone)
    }

    /// Whether the policy of its space lets a thread send to another.
    fn may_send(&self, me: u32, to: u64) -> bool {
        let thread = self.thread(me);
        thread.slow & SUPERVISED == 0 || self.half.nucleus.supervisor(thread.space) == to
    }

    /// Whether `thread` waits for a message that `sender` may send.
    pub(super) fn waits_for(&self, thread: u32, sender: u32) -> bool {
        self.thread(thread).ipc.waits_for(self.id_of(sender).0)
    }

    fn receive_half(&mut self, me: u32, request: &Request, resumed: Resumed, steps: &mut i32) -> Outcome {
        let from = request.from;
        let mut has_refused = false;
        self.acknowledge(me, from);
        if self.take_interrupt(me, from) {
            return Outcome::Resume;
        }
        // Items of a message from a sender's queue go into this window.
        self.messages_of(me).window = request.window;
        while let Some(sender) = self.sender_for(me, from) {
            let sending = self.request_of(sender);
            match self.transfer((sender, me), &sending, me, steps) {
                Ok(Progress::Done) => {
                    self.sent(sender, me, &sending);
                    return Outcome::Resume;
                }
                // One that waits for nobody begins no long message after the other: senders whose messages are refused in the end would keep it.
                Ok(Progress::More) if has_refused && request.receive_us() == 0 && resumed != Resumed::First => break,
                Ok(Progress::More) => return self.again_as(me, request),
                Err(error) => {
                    has_refused = true;
                    self.fail(sender, error);
                    *steps -= REFUSAL_STEPS + self.processors_looked_at();
                    if *steps <= 0 {
                        if request.receive_us() == 0 {
                            break;
                        }
                        return self.again_as(me, request);
                    }
                }
            }
        }
        if let Err(error) = self.check_partner(me, from) {
            return Outcome::Return(Err(error));
        }
        if request.receive_us() == 0 {
            return Outcome::Return(Err(Error::TimedOut));
        }
        self.leave_processor(me);
        let until = self.until(me, request.receive_us());
        self.forget_going(me);
        self.wait_to_receive(me, from, request.window, until);
        Outcome::Gone
    }

    /// The operation is to be done again, from its receiving half on, unless its time is over.
    fn again_as(&mut self, me: u32, request: &Request) -> Outcome {
        if self.is_late(me, request.receive_us()) {
            return Outcome::Return(Err(Error::TimedOut));
        }
        self.set_operation(me, Some(request.operation()));
        Outcome::Again
    }

    /// The end of a half's timeout, which begins now unless the half goes on.
    pub(super) fn until(&self, me: u32, timeout_us: u32) -> Option<u64> {
        let kept = self.half.nucleus.going.get(me as usize).and_then(Option::as_ref);
        kept.and_then(|kept| kept.until)
            .or_else(|| deadline(|| self.hardware.now_ns(), timeout_us))
    }

    /// Whether a half that is to go on has had its time. One that waits for nobody, with a timeout of zero, ends what it has begun.
    fn is_late(&mut self, me: u32, timeout_us: u32) -> bool {
        if timeout_us == 0 {
            return false;
        }
        let until = self.until(me, timeout_us);
        let going = self.going(me);
        self.keep_going(me, Going { until, ..going });
        until.is_some_and(|until| self.hardware.now_ns() >= until)
    }

    /// The next thread that sends to `me` and that it will receive from.
    pub(super) fn sender_for(&self, me: u32, from: u64) -> Option<u32> {
        if from == ANYONE {
            let head = self.thread(me).ipc.first_sender();
            return (head != NONE).then_some(head);
        }
        let sender = self.threads().find(ThreadId(from))?;
        (self.thread(sender).state == State::Sending(me)).then_some(sender)
    }

    /// The request of a thread that waits to send.
    pub(super) fn request_of(&self, sender: u32) -> Request {
        let operation = self.thread(sender).operation;
        Request::new(operation.map_or([0; 6], |operation| operation.arguments))
    }

    /// A waiting sender's message was taken by `receiver`: its receiving half begins.
    pub(super) fn sent(&mut self, sender: u32, receiver: u32, request: &Request) {
        self.detach(sender);
        let partner = self.id_of(receiver).0;
        self.set_operation(sender, None);
        if self.thread(sender).ipc.trouble.is_some() {
            self.wait_for_answer(sender, partner);
        } else if request.from == 0 {
            let context = self.context_of(sender);
            context.reset(context.rip, context.rsp);
            self.enqueue(sender);
        } else if request.from == partner && request.receive_us() != 0 {
            // A call. Nothing of the receiver's can be waiting here: it has just been receiving.
            self.begin_wait(sender, &request.receiving());
        } else {
            self.begin_operation(sender, request.receiving().operation());
            self.enqueue(sender);
        }
    }

    /// Whether a message from `from` can ever come.
    fn check_partner(&mut self, me: u32, from: u64) -> Result<(), Error> {
        if from == ANYONE {
            return Ok(());
        }
        if let Some(interrupt) = Nucleus::interrupt_of(from) {
            let bound = self.half.nucleus.interrupts[interrupt].thread == self.id_of(me).0;
            return if bound { Ok(()) } else { Err(Error::BadArgument) };
        }
        match self.find_thread(from) {
            None => Err(Error::NoSuchThread),
            Some(partner) if partner == me => Err(Error::BadArgument),
            Some(_) => Ok(()),
        }
    }

    /// A thread that is in no list waits for a message.
    pub(super) fn begin_wait(&mut self, me: u32, request: &Request) {
        let until = deadline(|| self.hardware.now_ns(), request.receive_us());
        self.wait_to_receive(me, request.from, request.window, until);
    }
}
