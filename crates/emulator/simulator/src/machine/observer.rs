//! Those who watch a launch: the checker, the counters, or both.

use super::access::Access;
use super::warp::{Env, Observer, ProductRead, Warp};
use crate::Fault;

/// Watches one launch. Its blocks run on several threads and share it.
pub(crate) trait LaunchObserver: Sync {
    /// The observer of the block with this index in the grid.
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer>;

    /// The findings in blocks up to the one with this number, counted in the grid's order.
    fn findings(&self, last: u64) -> Vec<Fault>;
}

/// Makes the checker of a launch.
pub(crate) type MakeChecker = fn(&Env<'_>) -> Box<dyn LaunchObserver>;

/// Two that watch one launch, or one block of it.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl LaunchObserver for Both<&dyn LaunchObserver, &dyn LaunchObserver> {
    fn block(&self, index: [u32; 3]) -> Box<dyn Observer> {
        Box::new(Both(self.0.block(index), self.1.block(index)))
    }

    fn findings(&self, last: u64) -> Vec<Fault> {
        let mut all = self.0.findings(last);
        all.extend(self.1.findings(last));
        all
    }
}

impl Observer for Both<Box<dyn Observer>, Box<dyn Observer>> {
    fn step(&mut self, warp: &Warp, mask: u32) {
        self.0.step(warp, mask);
        self.1.step(warp, mask);
    }

    fn access(&mut self, warp: &mut Warp, access: &Access<'_>) {
        self.0.access(warp, access);
        self.1.access(warp, access);
    }

    fn copied(&mut self, warp: &mut Warp, mask: u32, addresses: &[u64; 32], read: &[u32; 32]) {
        self.0.copied(warp, mask, addresses, read);
        self.1.copied(warp, mask, addresses, read);
    }

    fn waits(&mut self, warp: &Warp, under_way: u64, left: u64) {
        self.0.waits(warp, under_way, left);
        self.1.waits(warp, under_way, left);
    }

    fn barrier(&mut self) {
        self.0.barrier();
        self.1.barrier();
    }

    fn warp_barrier(&mut self, warp: &mut Warp, member: u32, mask: u32) {
        self.0.warp_barrier(warp, member, mask);
        self.1.warp_barrier(warp, member, mask);
    }

    fn together(&mut self, warp: &mut Warp, member: u32, mask: u32) {
        self.0.together(warp, member, mask);
        self.1.together(warp, member, mask);
    }

    fn phase_passed(&mut self, warp: &mut Warp) {
        self.0.phase_passed(warp);
        self.1.phase_passed(warp);
    }

    fn bulk_issued(&mut self, warp: &mut Warp, lane: usize, shared: u32, size: u32) {
        self.0.bulk_issued(warp, lane, shared, size);
        self.1.bulk_issued(warp, lane, shared, size);
    }

    fn async_done(&mut self, thread: u32, shared: u64, size: u32, bulk: bool) {
        self.0.async_done(thread, shared, size, bulk);
        self.1.async_done(thread, shared, size, bulk);
    }

    fn async_arrived(&mut self, thread: u32) {
        self.0.async_arrived(thread);
        self.1.async_arrived(thread);
    }

    fn fence(&mut self, warp: &mut Warp) {
        self.0.fence(warp);
        self.1.fence(warp);
    }

    fn proxy_fence(&mut self, warp: &mut Warp) {
        self.0.proxy_fence(warp);
        self.1.proxy_fence(warp);
    }

    fn product(&mut self, warp: &mut Warp, reads: &[ProductRead]) {
        self.0.product(warp, reads);
        self.1.product(warp, reads);
    }

    fn products_done(&mut self, warp: &mut Warp, complete: u32) {
        self.0.products_done(warp, complete);
        self.1.products_done(warp, complete);
    }

    fn enter(&mut self, warp: &Warp, mask: u32, start: u32, len: u32) {
        self.0.enter(warp, mask, start, len);
        self.1.enter(warp, mask, start, len);
    }

    fn pass(&mut self, warp: &Warp, mask: u32, from: u32, to: u32, len: u32) {
        self.0.pass(warp, mask, from, to, len);
        self.1.pass(warp, mask, from, to, len);
    }

    fn end(&mut self) {
        self.0.end();
        self.1.end();
    }
}
