use kiln_cpu::Cpu;
use kiln_testkit::ops::elementwise;

macro_rules! suite {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            elementwise::$name(&Cpu::poisoned());
        }
    )*};
}

suite!(
    unary,
    unary_accuracy,
    casts,
    add,
    sub,
    mul,
    div,
    pow,
    atan2,
    remainder,
    prelu,
    extremes,
    ties,
    comparisons,
    select,
    bad_input
);
