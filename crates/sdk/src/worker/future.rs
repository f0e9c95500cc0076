//! Calls that are awaited.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::MutexGuard;
use std::task::{Context, Poll};

use unvme_driver::Completion;

use super::command::{Command, Done, Load, Reason, Refused};
use super::core::{Core, Look, Owner};
use super::patience::pass_time;
use super::queue::{BATCH, SharedQueue};
use super::route::Route;

/// A command that is awaited: of [`super::Worker::run`]. It is sent when the future is first polled.
///
/// Nothing is allocated while it is awaited, but for the copy of data that is not lent. Where the queue is
/// full, futures get its places in the order in which they asked, each woken once for a place that is then
/// its own. One that has been given a place and is never polled again keeps it from the others until it is
/// dropped.
///
/// It may be dropped at any time. A command that has been sent is then executed all the same: its buffer
/// stays with it until it completes, and is given back to the pool then.
///
/// Who lets it make progress: a completion thread ([`super::WorkerOptions::threads`]), or a reactor that
/// watches [`super::Worker::descriptor`] and polls; where there is neither, the future itself looks at the
/// queue when it is polled, and asks to be polled again. So any executor will do, though without a thread it
/// does not sleep.
///
/// ```
/// use unvme::worker::{Data, WorkerOptions};
/// use unvme::{Nsid, Op, OpenOptions, open};
///
/// # fn main() -> Result<(), unvme::Error> {
/// let device = open("mem:block:64M", &OpenOptions::default())?;
/// let worker = device.block(Nsid(1))?.worker(&WorkerOptions { threads: 1, ..WorkerOptions::default() })?;
/// futures_lite::future::block_on(async {
///     let mut buf = worker.alloc(4096)?;
///     buf.fill(0x5a);
///     // The buffer goes along, and comes back.
///     let written = worker.run(Op::write(0, 8), Data::Lent(buf)).await?;
///     let read = worker.run(Op::read(0, 8), Data::Lent(written.buf.expect("it is back"))).await?;
///     assert_eq!(read.buf.expect("it is back").to_vec(), [0x5a; 4096]);
///     Ok(())
/// })
/// # }
/// ```
#[must_use = "nothing is sent before it is polled"]
pub struct Run<'a> {
    route: Route<'a>,
    state: State<'a>,
    /// Where what is read is copied to.
    out: Option<&'a mut [u8]>,
    /// The buffer that goes with the command is nobody's.
    is_copy: bool,
}

enum State<'a> {
    /// It has not been polled.
    New(Command<'a>, Load),
    /// It waits for a place, in the line of the first queue.
    Waiting(Command<'a>, Load, u32),
    /// Its command is in this slot of this queue.
    Sent(Command<'a>, &'a SharedQueue, u16),
    Refused(Refused),
    Over,
}

/// What a step has come to.
enum Step<'a> {
    /// The command is over.
    Done(Command<'a>, Completion),
    Refused(Refused),
    /// It is not; the state says what is waited for.
    Pending(State<'a>),
}

impl<'a> Run<'a> {
    pub(super) fn new(route: Route<'a>, command: Command<'a>, load: Load, out: Option<&'a mut [u8]>) -> Self {
        let is_copy = load.is_copy;
        Self { route, state: State::New(command, load), out, is_copy }
    }

    pub(super) fn refused(route: Route<'a>, refused: Refused) -> Self {
        Self { route, state: State::Refused(refused), out: None, is_copy: false }
    }

    /// Sends the command on a queue that has a place, or gets in line.
    fn begin(&self, command: Command<'a>, mut load: Load, cx: &Context<'_>) -> Step<'a> {
        for queue in self.route.all() {
            let mut core = queue.lock();
            match core.place(Owner::Future) {
                Ok(slot) => return send(queue, core, slot, command, load, cx),
                Err(Reason::Full) => queue.release(core),
                Err(reason) => return Step::Refused(Refused { reason, buf: load.lent() }),
            }
        }
        let queue = self.route.first;
        let mut core = queue.lock();
        // A place may have got free since.
        match core.place(Owner::Future) {
            Ok(slot) => return send(queue, core, slot, command, load, cx),
            Err(Reason::Full) => {}
            Err(reason) => return Step::Refused(Refused { reason, buf: load.lent() }),
        }
        let ticket = core.places.waiters.add(cx.waker().clone());
        queue.release(core);
        self.wait(command, load, ticket, cx)
    }

    /// Sends the command if a place has been given, or goes on waiting for one.
    fn wait(&self, command: Command<'a>, mut load: Load, ticket: u32, cx: &Context<'_>) -> Step<'a> {
        let queue = self.route.first;
        let is_looked_after = queue.is_looked_after();
        if !is_looked_after {
            queue.advance();
        }
        let mut core = queue.lock();
        if core.queue.is_none() || core.closing {
            let old = core.leave(ticket);
            queue.release(core);
            drop(old);
            return Step::Refused(Refused { reason: Reason::Closed, buf: load.lent() });
        }
        if !is_looked_after {
            queue.look(&mut core, Look { advance: false, own: None, max: BATCH });
        }
        if let Some(slot) = core.places.waiters.take(ticket) {
            return send(queue, core, slot, command, load, cx);
        }
        let old = core.places.waiters.update(ticket, cx.waker());
        let is_first = core.places.waiters.is_first(ticket);
        queue.release(core);
        drop(old);
        if !is_looked_after && is_first {
            look_again(queue, cx);
        }
        Step::Pending(State::Waiting(command, load, ticket))
    }
}

/// Sends a command from `slot`, and looks once for its completion.
fn send<'a>(
    queue: &'a SharedQueue,
    mut core: MutexGuard<'_, Core>,
    slot: u16,
    command: Command<'a>,
    mut load: Load,
    cx: &Context<'_>,
) -> Step<'a> {
    let sent = core.submit(slot, command, &mut load.buf, Owner::Future);
    if let Err(reason) = sent {
        queue.release(core);
        return Step::Refused(Refused { reason, buf: load.lent() });
    }
    queue.counts(&core);
    let step = look(queue, core, slot, command, true, cx);
    if let Step::Pending(_) = step {
        queue.wake_for_work();
    }
    step
}

/// Takes the answer, if it is there, or has the future woken when it is.
fn look<'a>(
    queue: &'a SharedQueue,
    mut core: MutexGuard<'_, Core>,
    slot: u16,
    command: Command<'a>,
    is_new: bool,
    cx: &Context<'_>,
) -> Step<'a> {
    let is_looked_after = queue.is_looked_after();
    let mut answer = core.take_answer(slot);
    if answer.is_none() && (is_new || !is_looked_after) {
        answer = queue.look(&mut core, Look { advance: true, own: Some(slot), max: BATCH });
        if answer.is_some() {
            queue.told(1);
        }
    }
    let Some(completion) = answer else {
        let old = core.watch(slot, cx.waker());
        queue.release(core);
        drop(old);
        if !is_looked_after {
            look_again(queue, cx);
        }
        return Step::Pending(State::Sent(command, queue, slot));
    };
    queue.release(core);
    Step::Done(command, completion)
}

/// Nobody will tell: the future is polled again as soon as the executor has done the rest.
fn look_again(queue: &SharedQueue, cx: &Context<'_>) {
    pass_time(queue.advancer.as_ref());
    cx.waker().wake_by_ref();
}

impl Future for Run<'_> {
    type Output = Result<Done, Refused>;

    /// # Panics
    /// After it was ready.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let run = self.get_mut();
        let step = match std::mem::replace(&mut run.state, State::Over) {
            State::New(command, load) => run.begin(command, load, cx),
            State::Waiting(command, load, ticket) => run.wait(command, load, ticket, cx),
            State::Sent(command, queue, slot) => look(queue, queue.lock(), slot, command, false, cx),
            State::Refused(refused) => Step::Refused(refused),
            State::Over => panic!("a future was polled after it was ready"),
        };
        match step {
            Step::Pending(state) => {
                run.state = state;
                Poll::Pending
            }
            Step::Refused(refused) => Poll::Ready(Err(refused)),
            Step::Done(command, completion) => {
                let mut done = Done::of(completion, command.reading, 0);
                if let Some(out) = &mut run.out {
                    super::command::Data::In(out).take(&done);
                }
                if run.out.is_some() || run.is_copy {
                    done.buf = None;
                }
                Poll::Ready(Ok(done))
            }
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Waiting(_, load, ticket) => {
                let queue = self.route.first;
                let mut core = queue.lock();
                let old = core.leave(ticket);
                queue.release(core);
                drop((old, load));
            }
            State::Sent(_, queue, slot) => {
                let mut core = queue.lock();
                let old = core.orphan(slot);
                queue.release(core);
                drop(old);
            }
            State::New(..) | State::Refused(_) | State::Over => {}
        }
    }
}

impl fmt::Debug for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            State::New(..) => "new",
            State::Waiting(..) => "waiting for a place",
            State::Sent(..) => "sent",
            State::Refused(_) => "refused",
            State::Over => "over",
        };
        f.debug_struct("Run").field("state", &state).finish_non_exhaustive()
    }
}
