//! Streams whose work is done when something waits for it.

mod common;
#[path = "common/order.rs"]
mod order;

#[test]
fn everything_holds() {
    common::start(&[("KILN_EMULATOR_STREAMS", "lazy")]);
    order::all();
}
