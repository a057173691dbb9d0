//! Streams whose work is done in any order that is allowed.

mod common;
#[path = "common/order.rs"]
mod order;

#[test]
fn everything_holds() {
    common::start(&[("KILN_EMULATOR_STREAMS", "random:17")]);
    order::all();
}
