//! Tensor maps as parameters of a kernel that is for devices of compute capability 9.0 alone.

use std::ffi::{CString, c_void};

use kiln_emulator::*;

use super::harness::{alloc, function, peek, process, start, upload};

/// Copies a box of 8 rows of 8 words from (4, -2) on.
const TEXT: &str = "
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out, .param .align 128 .b8 map[128])
{
.reg .pred %p<3>;
.reg .b32 %r<8>;
.reg .b64 %rd<8>;
.shared .align 128 .b8 tile[256];
.shared .align 8 .b64 bar;
mov.u32 %r0, %tid.x;
setp.ne.u32 %p0, %r0, 0;
mov.b64 %rd0, map;
cvta.param.u64 %rd1, %rd0;
ld.param.u64 %rd2, [out];
@%p0 bra JOIN;
mbarrier.init.shared::cta.b64 [bar], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%rd1, {4, -2}], [bar];
JOIN:
bar.sync 0;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra WAIT;
wgmma.fence.sync.aligned;
mov.u32 %r2, tile;
mad.lo.u32 %r2, %r0, 4, %r2;
ld.shared.u32 %r3, [%r2];
mul.wide.u32 %rd3, %r0, 4;
add.u64 %rd3, %rd3, %rd2;
st.global.u32 [%rd3], %r3;
ret;
}
";

fn test(name: &str, options: &[(&str, &str)], body: impl FnOnce()) -> String {
    process(&format!("tensor_maps::{name}"), options, body)
}

/// The arguments of `cuTensorMapEncodeTiled`.
#[derive(Clone)]
struct Tiled {
    ty: i32,
    address: u64,
    sizes: Vec<u64>,
    strides: Vec<u64>,
    boxes: Vec<u32>,
    steps: Vec<u32>,
    /// Interleave, swizzle, promotion, fill.
    modes: [i32; 4],
}

fn encode(tiled: &Tiled, map: &mut CUtensorMap) -> Code {
    let [interleave, swizzle, promotion, fill] = tiled.modes;
    // SAFETY: the lists have as many values as there are dimensions.
    unsafe {
        cuTensorMapEncodeTiled(
            map.into(),
            tiled.ty,
            tiled.sizes.len() as u32,
            tiled.address as *mut c_void,
            tiled.sizes[..].into(),
            tiled.strides[..].into(),
            tiled.boxes[..].into(),
            tiled.steps[..].into(),
            interleave,
            swizzle,
            promotion,
            fill,
        )
    }
}

/// 20 rows of 10 words, 48 bytes apart.
fn tiled(address: u64) -> Tiled {
    Tiled {
        ty: 2,
        address,
        sizes: vec![10, 20],
        strides: vec![48],
        boxes: vec![8, 8],
        steps: vec![1, 1],
        modes: [0, 0, 2, 0],
    }
}

fn load() -> (Code, CUmodule) {
    let text = CString::new(TEXT).unwrap();
    let mut module = CUmodule::default();
    // SAFETY: the text ends with a NUL.
    let code = unsafe { cuModuleLoadData((&mut module).into(), text.as_ptr().cast()) };
    (code, module)
}

#[test]
fn a_kernel_copies_by_a_map_among_its_parameters() {
    for check in ["0", "1"] {
        let options = [("SM", "90"), ("CHECK", check)];
        test("a_kernel_copies_by_a_map_among_its_parameters", &options, || {
            start(0);
            let (at, out) = (alloc(960), alloc(256));
            upload(at, &(0..240).collect::<Vec<u32>>());
            let mut map = CUtensorMap { opaque: [0; 128] };
            assert_eq!(encode(&tiled(at), &mut map), Code::SUCCESS);
            let (code, module) = load();
            assert_eq!(code, Code::SUCCESS);
            let params = [(&raw const out).cast::<c_void>(), (&raw const map).cast()];
            let kernel = function(module, "k");
            let params = params[..].into();
            cu!(cuLaunchKernel(
                kernel,
                1,
                1,
                1,
                64,
                1,
                1,
                0,
                CUstream(0),
                params,
                In::NULL
            ));
            cu!(cuCtxSynchronize());
            let wanted = (0..64).map(|n| {
                let (row, col) = (n / 8, 4 + n % 8);
                if row < 2 || col >= 10 { 0 } else { 12 * (row - 2) + col }
            });
            assert_eq!(peek(out, 64), wanted.collect::<Vec<u32>>());
        });
    }
}

#[test]
fn maps_that_cannot_be_are_refused() {
    let said = test("maps_that_cannot_be_are_refused", &[("SM", "90")], || {
        start(0);
        let right = tiled(alloc(4096));
        let mut map = CUtensorMap { opaque: [0; 128] };
        let mut refused = |code: Code, change: &dyn Fn(&mut Tiled)| {
            let mut wrong = right.clone();
            change(&mut wrong);
            assert_eq!(encode(&wrong, &mut map), code);
        };
        refused(Code::SUCCESS, &|_| ());
        refused(Code::INVALID_VALUE, &|t| t.address += 4);
        refused(Code::INVALID_VALUE, &|t| t.strides[0] = 40);
        refused(Code::INVALID_VALUE, &|t| t.boxes[1] = 0);
        refused(Code::INVALID_VALUE, &|t| t.boxes[0] = 9);
        refused(Code::INVALID_VALUE, &|t| t.ty = 99);
        refused(Code::INVALID_VALUE, &|t| t.sizes = vec![]);
        refused(Code::NOT_SUPPORTED, &|t| t.ty = 11);
        refused(Code::NOT_SUPPORTED, &|t| t.steps[1] = 2);
        refused(Code::NOT_SUPPORTED, &|t| t.modes[0] = 1);
        refused(Code::NOT_SUPPORTED, &|t| t.modes[1] = 3);
        refused(Code::NOT_SUPPORTED, &|t| t.modes[1] = 4);
        refused(Code::NOT_SUPPORTED, &|t| t.modes[3] = 1);
    });
    for words in [
        "no multiple of 16",
        "a box of 0 elements",
        "element strides",
        "fewer than its swizzle of 128",
    ] {
        assert!(super::harness::child() || said.contains(words), "{words} in {said}");
    }
}

#[test]
fn other_devices_have_neither_maps_nor_such_kernels() {
    test(
        "other_devices_have_neither_maps_nor_such_kernels",
        &[("SM", "80")],
        || {
            start(0);
            let mut map = CUtensorMap { opaque: [0; 128] };
            assert_eq!(encode(&tiled(alloc(4096)), &mut map), Code::NOT_SUPPORTED);
            assert_eq!(load().0, Code::INVALID_PTX);
        },
    );
}
