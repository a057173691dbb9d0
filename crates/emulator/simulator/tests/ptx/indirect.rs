//! Calls through addresses, and addresses of functions in memory.

use kiln_simulator::FaultKind;

use crate::kernel::{fault, outcome, shape};

/// Three functions of one type, one of another, and one that cannot be decoded.
const FUNCTIONS: &str = "
.func (.param .b32 r) double(.param .b32 x)
{
.reg .b32 %r<3>;
ld.param.u32 %r1, [x];
shl.b32 %r1, %r1, 1;
st.param.b32 [r], %r1;
ret;
}
.func (.param .b32 r) square(.param .b32 x)
{
.reg .b32 %r<3>;
ld.param.u32 %r1, [x];
mul.lo.u32 %r1, %r1, %r1;
st.param.b32 [r], %r1;
ret;
}
.func (.param .b32 r) lost(.param .b32 x)
{
.reg .b32 %r<3>;
frobnicate.b32 %r1;
ret;
}
.alias twice, double;
.func (.param .b64 r) wide(.param .b32 x)
{
st.param.b64 [r], 1;
ret;
}
.global .align 8 .u64 table[3] = {double, square, lost};
.global .align 8 .b8 packed[12] = {1, 0, 0, 0, 0xFF(square), 0xFF00(square), 0xFF0000(square), 0xFF000000(square),
0xFF00000000(square), 0xFF0000000000(square), 0xFF000000000000(square), 0xFF00000000000000(square)};
";
const MINE: &str = "mul.wide.u32 %rd1, %r0, 4;\nadd.u64 %rd1, %rd1, %rd0;\n";
const OUT: &str = "st.global.u32 [%rd1], %r9;";
const CALL: &str = "{\n.param .b32 a;\nst.param.b32 [a], %r0;\n.param .b32 r;\n";
const LIKE: &str = "like: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (r), %rd5, (a), like;\n\
                    ld.param.b32 %r9, [r];\n}\n";

#[test]
fn each_lane_calls_the_function_that_it_holds() {
    let body = format!(
        "{MINE}rem.u32 %r3, %r0, 3;\nsetp.eq.u32 %p0, %r3, 1;\nsetp.eq.u32 %p1, %r3, 2;\nmov.u64 %rd3, double;\n\
         mov.u64 %rd4, square;\nselp.b64 %rd5, %rd3, %rd4, %p0;\nmov.u32 %r9, 7;\n{CALL}\
         @!%p1 call (r), %rd5, (a), some;\nsome: .calltargets square, double;\n@!%p1 ld.param.b32 %r9, [r];\n}}\n{OUT}"
    );
    let wanted: Vec<u32> = (0..70).map(|k| [k * k, 2 * k, 7][k as usize % 3]).collect();
    assert_eq!(outcome::<u32>(shape(1, 70), 70, FUNCTIONS, &body), wanted);
}

#[test]
fn addresses_of_functions_lie_in_memory() {
    for (from, wanted) in [
        ("mov.u64 %rd4, table;\nld.global.u64 %rd5, [%rd4+8];\n", 25),
        ("mov.u64 %rd4, table;\nld.global.u64 %rd5, [%rd4];\n", 10),
        (
            "mov.u64 %rd4, packed;\nld.global.b32 %r4, [%rd4+4];\nld.global.b32 %r5, [%rd4+8];\nmov.b64 %rd5, {%r4, %r5};\n",
            25,
        ),
        ("mov.u64 %rd5, twice;\n", 10),
    ] {
        let body = format!("{MINE}{from}{CALL}{LIKE}{OUT}");
        assert_eq!(outcome::<u32>(shape(1, 6), 6, FUNCTIONS, &body)[5], wanted, "{from}");
    }
}

#[test]
fn calls_that_reach_no_function_of_their_type_fail() {
    for (address, kind, text) in [
        ("mov.u64 %rd5, 0;\n", FaultKind::InvalidPc, "a call to 0x0"),
        (
            "mov.u64 %rd5, wide;\n",
            FaultKind::InvalidPc,
            "no function of this type",
        ),
        (
            "mov.u64 %rd5, lost;\n",
            FaultKind::Unsupported,
            "`frobnicate.b32` is not implemented",
        ),
    ] {
        let found = fault(shape(1, 32), 128, FUNCTIONS, &format!("{address}{CALL}{LIKE}"), false).expect_err(address);
        assert_eq!(found.kind, kind, "{found}");
        assert!(found.to_string().contains(text), "{found}");
    }
    // A direct call shows when the kernel is decoded.
    let direct = fault(
        shape(1, 1),
        4,
        FUNCTIONS,
        &format!("{CALL}call (r), lost, (a);\n}}"),
        false,
    );
    assert_eq!(direct.expect_err("lost").kind, FaultKind::Unsupported);
}
