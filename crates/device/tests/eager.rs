//! Streams whose work is done when it is given.

mod common;
#[path = "common/order.rs"]
mod order;

#[test]
fn everything_holds() {
    common::start(&[("KILN_EMULATOR_STREAMS", "eager")]);
    order::all();
}
