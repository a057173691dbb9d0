//! Kernel images, as the emulated driver loads them: PTX and fat binaries.

use kiln_simulator::Program;

/// Loads a PTX text and decodes its kernels.
fn decode(text: &str) {
    if let Ok(program) = Program::load(text) {
        for name in program.kernels() {
            let _ = program.kernel(name).map(|kernel| kernel.prepare());
        }
    }
}

pub(super) fn ptx(input: &[u8]) {
    decode(&String::from_utf8_lossy(input));
}

pub(super) fn fatbin(input: &[u8]) {
    // One compute capability for each path of the loader: that of the image, a newer one, and one older than all.
    for sm in [80, 120, 10] {
        let _ = Program::of_image(input, sm);
    }
}

const KERNEL: &str = r#".version 8.0
.target sm_80
.address_size 64
.global .align 4 .b8 table[8] = {1, 2, 3, 4};
.func (.param .b32 out) twice(.param .b32 in)
{
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [in];
    add.s32 %r2, %r1, %r1;
    st.param.b32 [out], %r2;
    ret;
}
.visible .entry k(.param .u64 p, .param .align 8 .b8 q[16])
.maxntid 128, 1, 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<9>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<5>;
    .shared .align 16 .b8 tile[256];
    ld.param.u64 %rd1, [p];
    ld.param.v2.u32 {%r5, %r6}, [q+8];
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 32;
    @!%p1 bra $L_end;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3+4];
    fma.rn.f32 %f2, %f1, 0f3F800000, %f1;
    st.shared.f32 [tile+8], %f2;
    bar.sync 0;
    shfl.sync.bfly.b32 %r3, %r1, 16, 31, -1;
    atom.global.add.u32 %r4, [%rd3], %r3;
$L_end:
    ret;
}
"#;

pub(super) fn ptx_seeds() -> Vec<Vec<u8>> {
    let switch = ".version 8.0\n.target sm_80\n.address_size 64\n.entry k()\n{\n.reg .b32 %r<2>;\nmov.u32 %r1, 1;\n\
                  $T: .branchtargets $A, $B;\nbrx.idx %r1, $T;\n$A: ret;\n$B: trap;\n}\n";
    let loops = ".version 7.8\n.target sm_80\n.address_size 64\n.entry k()\n{\n.local .align 8 .b8 a[64];\n.reg .b64 %rd<3>;\n\
                 .loc 1 2 3\nmov.u64 %rd1, a;\n{\n.reg .b64 t;\nmov.u64 t, 0xffffffffffffffff;\n}\nret;\n}\n.file 1 \"a.cu\"\n";
    [KERNEL, switch, loops].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// A fat binary of one entry that holds `text` uncompressed.
fn packed(text: &str) -> Vec<u8> {
    let mut body = text.as_bytes().to_vec();
    body.push(0);
    body.resize(body.len().next_multiple_of(8), 0);
    let mut entry = Vec::new();
    entry.extend(1u16.to_le_bytes());
    entry.extend(0x0101u16.to_le_bytes());
    entry.extend(64u32.to_le_bytes());
    entry.extend((body.len() as u64).to_le_bytes());
    entry.extend([0u32, 0, 8, 80].map(u32::to_le_bytes).concat());
    entry.resize(64, 0);
    let mut image = Vec::new();
    image.extend(0xba55_ed50u32.to_le_bytes());
    image.extend(1u16.to_le_bytes());
    image.extend(16u16.to_le_bytes());
    image.extend(((entry.len() + body.len()) as u64).to_le_bytes());
    image.extend(entry);
    image.extend(body);
    image
}

/// An ELF file with two sections, one of which is the table of section names.
fn elf() -> Vec<u8> {
    let names = b"\0.shstrtab\0.nv.info.k\0";
    let mut image = vec![0; 64];
    image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
    image[16] = 2;
    image[18] = 190;
    image[40..48].copy_from_slice(&96u64.to_le_bytes());
    image[58..64].copy_from_slice(&[64, 0, 2, 0, 1, 0]);
    image.extend(names);
    image.resize(96 + 2 * 64, 0);
    image[96 + 64..96 + 68].copy_from_slice(&1u32.to_le_bytes());
    image[96 + 68] = 3;
    image[96 + 88..96 + 96].copy_from_slice(&64u64.to_le_bytes());
    image[96 + 96..96 + 104].copy_from_slice(&(names.len() as u64).to_le_bytes());
    image
}

pub(super) fn fatbin_seeds() -> Vec<Vec<u8>> {
    vec![packed(KERNEL), elf(), KERNEL.as_bytes().to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_right_inputs() {
        for seed in ptx_seeds() {
            let text = String::from_utf8(seed).unwrap();
            let program = Program::load(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert!(program.kernel("k").is_some());
        }
        let image = Program::of_image(&packed(KERNEL), 80);
        assert!(image.is_ok_and(|program| program.kernel("k").is_some()));
    }
}
