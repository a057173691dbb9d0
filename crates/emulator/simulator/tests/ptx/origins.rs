//! A fault names the line of the program, also where the instruction stands in a header of the toolkit.

use kiln_simulator::FaultKind;

use crate::kernel::{fault, shape};

const FILES: &str = "
.file 1 \"/home/me/sum.cu\"
.file 2 \"/usr/local/cuda/bin/..//include/cooperative_groups.h\"
.file 3 \"/usr/local/cuda/bin/..//include/sm_30_intrinsics.hpp\"
";

#[test]
fn inlined_headers_are_traced_to_their_caller() {
    let body = "
.loc 1 8 3
mov.u32 %r5, 1;
.loc 1 9 3
.loc 2 897 16, function_name $L__info_string0, inlined_at 1 9 3
.loc 3 440 9, function_name $L__info_string1+16, inlined_at 2 897 16
ld.global.u32 %r6, [%rd0+4096];
";
    let fault = fault(shape(1, 1), 64, FILES, body, false).expect_err("outside");
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert_eq!((fault.file.as_str(), fault.line), ("/home/me/sum.cu", 9));
    let text = fault.to_string();
    assert!(
        text.contains("(in sm_30_intrinsics.hpp:440) in k at sum.cu:9"),
        "{text}"
    );
}

#[test]
fn an_inlined_function_of_the_program_keeps_its_own_line() {
    let body = ".loc 1 3 74, function_name $L__info_string3, inlined_at 1 10 3\nld.global.u32 %r6, [%rd0+4096];\n";
    let fault = fault(shape(1, 1), 64, FILES, body, false).expect_err("outside");
    assert_eq!(fault.line, 3, "{fault}");
}
