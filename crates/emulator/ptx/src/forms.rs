//! The opcodes that are known, and the modifiers of each.
//!
//! PTX takes modifiers in any order (`vote.ballot.sync.b32` is `vote.sync.ballot.b32`); only types keep their order among
//! themselves, because a destination's comes before a source's. The decoder sees one order, that of this table.

use std::collections::HashMap;
use std::sync::OnceLock;

/// Names for groups that many opcodes share.
const SHARED: &[(&str, &str)] = &[
    ("{round}", "rn|rz|rm|rp"),
    (
        "{space}",
        "global|shared|shared::cta|local|const|param|param::entry|param::func",
    ),
    ("{order}", "weak|volatile|relaxed|acquire|release|acq_rel"),
    ("{scope}", "cta|cluster|gpu|sys"),
    ("{cache}", "ca|cg|cs|lu|cv|wb|wt"),
    (
        "{level1}",
        "L1::evict_normal|L1::evict_unchanged|L1::evict_first|L1::evict_last|L1::no_allocate",
    ),
    (
        "{level2}",
        "L2::evict_normal|L2::evict_first|L2::evict_last|L2::cache_hint",
    ),
    ("{fetch}", "L2::64B|L2::128B|L2::256B"),
    (
        "{compare}",
        "eq|ne|lt|le|gt|ge|lo|ls|hi|hs|equ|neu|ltu|leu|gtu|geu|num|nan",
    ),
    ("{combine}", "and|or|xor"),
    (
        "{type}",
        "pred|b8|u8|s8|b16|u16|s16|f16|bf16|b32|u32|s32|f32|tf32|f16x2|bf16x2|u16x2|s16x2|b64|u64|s64|f64",
    ),
];

/// Each opcode with its groups of modifiers: at most one of a group may stand, or as many as `#` says. A `*` in a modifier
/// stands for a number.
const FORMS: &[(&str, &str)] = &[
    ("abs", "ftz {type}"),
    ("activemask", "{type}"),
    ("add", "{round} ftz sat cc {type}"),
    ("addc", "cc {type}"),
    ("and", "{type}"),
    ("applypriority", "{space} {level2}"),
    (
        "atom",
        "{order} {scope} {space} add|min|max|and|or|xor|exch|cas|inc|dec noftz {level2} {type}",
    ),
    ("bar", "warp cta sync|arrive|red popc|and|or aligned {type}"),
    ("barrier", "cta sync|arrive|red popc|and|or aligned {type}"),
    ("bfe", "{type}"),
    ("bfi", "{type}"),
    ("bfind", "shiftamt {type}"),
    ("bra", "uni"),
    ("brev", "{type}"),
    ("brkpt", ""),
    ("brx", "idx uni"),
    ("call", "uni"),
    ("clz", "{type}"),
    ("cnot", "{type}"),
    ("copysign", "{type}"),
    ("cos", "approx ftz {type}"),
    (
        "cp",
        "async bulk|mbarrier tensor 1d|2d|3d|4d|5d ca|cg|commit_group|wait_all|wait_group|arrive noinc \
         {space}|shared::cluster#2 tile mbarrier::complete_tx::bytes {level2} {fetch} {type}",
    ),
    (
        "createpolicy",
        "fractional|range|cvt global L2 L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged#2 {type}",
    ),
    ("cvt", "{round}|rna|rni|rzi|rmi|rpi ftz sat relu {type}#2"),
    ("cvta", "to {space} {type}"),
    ("discard", "{space} L2"),
    ("div", "{round}|approx|full ftz {type}"),
    ("dp4a", "{type}#2"),
    ("elect", "sync"),
    ("ex2", "approx ftz {type}"),
    ("exit", ""),
    (
        "fence",
        "mbarrier_init proxy async sc|acq_rel|acquire|release {space}|shared::cluster {scope}",
    ),
    ("fma", "{round} ftz sat relu {type}"),
    ("fns", "{type}"),
    ("isspacep", "{space}"),
    (
        "ld",
        "{order} {scope} {space} nc {cache} {level1} {level2} {fetch} v2|v4 {type}",
    ),
    ("ldmatrix", "sync aligned m8n8 x1|x2|x4 trans {space} {type}"),
    ("ldu", "{space} v2|v4 {type}"),
    ("lg2", "approx ftz {type}"),
    ("lop3", "{type}"),
    ("mad", "lo|hi|wide {round} ftz sat cc {type}"),
    ("madc", "lo|hi cc {type}"),
    ("match", "any|all sync {type}"),
    (
        "mbarrier",
        "init|inval|arrive|test_wait|try_wait expect_tx parity relaxed|acquire|release {scope} {space} {type}",
    ),
    ("max", "ftz NaN relu {type}"),
    ("membar", "cta|gl|sys"),
    ("min", "ftz NaN relu {type}"),
    ("mma", "sync aligned m16n8k16|m16n8k8|m16n8k4 row|col#2 {type}#4"),
    ("mov", "{type}"),
    ("mul", "lo|hi|wide {round} ftz sat {type}"),
    ("mul24", "lo {type}"),
    ("nanosleep", "{type}"),
    ("neg", "ftz {type}"),
    ("not", "{type}"),
    ("or", "{type}"),
    ("pmevent", "mask"),
    ("popc", "{type}"),
    ("prefetch", "{space} L1|L2|{level2}|tensormap"),
    ("prefetchu", "L1"),
    ("prmt", "{type} f4e|b4e|rc8|ecl|ecr|rc16"),
    ("rcp", "{round}|approx ftz {type}"),
    (
        "red",
        "{order} {scope} {space} add|min|max|and|or|xor|inc|dec noftz {level2} {type}",
    ),
    ("redux", "sync add|min|max|and|or|xor {type}"),
    ("rem", "{type}"),
    ("ret", "uni"),
    ("rsqrt", "approx ftz {type}"),
    ("sad", "{type}"),
    ("selp", "{type}"),
    ("set", "{compare} {combine} ftz {type}#2"),
    ("setmaxnreg", "inc|dec sync aligned {type}"),
    ("setp", "{compare} {combine} ftz {type}"),
    ("shf", "l|r wrap|clamp {type}"),
    ("shfl", "sync up|down|bfly|idx {type}"),
    ("shl", "{type}"),
    ("shr", "{type}"),
    ("sin", "approx ftz {type}"),
    ("slct", "ftz {type}#2"),
    ("sqrt", "{round}|approx ftz {type}"),
    ("st", "{order} {scope} {space} {cache} {level1} {level2} v2|v4 {type}"),
    ("stmatrix", "sync aligned m8n8 x1|x2|x4 trans {space} {type}"),
    ("sub", "{round} ftz sat cc {type}"),
    ("subc", "cc {type}"),
    ("tanh", "approx ftz {type}"),
    ("testp", "finite|infinite|number|notanumber|normal|subnormal {type}"),
    ("trap", ""),
    ("vote", "sync all|any|uni|ballot {type}"),
    (
        "wgmma",
        "fence|commit_group|wait_group|mma_async sync aligned m64n*k16|m64n*k8 {type}#3",
    ),
    ("xor", "{type}"),
];

/// The reason for refusing an opcode with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal<'a> {
    /// The opcode, or one of its modifiers, is not known.
    Unknown,
    /// Two modifiers, of which one at most may stand.
    Contradiction(&'a str, &'a str),
}

/// Modifiers of which a limited number may stand at once.
struct Group {
    of: Vec<&'static str>,
    most: usize,
}

impl Group {
    fn has(&self, modifier: &str) -> bool {
        self.of.iter().any(|known| match known.split_once('*') {
            None => *known == modifier,
            Some((start, end)) => modifier
                .strip_prefix(start)
                .and_then(|rest| rest.strip_suffix(end))
                .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())),
        })
    }
}

fn table() -> &'static HashMap<&'static str, Vec<Group>> {
    static TABLE: OnceLock<HashMap<&str, Vec<Group>>> = OnceLock::new();
    TABLE.get_or_init(|| FORMS.iter().map(|(name, groups)| (*name, read(groups))).collect())
}

fn read(groups: &'static str) -> Vec<Group> {
    let shared = |part| SHARED.iter().find(|(name, _)| *name == part).map(|(_, of)| *of);
    groups
        .split_whitespace()
        .map(|group| {
            let (parts, most) = group.split_once('#').unwrap_or((group, "1"));
            Group {
                of: parts
                    .split('|')
                    .flat_map(|part| shared(part).unwrap_or(part).split('|'))
                    .collect(),
                most: most.parse().unwrap_or(1),
            }
        })
        .collect()
}

/// The modifiers in the order of the table.
pub(crate) fn arrange<'a>(name: &str, modifiers: &[&'a str]) -> Result<Vec<&'a str>, Refusal<'a>> {
    let groups = table().get(name).ok_or(Refusal::Unknown)?;
    let mut arranged = Vec::with_capacity(modifiers.len());
    for group in groups {
        let start = arranged.len();
        arranged.extend(modifiers.iter().filter(|m| group.has(m)));
        if let [first, .., last] = arranged[start..]
            && arranged.len() - start > group.most
        {
            return Err(Refusal::Contradiction(first, last));
        }
    }
    if arranged.len() < modifiers.len() {
        return Err(Refusal::Unknown);
    }
    Ok(arranged)
}

#[cfg(test)]
mod tests {
    use super::{FORMS, Refusal, arrange, table};

    #[test]
    fn modifiers_come_in_any_order_and_types_keep_theirs() {
        for (name, written, read) in [
            ("vote", "ballot.sync.b32", "sync.ballot.b32"),
            ("shfl", "b32.bfly.sync", "sync.bfly.b32"),
            ("ld", "f32.v2.global.relaxed.gpu", "relaxed.gpu.global.v2.f32"),
            ("cvt", "f32.s32.rn", "rn.f32.s32"),
            ("setp", "f32.and.lt", "lt.and.f32"),
            ("prmt", "rc8.b32", "b32.rc8"),
            (
                "wgmma",
                "aligned.f32.m64n120k16.bf16.mma_async.bf16.sync",
                "mma_async.sync.aligned.m64n120k16.f32.bf16.bf16",
            ),
            (
                "cp",
                "async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
                "async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
            ),
            (
                "mma",
                "row.f32.m16n8k8.col.f16.f16.sync.f32.aligned",
                "sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
            ),
        ] {
            let written: Vec<&str> = written.split('.').collect();
            assert_eq!(arrange(name, &written).map(|m| m.join(".")), Ok(read.to_string()));
        }
    }

    #[test]
    fn unknown_and_contradictory_modifiers_are_refused() {
        assert_eq!(
            arrange("add", &["rn", "rz", "f32"]),
            Err(Refusal::Contradiction("rn", "rz"))
        );
        assert_eq!(
            arrange("add", &["rn", "rn", "f32"]),
            Err(Refusal::Contradiction("rn", "rn"))
        );
        assert_eq!(
            arrange("cvt", &["s8", "s8", "s8"]),
            Err(Refusal::Contradiction("s8", "s8"))
        );
        assert_eq!(arrange("add", &["sync", "f32"]), Err(Refusal::Unknown));
        assert_eq!(arrange("tcgen05", &["fence"]), Err(Refusal::Unknown));
        for shape in ["m64nk16", "m64n8xk16", "m64n16k4", "m32n16k16"] {
            assert_eq!(
                arrange("wgmma", &["mma_async", shape]),
                Err(Refusal::Unknown),
                "{shape}"
            );
        }
    }

    #[test]
    fn no_modifier_belongs_to_two_groups() {
        for (name, groups) in table() {
            let mut all: Vec<&str> = groups.iter().flat_map(|g| g.of.iter().copied()).collect();
            all.sort_unstable();
            let count = all.len();
            all.dedup();
            assert_eq!(all.len(), count, "{name}");
        }
    }

    /// The README names every opcode, and no others.
    #[test]
    fn the_readme_lists_the_opcodes() {
        let readme = include_str!("../../README.md");
        let (_, list) = readme.split_once("<!-- opcodes -->").expect("the list's start");
        let (list, _) = list.split_once("<!-- end -->").expect("the list's end");
        let mut listed: Vec<&str> = list.split('`').skip(1).step_by(2).collect();
        let mut known: Vec<&str> = FORMS.iter().map(|(name, _)| *name).collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }
}
