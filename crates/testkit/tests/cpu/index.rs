use kiln_cpu::Cpu;
use kiln_testkit::ops::index;

macro_rules! suite {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            index::$name(&Cpu::poisoned());
        }
    )*};
}

suite!(
    views,
    concat,
    stack,
    pad,
    tile,
    gather,
    scatter_add,
    index_select,
    index_add,
    embedding,
    one_hot,
    bad_input,
);
