//! Loads and stores. `Inst::locate` has found the lanes' bytes when a handler here touches them.

use super::lanes::{Lane, Ty};
use crate::machine::{Handler, Inst, Pattern, Warp, lanes};

/// The handler of a load of elements of this type into registers of this width; for vectors the registers are a list.
pub(crate) fn load(ty: &str, register: Ty, vector: bool) -> Option<Handler> {
    macro_rules! to {
        ($t:ty) => {
            match register {
                Ty::B8 => pick::<$t, u8>(vector),
                Ty::B16 => pick::<$t, u16>(vector),
                Ty::B32 => pick::<$t, u32>(vector),
                Ty::B64 => pick::<$t, u64>(vector),
                Ty::Pred => return None,
            }
        };
    }
    fn pick<T: Element, R: Cell>(vector: bool) -> Handler {
        if vector { load_list::<T, R> } else { load_one::<T, R> }
    }
    Some(match ty {
        "u8" | "b8" => to!(u8),
        "s8" => to!(i8),
        "u16" | "b16" | "f16" | "bf16" => to!(u16),
        "s16" => to!(i16),
        "u32" | "b32" | "f32" | "f16x2" | "bf16x2" => to!(u32),
        "s32" => to!(i32),
        "u64" | "b64" | "s64" | "f64" => to!(u64),
        _ => return None,
    })
}

/// The handler of a store.
pub(crate) fn store(ty: &str, register: Ty, vector: bool) -> Option<Handler> {
    macro_rules! from {
        ($t:ty) => {
            match register {
                Ty::B8 => pick::<$t, u8>(vector),
                Ty::B16 => pick::<$t, u16>(vector),
                Ty::B32 => pick::<$t, u32>(vector),
                Ty::B64 => pick::<$t, u64>(vector),
                Ty::Pred => return None,
            }
        };
    }
    fn pick<T: Element, R: Cell>(vector: bool) -> Handler {
        if vector { store_list::<T, R> } else { store_one::<T, R> }
    }
    Some(match kiln_ptx::type_size(ty)? {
        1 => from!(u8),
        2 => from!(u16),
        4 => from!(u32),
        8 => from!(u64),
        _ => return None,
    })
}

/// The type of the value in memory.
trait Element: Lane {
    fn widen(self) -> u64;
    fn narrow(x: u64) -> Self;
}

macro_rules! element {
    ($($t:ty),*) => { $(impl Element for $t {
        #[inline(always)]
        fn widen(self) -> u64 {
            self as i64 as u64
        }
        #[inline(always)]
        fn narrow(x: u64) -> Self {
            x as $t
        }
    })* };
}
element!(u8, i8, u16, i16, u32, i32, u64);

/// The type of the value in a register.
trait Cell: Lane {
    fn put(x: u64) -> Self;
    fn get(self) -> u64;
}

macro_rules! cell {
    ($($t:ty),*) => { $(impl Cell for $t {
        #[inline(always)]
        fn put(x: u64) -> Self {
            x as $t
        }
        #[inline(always)]
        fn get(self) -> u64 {
            self as u64
        }
    })* };
}
cell!(u8, u16, u32, u64);

#[inline(always)]
unsafe fn load_row<T: Element, R: Cell>(w: &Warp, d: *mut R, offset: u64) {
    // SAFETY: `locate` found the bytes of every active lane in live memory, aligned for the access; `d` is a row of R.
    // Other threads may write the same bytes only where the kernel itself races; no Rust reference points there.
    unsafe {
        if w.pattern == Pattern::Uniform {
            let value = R::put((w.pointers[0].wrapping_add(offset) as *const T).read().widen());
            for l in 0..32 {
                *d.add(l) = value;
            }
        } else if w.mask == u32::MAX {
            for l in 0..32 {
                *d.add(l) = R::put((w.pointers[l].wrapping_add(offset) as *const T).read().widen());
            }
        } else {
            for l in lanes(w.mask) {
                *d.add(l) = R::put((w.pointers[l].wrapping_add(offset) as *const T).read().widen());
            }
        }
    }
}

unsafe fn load_one<T: Element, R: Cell>(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `load_row`.
    unsafe {
        if !(i.locate)(w, i) {
            return;
        }
        let d = w.row::<R>(i.d);
        if w.pattern == Pattern::Contiguous && size_of::<T>() == size_of::<R>() {
            std::ptr::copy_nonoverlapping(w.pointers[0] as *const [R; 32], d.cast(), 1);
        } else {
            load_row::<T, R>(w, d, 0);
        }
    }
}

unsafe fn load_list<T: Element, R: Cell>(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `load_row`; the list's slots are rows of R or NONE.
    unsafe {
        if !(i.locate)(w, i) {
            return;
        }
        for (k, slot) in w.list(i).iter().enumerate() {
            if slot.is_some() {
                load_row::<T, R>(w, w.row::<R>(*slot), (k * size_of::<T>()) as u64);
            }
        }
    }
}

#[inline(always)]
unsafe fn store_row<T: Element, R: Cell>(w: &Warp, d: *const R, offset: u64) {
    // SAFETY: as for `load_row`.
    unsafe {
        if w.mask == u32::MAX {
            for l in 0..32 {
                (w.pointers[l].wrapping_add(offset) as *mut T).write(T::narrow((*d.add(l)).get()));
            }
        } else {
            for l in lanes(w.mask) {
                (w.pointers[l].wrapping_add(offset) as *mut T).write(T::narrow((*d.add(l)).get()));
            }
        }
    }
}

unsafe fn store_one<T: Element, R: Cell>(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `load_row`.
    unsafe {
        if !(i.locate)(w, i) {
            return;
        }
        let d = w.row::<R>(i.b);
        if w.pattern == Pattern::Contiguous && size_of::<T>() == size_of::<R>() {
            std::ptr::copy_nonoverlapping(d.cast(), w.pointers[0] as *mut [R; 32], 1);
        } else {
            store_row::<T, R>(w, d, 0);
        }
    }
}

unsafe fn store_list<T: Element, R: Cell>(w: &mut Warp, i: &Inst) {
    // SAFETY: as for `load_row`; the list's slots are rows of R.
    unsafe {
        if !(i.locate)(w, i) {
            return;
        }
        for (k, slot) in w.list(i).iter().enumerate() {
            store_row::<T, R>(w, w.row::<R>(*slot), (k * size_of::<T>()) as u64);
        }
    }
}
