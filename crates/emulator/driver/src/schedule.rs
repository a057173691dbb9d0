//! The schedule of work: at once, as late as possible, or in an order that a seed chooses.
//!
//! Each stream is a queue. The head of a queue may run when nothing orders it after something else: an event that is
//! not recorded yet, or earlier work that the legacy stream's rules put before it. A thread that waits for something runs
//! work until that is done; work itself runs without the driver's lock, so that several threads can run it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};

use crate::config::Order;
use crate::error::{Code, Outcome};
use crate::objects::stream::{Op, Stream};
use crate::objects::work::{Record, Work};
use crate::state::{Driver, State, stack};
use crate::types::{CUcontext, CUstream};

/// The most bytes of freed memory that keep their pages while there is always something that runs.
const UNCOLLECTED: u64 = 256 << 20;

/// The work that is waited for.
#[derive(Clone, Debug)]
pub(crate) enum Goal {
    /// Everything in a stream up to a piece of work.
    Stream(CUstream, u64),
    /// Everything in all streams of a context up to a piece of work.
    Context(CUcontext, u64),
    /// All work in a context up to a piece of work is done, or is a kernel that runs and keeps the memory it can reach. A real driver
    /// waits for those too; a program of several threads is much faster without.
    Free(CUcontext, u64),
    /// One recording of an event.
    Record(Arc<Record>),
}

impl Driver {
    /// Puts work at the end of a stream, and does it if that is the mode.
    pub(crate) fn submit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        stream: CUstream,
        work: Work,
    ) -> Outcome<MutexGuard<'a, State>> {
        let told = self.config.check.then(|| work.clone());
        let seq = state.issue(stream, work)?;
        if self.config.order == Order::Eager {
            state = self.finish(state, &Goal::Stream(stream, seq))?;
        }
        if let Some(work) = told {
            self.issued(&mut state, stream, seq, &work);
        }
        Ok(state)
    }

    /// The host waits until the goal is met and the kernels' output is written; the result is an error if the current context
    /// has failed.
    pub(crate) fn wait<'a>(&'a self, state: MutexGuard<'a, State>, goal: &Goal) -> Outcome<MutexGuard<'a, State>> {
        let outcome = self.finish(state, goal);
        let context = stack(|s| s.last().copied()).unwrap_or_default();
        let mut state = outcome.inspect_err(|_| self.lock().print(context))?;
        state.print(context);
        self.host_waited(&mut state);
        state.current()?;
        Ok(state)
    }

    /// Runs work until the goal is met; the result is an error if the current context has failed.
    fn finish<'a>(&'a self, mut state: MutexGuard<'a, State>, goal: &Goal) -> Outcome<MutexGuard<'a, State>> {
        while !state.met(goal) {
            state = self.step(state, Some(goal))?;
        }
        state.sweep();
        state.current()?;
        Ok(state)
    }

    /// Success once the goal is met. Each call does one piece of work, so that polling comes to an end.
    pub(crate) fn poll<'a>(&'a self, mut state: MutexGuard<'a, State>, goal: &Goal) -> Outcome {
        if !state.met(goal) {
            state = self.step(state, Some(goal))?;
            state.current()?;
        }
        if !state.met(goal) {
            return Err(Code::NOT_READY);
        }
        self.host_waited(&mut state);
        state.current().map(drop)
    }

    /// Runs one piece of work that the goal needs, or that the seed chooses; waits while other threads run all of it.
    pub(crate) fn step<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        goal: Option<&Goal>,
    ) -> Outcome<MutexGuard<'a, State>> {
        if state.draining > 0 {
            return Ok(self.rest(state));
        }
        let pick = match (self.config.order, goal) {
            (Order::Random(_), _) | (_, None) => {
                let ready: Vec<CUstream> = state.streams.keys().copied().filter(|s| state.ready(*s)).collect();
                (!ready.is_empty()).then(|| ready[state.draw(ready.len())])
            }
            (_, Some(goal)) => state.needed(goal),
        };
        let Some(stream) = pick else {
            if state.idle() {
                self.config.say(format_args!(
                    "nothing can run and {goal:?} is not met: a bug of the emulator's"
                ));
                return Err(Code::UNKNOWN);
            }
            return Ok(self.rest(state));
        };
        let Some((op, context, failed)) = state.start(stream) else {
            return Ok(state);
        };
        // Taken before another thread can free any of it.
        let view = match &op.work {
            Work::Kernel(kernel) if !failed => kernel.view(self),
            _ => None,
        };
        if let Some(stream) = state.streams.get_mut(&stream) {
            stream.keeps = view.is_some();
        }
        drop(state);
        let watched = self.config.check.then(|| self.host_access().begin());
        // After a fault nothing more is done in the context, but waiters must be released.
        let outcome = match &op.work {
            Work::Record(_) => op.work.run(self, context, None),
            _ if failed => Ok(()),
            // A panic is a bug of the emulator; threads that wait for this stream must not wait for ever.
            work => catch_unwind(AssertUnwindSafe(|| work.run(self, context, view))).unwrap_or_else(|_| {
                self.report("work in a stream panicked, which is a bug of the emulator's");
                Err(Code::UNKNOWN)
            }),
        };
        if watched.is_some() {
            self.host_access().end();
        }
        let mut state = self.lock();
        if let Some(stream) = state.streams.get_mut(&stream) {
            (stream.running, stream.keeps) = (None, false);
        }
        if let Err(code) = outcome {
            state.fail(context, code);
            // No call waits for a context that has failed, so its output is written now.
            state.print(context);
        }
        if watched.is_some() && self.signals_host(&op.work) {
            self.host_waited(&mut state);
        }
        self.wake(&state);
        Ok(state)
    }

    /// Waits until another thread calls [`wake`](Self::wake).
    fn rest<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.resting += 1;
        let woken = self.changed.wait(state);
        let mut state = woken.unwrap_or_else(|poisoned| poisoned.into_inner());
        state.resting -= 1;
        state
    }

    /// Wakes the threads that rest, if there are any: the call is one of the system's.
    fn wake(&self, state: &State) {
        if state.resting > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits for all work in the current context, and for work that other threads run; then nothing is running until
    /// the lock is released.
    pub(crate) fn quiet<'a>(&'a self, state: MutexGuard<'a, State>) -> Outcome<MutexGuard<'a, State>> {
        let goal = state.everything(state.current()?);
        let state = self.wait(state, &goal)?;
        Ok(self.drain(state))
    }

    /// Waits for work that other threads run, and gives the pages of freed memory back.
    pub(crate) fn drain<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        // No thread starts work meanwhile, or this wait might never end.
        state.draining += 1;
        while !state.idle() {
            state = self.rest(state);
        }
        state.draining -= 1;
        self.wake(&state);
        self.memory.collect();
        state
    }

    /// Gives the pages of freed memory back if nothing runs, or once they are so many that it waits until nothing does: work that
    /// runs and uses them by mistake would crash.
    pub(crate) fn reclaim(&self, state: MutexGuard<'_, State>) {
        if state.idle() {
            self.memory.collect();
        } else if self.memory.uncollected() > UNCOLLECTED {
            drop(self.drain(state));
        }
    }
}

impl State {
    /// True if no thread runs work.
    fn idle(&self) -> bool {
        self.streams.values().all(|s| s.running.is_none())
    }

    /// Puts work at the end of a stream's queue.
    pub(crate) fn issue(&mut self, stream: CUstream, work: Work) -> Outcome<u64> {
        self.seq += 1;
        let seq = self.seq;
        let stream = self.streams.get_mut(&stream).ok_or(Code::INVALID_HANDLE)?;
        stream.queue.push_back(Op { seq, work });
        stream.last = seq;
        Ok(seq)
    }

    fn start(&mut self, stream: CUstream) -> Option<(Op, CUcontext, bool)> {
        let s = self.streams.get_mut(&stream)?;
        let op = s.queue.pop_front()?;
        s.running = Some(op.seq);
        let failed = self.contexts.get(&s.context).is_none_or(|c| c.sticky.is_some());
        Some((op, s.context, failed))
    }

    /// Makes an error of the context permanent.
    pub(crate) fn fail(&mut self, context: CUcontext, code: Code) {
        if let Some(context) = self.contexts.get_mut(&context) {
            context.sticky.get_or_insert(code);
        }
    }

    /// All work that a context has been given so far.
    pub(crate) fn everything(&self, context: CUcontext) -> Goal {
        Goal::Context(context, self.seq)
    }

    /// True if there is nothing left to wait for.
    pub(crate) fn met(&self, goal: &Goal) -> bool {
        match goal {
            Goal::Stream(stream, seq) => !self.pending(*stream, *seq),
            Goal::Context(context, seq) => {
                let late = |s: &Stream| s.first().is_none_or(|first| first > *seq);
                self.streams.values().all(|s| s.context != *context || late(s))
            }
            Goal::Free(context, seq) => {
                let queued = |s: &Stream| s.queue.front().is_some_and(|op| op.seq <= *seq);
                let uses = |s: &Stream| s.running.is_some() && !s.keeps || queued(s);
                self.streams.values().all(|s| s.context != *context || !uses(s))
            }
            Goal::Record(record) => record.done.get().is_some(),
        }
    }

    /// True if a stream has work up to `seq` that is not done.
    pub(crate) fn pending(&self, stream: CUstream, seq: u64) -> bool {
        self.streams
            .get(&stream)
            .and_then(|s| s.first())
            .is_some_and(|first| first <= seq)
    }

    /// The work that must be done before the head of a stream may run: everything in another stream up to some point.
    fn before(&self, stream: CUstream) -> Option<(CUstream, u64)> {
        let s = self.streams.get(&stream)?;
        let head = s.queue.front()?;
        if let Work::Wait(record) = &head.work
            && record.done.get().is_none()
        {
            return Some((record.stream, record.seq));
        }
        let earlier = |other: &CUstream| self.pending(*other, head.seq - 1).then_some((*other, head.seq - 1));
        if s.legacy {
            let blocking = self
                .streams
                .iter()
                .filter(|(_, o)| o.context == s.context && o.blocking && !o.legacy);
            return blocking.map(|(id, _)| id).find_map(earlier);
        }
        let legacy = self.contexts.get(&s.context)?.legacy;
        if s.blocking { earlier(&legacy) } else { None }
    }

    fn ready(&self, stream: CUstream) -> bool {
        let s = &self.streams[&stream];
        s.running.is_none() && !s.queue.is_empty() && self.before(stream).is_none()
    }

    /// A stream whose head the goal needs and that may run now; None when another thread runs the work that is needed.
    fn needed(&self, goal: &Goal) -> Option<CUstream> {
        match goal {
            Goal::Stream(stream, _) => self.unblock(*stream),
            Goal::Context(context, seq) | Goal::Free(context, seq) => {
                let ours = self.streams.iter().filter(|(_, s)| s.context == *context);
                let mut pending = ours.map(|(id, _)| *id).filter(|id| self.pending(*id, *seq));
                pending.find_map(|stream| self.unblock(stream))
            }
            Goal::Record(record) => self.unblock(record.stream),
        }
    }

    /// Follows the dependencies of a stream's head to work that may run now. Each step goes to work issued earlier, so
    /// the search ends.
    fn unblock(&self, mut stream: CUstream) -> Option<CUstream> {
        loop {
            let s = self.streams.get(&stream)?;
            if s.running.is_some() || s.queue.is_empty() {
                return None;
            }
            match self.before(stream) {
                None => return Some(stream),
                Some((other, _)) => stream = other,
            }
        }
    }

    /// Removes destroyed streams whose work is done.
    fn sweep(&mut self) {
        self.streams.retain(|_, s| !(s.destroyed && s.idle()));
    }
}
