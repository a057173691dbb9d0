//! Asynchronous accesses to shared memory: the reads by products of warpgroups (`wgmma`), which go on until the products are
//! waited for, and the writes of `cp.async.bulk`.

use super::block::{BlockObserver, State};
use super::order::Manner;
use super::pending::Product;
use super::report::Finding;
use super::shared::{Who, Wrong};
use crate::machine::{ProductRead, Warp, lanes};

/// Bytes of one read.
const SIZE: u32 = 16;

impl BlockObserver {
    /// The warpgroup that begins with this warp has issued a product.
    pub(super) fn product_issued(&mut self, warp: &Warp, reads: &[ProductRead]) {
        let shift = self.shared_shift();
        let issued = self.state.order.tick();
        for read in reads {
            let first = (read.offset >> shift) as usize;
            for n in 0..(SIZE >> shift) as usize {
                for reader in lanes(read.warps) {
                    let who = Who {
                        thread: (warp.index + reader as u32) * 32,
                        pc: warp.pc,
                        manner: Manner::Pending,
                    };
                    let State { order, shared, .. } = &mut self.state;
                    let result = shared.read_by_product(order, first + n, who);
                    shared.product(order, first + n, who);
                    let wrong = match result {
                        Ok(false) => continue,
                        Ok(true) => Wrong::Unwritten,
                        Err(wrong) => wrong,
                    };
                    let place = format!(
                        "byte {} of shared memory",
                        u64::from(read.offset) + ((n as u64) << shift)
                    );
                    let finding = Finding {
                        lane: 32 * reader,
                        verb: "read",
                        size: SIZE,
                        place: &place,
                        wrong,
                        other: wrong.other(),
                        block: None,
                    };
                    self.found(warp, &finding);
                }
            }
        }
        self.state.products.push(Product {
            warpgroup: warp.index / 4,
            group: warp.products.committed,
            issued,
            reads: reads.iter().map(|read| read.offset).collect(),
        });
    }

    /// A warp has waited for the products of its warpgroup in the groups before this one. Its own wait is one for all.
    pub(super) fn products_complete(&mut self, warp: &Warp, complete: u32) {
        let shift = self.shared_shift();
        let State {
            order,
            shared,
            products,
            ..
        } = &mut self.state;
        order.tick();
        products.retain(|product| {
            if product.warpgroup != warp.index / 4 || product.group >= complete {
                return true;
            }
            for offset in &product.reads {
                let first = (offset >> shift) as usize;
                for cell in first..first + (SIZE >> shift) as usize {
                    shared.product_done(order, cell, product.issued, warp.index * 32);
                }
            }
            false
        });
    }

    /// A lane begins a copy into shared memory.
    pub(super) fn bulk_begins(&mut self, warp: &Warp, lane: usize, start: u32, size: u32) {
        let shift = self.shared_shift();
        self.state.order.tick();
        let who = Who {
            thread: warp.index * 32 + lane as u32,
            pc: warp.pc,
            manner: Manner::Pending,
        };
        for cell in start >> shift..(start + size) >> shift {
            let State { order, shared, .. } = &mut self.state;
            let Err(wrong) = shared.write(order, cell as usize, who, |_| false) else {
                continue;
            };
            let place = format!("byte {} of shared memory", u64::from(cell) << shift);
            let finding = Finding {
                lane,
                verb: "write",
                size,
                place: &place,
                wrong,
                other: wrong.other(),
                block: None,
            };
            self.found(warp, &finding);
        }
    }
}
