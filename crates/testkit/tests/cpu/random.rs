use kiln_cpu::Cpu;
use kiln_testkit::ops::random;

macro_rules! suite {
    ($($name:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            random::$name(&Cpu::poisoned());
        }
    )*};
}

suite!(distributions, dropout, bad_input);
