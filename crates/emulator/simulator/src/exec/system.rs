//! Calls that a kernel makes to the system: `vprintf`, `__assertfail`, `malloc` and `free`.
//!
//! Their arguments lie in the caller's local memory. The list of the instruction holds the offsets there: of the
//! result, if it is wanted, then of each argument.

use super::format::{Take, Value, format};
use super::space::find_generic;
use crate::FaultKind;
use crate::machine::{Access, AccessKind, Handler, Inst, Space, Warp, access_flags, lanes};
use crate::system::Text;

/// The most characters of a string.
const LONGEST: u64 = 1 << 16;

/// A system call: its handler, and the bytes of its result and of its arguments.
pub(crate) struct Call {
    pub(crate) run: Handler,
    pub(crate) result: u32,
    pub(crate) arguments: &'static [u32],
    /// True if it needs the heap.
    pub(crate) heap: bool,
}

/// The system call of this name.
pub(crate) fn call(name: &str) -> Option<Call> {
    let call = |run: Handler, result, arguments, heap| Call {
        run,
        result,
        arguments,
        heap,
    };
    Some(match name {
        "vprintf" => call(vprintf, 4, &[8, 8], false),
        "__assertfail" => call(assertion, 0, &[8, 8, 4, 8, 8], false),
        "malloc" => call(malloc, 8, &[8], true),
        "free" => call(free, 0, &[8], true),
        _ => return None,
    })
}

/// The address of an entry of the instruction's list in a lane's local memory; null for a result that is not used.
fn place(w: &mut Warp, i: &Inst, lane: usize, entry: usize) -> *mut u8 {
    let slot = w.list(i)[entry];
    if !slot.is_some() {
        return std::ptr::null_mut();
    }
    let local = w.frames[w.group.frame as usize].local + slot.0;
    // SAFETY: the offset lies in the frame's local memory (`decode`), which is reserved while the frame lives.
    unsafe { w.local_base(lane).add(local as usize) }
}

/// An argument of eight bytes.
fn long(w: &mut Warp, i: &Inst, lane: usize, argument: usize) -> u64 {
    // SAFETY: `decode` checked that the frame holds eight bytes there.
    unsafe { place(w, i, lane, 1 + argument).cast::<u64>().read_unaligned() }
}

/// The bytes at a generic address, as a number; a fault when they are not there.
fn load(w: &mut Warp, lane: usize, address: u64, size: u64) -> Option<u64> {
    if !find_generic(w, lane, address, size, access_flags(size as u32, AccessKind::Load)) {
        return None;
    }
    let mut bytes = [0u8; 8];
    // SAFETY: the bytes are live (above), and at most eight.
    unsafe { std::ptr::copy_nonoverlapping(w.pointers[lane] as *const u8, bytes.as_mut_ptr(), size as usize) };
    Some(u64::from_le_bytes(bytes))
}

/// The string at a generic address.
fn string(w: &mut Warp, lane: usize, address: u64) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    for at in 0..LONGEST {
        match load(w, lane, address.wrapping_add(at), 1)? as u8 {
            0 => break,
            c => text.push(c),
        }
    }
    Some(text)
}

/// The launch and the block, in the order of output.
fn order(w: &Warp) -> (u64, u64) {
    let (env, [x, y, z]) = (w.env(), w.block.map(u64::from));
    let [width, height, _] = env.grid.map(u64::from);
    (env.serial, (z * height + y) * width + x)
}

unsafe fn vprintf(w: &mut Warp, i: &Inst) {
    for lane in lanes(w.mask) {
        let (text, arguments) = (long(w, i, lane, 0), long(w, i, lane, 1));
        if text == 0 {
            put(w, i, lane, &(-1i32).to_le_bytes());
            continue;
        }
        let Some(text) = string(w, lane, text) else { return };
        let mut at = 0u64;
        let mut bytes = 0;
        let printed = format(&text, |take| {
            let size = if take == Take::Int { 4 } else { 8 };
            at = at.next_multiple_of(size);
            let bits = load(w, lane, arguments.wrapping_add(at), size)?;
            at += size;
            bytes += size as usize;
            if take != Take::Text {
                return Some(Value::Bits(bits));
            }
            let text = if bits == 0 {
                b"(null)".to_vec()
            } else {
                string(w, lane, bits)?
            };
            bytes += text.len();
            Some(Value::Text(text))
        });
        let Some((text, count)) = printed else { return };
        w.env().system.print(order(w), bytes, Text::Output(text));
        put(w, i, lane, &count.to_le_bytes());
    }
}

/// Stores a result.
fn put(w: &mut Warp, i: &Inst, lane: usize, bytes: &[u8]) {
    let to = place(w, i, lane, 0);
    if to.is_null() {
        return;
    }
    // SAFETY: `decode` checked that the frame holds the result there.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    if let Some(mut observer) = w.observer {
        let mut addresses = [0; 32];
        addresses[lane] = u64::from(w.frames[w.group.frame as usize].local + w.list(i)[0].0);
        let access = Access {
            kind: AccessKind::Store,
            space: Space::Local,
            mask: 1 << lane,
            size: bytes.len() as u32,
            addresses: &addresses,
        };
        // SAFETY: the block's observer lives as long as its warps run, on this thread alone.
        unsafe { observer.as_mut() }.access(w, &access);
    }
}

/// `__assertfail(message, file, line, function, size of a character)`.
unsafe fn assertion(w: &mut Warp, i: &Inst) {
    let mut first = None;
    for lane in lanes(w.mask) {
        let mut texts = [const { String::new() }; 3];
        for (text, argument) in texts.iter_mut().zip([0, 1, 3]) {
            let address = long(w, i, lane, argument);
            let Some(bytes) = string(w, lane, address) else { return };
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        // SAFETY: `decode` checked that the frame holds four bytes there.
        let line = unsafe { place(w, i, lane, 3).cast::<u32>().read_unaligned() };
        let [message, file, function] = texts;
        let ([bx, by, bz], [tx, ty, tz]) = (w.block, w.thread(lane));
        let text = format!(
            "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n"
        );
        w.env().system.print(order(w), 36, Text::Error(text.into_bytes()));
        first.get_or_insert((lane, format!("assertion `{message}` failed")));
    }
    if let Some((lane, message)) = first {
        w.fail(FaultKind::Assert, lane, message);
    }
}

unsafe fn malloc(w: &mut Warp, i: &Inst) {
    for lane in lanes(w.mask) {
        let bytes = long(w, i, lane, 0);
        let address = w.env().system.allocate(bytes);
        put(w, i, lane, &address.to_le_bytes());
    }
}

unsafe fn free(w: &mut Warp, i: &Inst) {
    for lane in lanes(w.mask) {
        let address = long(w, i, lane, 0);
        if !w.env().system.free(address) {
            let message = format!("free of {address:#x}, which malloc did not give");
            w.fail(FaultKind::IllegalAddress, lane, message);
            return;
        }
    }
}
